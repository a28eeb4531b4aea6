#include "client/spec/yaml_reader.h"

#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/base/suggest.h"
#include "client/words/foreign_words.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr int kMaxJsonDepth = 32;
constexpr int kMaxJsonValues = 100'000;

const char* KindOf(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Sequence:
      return "a list";
    case YAML::NodeType::Map:
      return "a mapping";
    case YAML::NodeType::Scalar:
      return "a single value";
    default:
      return "nothing";
  }
}

absl::Status WrongKind(const YamlPlace& place, const YAML::Node& node, absl::string_view wanted) {
  return YamlError(place, node,
                   absl::StrCat(place.field.empty() ? "the run file" : place.field, " must be ",
                                wanted, ", not ", KindOf(node)));
}

bool IsNumberText(absl::string_view text) {
  // SimpleAtod also accepts "nan" and "infinity", which are words here.
  return !text.empty() && text.find_first_not_of("0123456789+-.eE") == absl::string_view::npos &&
         text.find_first_of("0123456789") != absl::string_view::npos;
}

nlohmann::json ScalarToJson(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;  // quoted
  if (text == "null" || text == "~" || text.empty()) return nullptr;
  if (text == "true" || text == "True") return true;
  if (text == "false" || text == "False") return false;
  int64_t integer = 0;
  if (IsNumberText(text) && absl::SimpleAtoi(text, &integer)) return integer;
  double number = 0;
  if (IsNumberText(text) && absl::SimpleAtod(text, &number)) return number;
  return text;
}

absl::Status ToJson(const YamlPlace& place, const YAML::Node& node, int depth, int& values,
                    nlohmann::json& json) {
  if (depth > kMaxJsonDepth) return YamlError(place, node, "nested too deeply");
  if (++values > kMaxJsonValues) return YamlError(place, node, "too many values");
  switch (node.Type()) {
    case YAML::NodeType::Scalar:
      json = ScalarToJson(node);
      return absl::OkStatus();
    case YAML::NodeType::Sequence:
      json = nlohmann::json::array();
      for (const auto& element : node) {
        json.emplace_back();
        RETURN_IF_ERROR(ToJson(place, element, depth + 1, values, json.back()));
      }
      return absl::OkStatus();
    case YAML::NodeType::Map:
      json = nlohmann::json::object();
      for (const auto& entry : node) {
        if (!entry.first.IsScalar()) return YamlError(place, entry.first, "a key must be a word");
        const std::string& key = entry.first.Scalar();
        if (json.contains(key)) {
          return YamlError(place, entry.first, absl::StrCat("\"", key, "\" is given twice"));
        }
        RETURN_IF_ERROR(ToJson(place, entry.second, depth + 1, values, json[key]));
      }
      return absl::OkStatus();
    default:
      json = nullptr;
      return absl::OkStatus();
  }
}

}  // namespace

absl::Status YamlErrorAt(const std::string& file, const YAML::Mark& mark,
                         absl::string_view message) {
  if (mark.is_null()) return absl::InvalidArgumentError(absl::StrCat(file, ": ", message));
  // WithYamlLine adds the text.
  return WithExcerpt(absl::InvalidArgumentError(absl::StrCat(file, ":", mark.line + 1, ":",
                                                             mark.column + 1, ": ", message)),
                     {mark.line + 1, mark.column + 1, ""});
}

absl::Status YamlError(const YamlPlace& place, const YAML::Node& node, absl::string_view message) {
  absl::Status status = YamlErrorAt(place.file, node.Mark(), message);
  // Somebody may have written the secret itself there.
  for (const absl::string_view field : {"secrets", "env", "resources.registry"}) {
    if (absl::StartsWith(place.field, field)) return absl::InvalidArgumentError(status.message());
  }
  return status;
}

absl::Status WithYamlLine(absl::Status status, absl::string_view text) {
  std::optional<Excerpt> excerpt = ExcerptOf(status);
  if (!excerpt.has_value()) return status;
  const absl::Status plain = absl::InvalidArgumentError(status.message());
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (static_cast<size_t>(excerpt->line) > lines.size()) return plain;
  absl::string_view line = lines[static_cast<size_t>(excerpt->line) - 1];
  absl::ConsumeSuffix(&line, "\r");
  if (absl::StripAsciiWhitespace(line).empty()) return plain;
  const std::string lower = absl::AsciiStrToLower(line);
  for (const absl::string_view word : {"password", "secret", "token", "_key"}) {
    if (absl::StrContains(lower, word)) return plain;
  }
  // The place is behind the end where something is missing.
  if (static_cast<size_t>(excerpt->column) > line.size() + 1) return plain;
  excerpt->text = std::string(line);
  return WithExcerpt(std::move(status), *excerpt);
}

absl::StatusOr<std::string> YamlString(const YamlPlace& place, const YAML::Node& node) {
  if (!node.IsScalar()) return WrongKind(place, node, "a single value");
  if (node.Scalar().find('\0') != std::string::npos) {
    return YamlError(place, node, absl::StrCat(place.field, " has a NUL character in it"));
  }
  return node.Scalar();
}

