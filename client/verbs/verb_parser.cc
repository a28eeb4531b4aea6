#include "client/verbs/verb_parser.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/suggest.h"
#include "common/base/status_macros.h"

namespace gpuctl {

VerbParser::VerbParser(Console& console, const std::string& usage, const std::string& description,
                       const std::string& footer)
    : FlagSet(usage, description, footer), console_(console) {
  Option("-o,--output", output_, "table, wide, json or jsonl").Group("Common");
  Switch("--json", json_, "The same as -o json").Group("Common");
  Switch("--trace", console.trace, "One line on stderr for each call to the node").Group("Common");
  Switch("--no-color", no_color_, "No colours and no animation").Group("Common");
}

FlagSet::Flag VerbParser::Quiet(bool& quiet, const std::string& what) {
  quiet_ = &quiet;
  return Switch("-q,--quiet", quiet, absl::StrCat("Print ", what, " alone, one on each line"));
}

absl::StatusOr<bool> VerbParser::Parse(const std::vector<std::string>& args) {
  if (quiet_ == nullptr) {
    quiet_ = &own_quiet_;
    Switch("-q,--quiet", own_quiet_, quiet_help_).Group("Common");
  }
  if (console_.describe != nullptr) {
    *console_.describe = Describe();
    return false;
  }
  // So that the errors of the flags themselves are broken between words, too.
  console_.terminal =
      DetectTerminal(std::find(args.begin(), args.end(), "--no-color") != args.end());
  ASSIGN_OR_RETURN(const std::optional<std::string> help, Read(args));
  if (help.has_value()) {
    console_.PrintOwnText(*help);
    return false;
  }
  constexpr std::pair<const char*, OutputFormat> kFormats[] = {{"table", OutputFormat::kTable},
                                                               {"wide", OutputFormat::kWide},
                                                               {"json", OutputFormat::kJson},
                                                               {"jsonl", OutputFormat::kJsonLines}};
  const auto* found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                   [this](const auto& format) { return output_ == format.first; });
  if (found == std::end(kFormats)) {
    return UsageError(absl::StrCat("unknown output format \"", output_, "\"",
                                   DidYouMean(output_, {"table", "wide", "json", "jsonl"})),
                      "use -o table, wide, json or jsonl");
  }
  console_.format = json_ ? OutputFormat::kJson : found->second;
  console_.terminal = DetectTerminal(no_color_);
  // A document is whole, or it is none.
  if (console_.json()) *quiet_ = false;
  console_.quiet = *quiet_;
  return true;
}

}  // namespace gpuctl
