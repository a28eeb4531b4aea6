#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/base/exit_codes.h"
#include "client/base/suggest.h"
#include "client/schemas/json_schemas.h"

namespace gpuctl {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kCommon[] = "common";
constexpr char kInFile[] = "#/$defs/";
constexpr char kInOtherFile[] = ".json#/$defs/";

// Takes what a schema needs of other files into its own definitions.
class Bundle {
 public:
  explicit Bundle(const std::string& name) : name_(name), whole_(FileOf(name)) {}

  Json Make() {
    Rewrite(whole_, name_);
    while (!wanted_.empty()) {
      const auto [file, definition] = *wanted_.begin();
      wanted_.erase(wanted_.begin());
      Json part = FileOf(file).at("$defs").at(definition);
      Rewrite(part, file);
      whole_["$defs"][NameOf(file, definition)] = std::move(part);
    }
    return std::move(whole_);
  }

 private:
  static Json FileOf(const std::string& name) {
    for (const SchemaFile& file : SchemaFiles()) {
      if (name == file.name) return Json::parse(file.text);
    }
    return Json::object();
  }
  std::string NameOf(const std::string& file, const std::string& definition) const {
    return file == name_ ? definition : absl::StrCat(file, ".", definition);
  }
  // Makes the references in a part of `file` references into this bundle, and notes what they need.
  void Rewrite(Json& part, const std::string& file) {
    for (auto field = part.begin(); field != part.end(); ++field) {
      if (field->is_structured()) Rewrite(*field, file);
      if (!part.is_object() || field.key() != "$ref" || !field->is_string()) continue;
      std::pair<std::string, std::string> target = {file, ""};
      const auto text = field->get<std::string>();
      if (absl::StartsWith(text, kInFile)) {
        target.second = text.substr(sizeof(kInFile) - 1);
      } else {
        target = absl::StrSplit(text, absl::MaxSplits(absl::string_view(kInOtherFile), 1));
      }
      *field = absl::StrCat(kInFile, NameOf(target.first, target.second));
      if (target.first != name_ && known_.insert(target).second) wanted_.insert(target);
    }
  }

  const std::string name_;
  Json whole_;
  std::set<std::pair<std::string, std::string>> known_, wanted_;
};

}  // namespace

std::vector<std::string> SchemaNames() {
  std::vector<std::string> names;
  for (const SchemaFile& file : SchemaFiles()) {
    if (absl::string_view(file.name) != kCommon) names.emplace_back(file.name);
  }
  return names;
}

absl::StatusOr<Json> WholeSchema(const std::string& name) {
  const std::vector<std::string> names = SchemaNames();
  for (const std::string& known : names) {
    if (name == known) return Bundle(name).Make();
  }
  return WithExitCode(WithHint(absl::NotFoundError(absl::StrCat("there is no schema \"", name, "\"",
                                                                DidYouMean(name, names))),
                               "gpuctl json-schema lists them"),
                      kExitUsage);
}

}  // namespace gpuctl