absl::StatusOr<int64_t> YamlInt(const YamlPlace& place, const YAML::Node& node, int64_t low,
                                int64_t high) {
  ASSIGN_OR_RETURN(const std::string text, YamlString(place, node));
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) {
    return YamlError(place, node,
                     absl::StrCat(place.field, " must be a whole number, not \"", text, "\""));
  }
  if (value < low || value > high) {
    return YamlError(place, node, absl::StrCat(place.field, " must be ", low, " to ", high));
  }
  return value;
}

absl::StatusOr<bool> YamlBool(const YamlPlace& place, const YAML::Node& node) {
  const absl::StatusOr<std::string> text = YamlString(place, node);
  if (!text.ok()) return text.status();
  if (*text == "true" || *text == "True") return true;
  if (*text == "false" || *text == "False") return false;
  return YamlError(place, node,
                   absl::StrCat(place.field, " must be true or false, not \"", *text, "\""));
}

absl::StatusOr<absl::Duration> YamlDuration(const YamlPlace& place, const YAML::Node& node) {
  ASSIGN_OR_RETURN(const std::string text, YamlString(place, node));
  const absl::StatusOr<absl::Duration> value = ParseDuration(text);
  if (!value.ok()) {
    return YamlError(place, node, absl::StrCat(place.field, ": ", value.status().message()));
  }
  return *value;
}

absl::StatusOr<int64_t> YamlSize(const YamlPlace& place, const YAML::Node& node) {
  ASSIGN_OR_RETURN(const std::string text, YamlString(place, node));
  const absl::StatusOr<int64_t> value = ParseSize(text);
  if (!value.ok()) {
    return YamlError(place, node, absl::StrCat(place.field, ": ", value.status().message()));
  }
  return *value;
}

absl::StatusOr<std::vector<std::string>> YamlStrings(const YamlPlace& place,
                                                     const YAML::Node& node) {
  std::vector<std::string> strings;
  if (node.IsScalar()) {
    ASSIGN_OR_RETURN(strings.emplace_back(), YamlString(place, node));
    return strings;
  }
  if (!node.IsSequence()) return WrongKind(place, node, "a value or a list of values");
  for (const auto& element : node) {
    ASSIGN_OR_RETURN(strings.emplace_back(), YamlString(place, element));
  }
  return strings;
}

absl::StatusOr<std::map<std::string, std::string>> YamlStringMap(const YamlPlace& place,
                                                                 const YAML::Node& node) {
  std::map<std::string, std::string> strings;
  if (!node.IsMap()) return WrongKind(place, node, "a mapping of names to values");
  for (const auto& entry : node) {
    ASSIGN_OR_RETURN(const std::string key, YamlString(place, entry.first));
    const YamlPlace value_place{place.file, absl::StrCat(place.field, ".", key)};
    ASSIGN_OR_RETURN(std::string value, YamlString(value_place, entry.second));
    if (!strings.emplace(key, std::move(value)).second) {
      return YamlError(place, entry.first, absl::StrCat("\"", key, "\" is given twice"));
    }
  }
  return strings;
}

absl::StatusOr<nlohmann::json> YamlToJson(const YamlPlace& place, const YAML::Node& node) {
  nlohmann::json json;
  int values = 0;
  RETURN_IF_ERROR(ToJson(place, node, 0, values, json));
  return json;
}

absl::Status ReadYamlMap(const YamlPlace& place, const YAML::Node& node,
                         const std::vector<YamlField>& fields) {
  if (!node.IsMap()) return WrongKind(place, node, "a mapping (field: value)");
  std::set<std::string> seen;
  for (const auto& entry : node) {
    if (!entry.first.IsScalar()) return YamlError(place, entry.first, "a field must be a word");
    const std::string& key = entry.first.Scalar();
    const std::string full = place.field.empty() ? key : absl::StrCat(place.field, ".", key);
    const YamlField* found = nullptr;
    std::vector<std::string> names;
    for (const YamlField& field : fields) {
      names.push_back(field.name);
      if (key == field.name) found = &field;
    }
    if (found == nullptr) {
      const std::string near = DidYouMean(key, names), ours = OursFor(key);
      const std::string help = near.empty() && !ours.empty() ? absl::StrCat("; ", ours) : near;
      return YamlError(place, entry.first, absl::StrCat("unknown field \"", full, "\"", help));
    }
    if (!seen.insert(key).second) {
      return YamlError(place, entry.first, absl::StrCat("field \"", full, "\" is given twice"));
    }
    RETURN_IF_ERROR(found->type.read(YamlPlace{place.file, full}, entry.second));
  }
  return absl::OkStatus();
}

nlohmann::ordered_json YamlMapSchema(const std::vector<YamlField>& fields) {
  nlohmann::ordered_json properties = nlohmann::ordered_json::object();
  for (const YamlField& field : fields) {
    nlohmann::ordered_json schema = field.type.schema;
    if (schema.is_object()) schema["description"] = field.about;
    properties[field.name] = std::move(schema);
  }
  return {{"type", "object"}, {"additionalProperties", false}, {"properties", properties}};
}

YamlType YamlMapOf(std::vector<YamlField> fields) {
  nlohmann::ordered_json schema = YamlMapSchema(fields);
  return {[fields = std::move(fields)](const YamlPlace& place, const YAML::Node& node) {
            return ReadYamlMap(place, node, fields);
          },
          std::move(schema)};
}

}  // namespace gpuctl
