#include "client/verbs/verb_parser.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/base/exit_codes.h"
#include "client/base/suggest.h"

namespace gpuctl {
namespace {

// CLI11 would list every option's type in the usage line; ours says how the verb is used.
class UsageFormatter : public CLI::Formatter {
 public:
  explicit UsageFormatter(std::string usage) : usage_(std::move(usage)) {}
  std::string make_usage(const CLI::App*, std::string) const override {
    return absl::StrCat("\nUsage: gpuctl ", usage_, "\n");
  }

 private:
  std::string usage_;
};

}  // namespace

VerbParser::VerbParser(Console& console, const std::string& usage, const std::string& description,
                       const std::string& footer)
    : console_(console),
      verb_(std::vector<std::string>(absl::StrSplit(usage, ' '))[0]),
      app_(description, absl::StrCat("gpuctl ", verb_)) {
  app_.formatter(std::make_shared<UsageFormatter>(usage));
  app_.footer(footer);
  app_.set_help_flag("-h,--help", "Show this help and exit");
  app_.get_formatter()->column_width(34);
  app_.add_option("-o,--output", output_, "table, wide, json or jsonl")->group("Common");
  app_.add_flag("--json", json_, "The same as -o json")->group("Common");
  app_.add_flag("--trace", console.trace, "One line on stderr for each call to the node")
      ->group("Common");
  app_.add_flag("--no-color", no_color_, "No colours and no animation")->group("Common");
}

absl::StatusOr<bool> VerbParser::Parse(std::vector<std::string> args) {
  try {
    std::vector<std::string> reversed(args.rbegin(), args.rend());
    app_.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    // CLI11 leaves two empty lines between groups.
    console_.PrintOwnText(absl::StrReplaceAll(app_.help(), {{"\n\n\n", "\n\n"}}));
    return false;
  } catch (const CLI::ParseError& error) {
    return Explain(error, args);
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
  return true;
}

absl::Status VerbParser::Explain(const CLI::ParseError& error,
                                 const std::vector<std::string>& args) {
  const std::string hint = absl::StrCat("gpuctl ", verb_, " --help lists what it takes");
  std::string message = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    std::vector<std::string> names;
    for (const CLI::Option* option : app_.get_options()) {
      for (const std::string& name : option->get_lnames())
        names.push_back(absl::StrCat("--", name));
    }
    for (const std::string& arg : args) {
      const std::string flag = arg.substr(0, arg.find('='));
      if (absl::StartsWith(flag, "-") &&
          std::find(names.begin(), names.end(), flag) == names.end()) {
        if (app_.get_option_no_throw(flag) != nullptr) continue;
        return UsageError(absl::StrCat(verb_, ": unknown flag ", flag, DidYouMean(flag, names)),
                          hint);
      }
    }
    message = absl::StrCat("too many arguments: ", absl::StrJoin(app_.remaining(), " "));
    if (verb_ == "launch" || verb_ == "exec") {
      return UsageError(absl::StrCat(verb_, ": ", message),
                        absl::StrCat("a command goes behind --: gpuctl ", verb_,
                                     verb_ == "exec" ? " RUN -- CMD" : " -- CMD"));
    }
  }
  return UsageError(absl::StrCat(verb_, ": ", message), hint);
}

}  // namespace gpuctl
