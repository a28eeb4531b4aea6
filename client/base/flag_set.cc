#include "client/base/flag_set.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"
#include "client/base/other_tools.h"
#include "client/base/suggest.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

// Returns the flags that may be named to somebody who typed `flag`: not those that agree to
// something, unless one letter is wrong.
std::vector<std::string> Harmless(const std::string& flag, std::vector<std::string> names) {
  names.erase(std::remove_if(names.begin(), names.end(),
                             [&flag](const std::string& name) {
                               return (name == "--yes" || name == "--force") &&
                                      EditDistance(flag, name) > 1;
                             }),
              names.end());
  return names;
}

// Columns of help: the options' names and what they take; what they do.
constexpr int kNamesWidth = 34;
[[maybe_unused]] constexpr int kUnlimited = 1000;

// Formats a usage line that shows how to use the verb; CLI11's would list every option's type.
class UsageFormatter : public CLI::Formatter {
 public:
  explicit UsageFormatter(std::string usage) : usage_(std::move(usage)) {
    column_width(kNamesWidth);
    label("POSITIONALS", "Positionals");  // its own name since CLI11 2.5
#if CLI11_VERSION_MAJOR * 100 + CLI11_VERSION_MINOR >= 206
    // A column of its own for short names; texts as they are written.
    long_option_alignment_ratio((sizeof("  -h, ") - 0.5F) / kNamesWidth);
    right_column_width(kUnlimited);
    enable_description_formatting(false);
    enable_footer_formatting(false);
#endif
  }
  std::string make_usage(const CLI::App*, std::string) const override {
    return absl::StrCat("\nUsage: gpuctl ", usage_, "\n");
  }

 private:
  std::string usage_;
};

// Takes the lines with an indent out of a text, without empty lines around them.
std::string TakeExamples(std::string& text) {
  std::string examples, notes;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    std::string& into = absl::StartsWith(line, "  ") ? examples : notes;
    if (line.empty() && (notes.empty() || absl::EndsWith(notes, "\n\n"))) continue;
    absl::StrAppend(&into, line, "\n");
  }
  text = std::string(absl::StripTrailingAsciiWhitespace(notes));
  return std::string(absl::StripSuffix(examples, "\n"));
}

std::string WithExamples(const std::string& description, const std::string& examples) {
  if (examples.empty()) return description;
  return absl::StrCat(description, "\n\nExamples:\n", examples);
}

// Returns an error that tells a person what is wrong with `args`.
absl::Status Explain(const CLI::App& app, const std::string& verb, const CLI::ParseError& error,
                     const std::vector<std::string>& args) {
  const std::string hint = absl::StrCat("gpuctl ", verb, " --help lists what it takes");
  std::string message = error.what();
  if (absl::StartsWith(message, "--gpus: Value ") &&
      absl::ascii_isalpha(static_cast<unsigned char>(message[sizeof("--gpus: Value ") - 1]))) {
    return UsageError(absl::StrCat(verb, ": --gpus takes how many GPUs of a machine a run gets"),
                      "--gpu MODEL:COUNT, as in --gpu A100:1, says which machine is rented");
  }
  const bool extra = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  // A wrong flag says more than the argument that is missing too.
  if (extra || dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_group().empty()) continue;  // hidden
      for (const std::string& name : option->get_lnames())
        names.push_back(absl::StrCat("--", name));
    }
    for (const std::string& arg : args) {
      const std::string flag = arg.substr(0, arg.find('='));
      if (absl::StartsWith(flag, extra ? "-" : "--") && !absl::c_linear_search(names, flag)) {
        if (app.get_option_no_throw(flag) != nullptr) continue;
        // A short flag may have its value at once: -N1.
        const bool is_short = flag.size() > 2 && flag[1] != '-';
        std::string ours = OursForOthers(flag);
        if (verb == "ps" && flag == "-w") ours = "; -o wide shows more columns, gpuctl top goes on";
        if (ours.empty() && is_short) ours = OursForOthers(flag.substr(0, 2));
        return UsageError(
            absl::StrCat(verb, ": unknown flag ", flag,
                         ours.empty() ? DidYouMean(flag, Harmless(flag, names)) : ours),
            hint);
      }
    }
  }
  if (extra && verb == "cost") {
    return UsageError(absl::StrCat("cost: it sums for all runs, and takes no name: ",
                                   absl::StrJoin(app.remaining(), " ")),
                      "gpuctl cost --by run, or --by batch, has a line for each; gpuctl show RUN "
                      "has the cost of one");
  }
  if (extra) {
    message = absl::StrCat("too many arguments: ", absl::StrJoin(app.remaining(), " "));
    // Not the words of a command: gpuctl launch python3 train.py.
    const bool first = absl::StartsWith(args.front(), "-") || PathExists(args.front());
    const bool are_files = first && absl::c_all_of(app.remaining(), [](const std::string& name) {
                             return PathExists(name) && !absl::EndsWith(name, ".py");
                           });
    if (verb == "launch" && are_files) {
      return UsageError(absl::StrCat(verb, ": ", message),
                        "a pattern needs quotes, as in --checkpoints '*.pt': else the shell puts "
                        "the names of files in its place; a command goes behind --");
    }
    if (verb == "launch" || verb == "exec") {
      return UsageError(absl::StrCat(verb, ": ", message),
                        absl::StrCat("a command goes behind --: gpuctl ", verb,
                                     verb == "exec" ? " RUN -- CMD" : " -- CMD"));
    }
  }
  return UsageError(absl::StrCat(verb, ": ", message), hint);
}

}  // namespace

FlagSet::Flag FlagSet::Flag::Required() const {
  option_->required();
  return *this;
}

FlagSet::Flag FlagSet::Flag::Group(const std::string& name) const {
  option_->group(name);
  return *this;
}

FlagSet::Flag FlagSet::Flag::Hidden() const { return Group(""); }

FlagSet::Flag FlagSet::Flag::Range(int low, int high) const {
  option_->check(CLI::Range(low, high).description(""));
  return *this;
}

FlagSet::Flag FlagSet::Flag::ShownRange(int low, int high) const {
  option_->check(CLI::Range(low, high));
  return *this;
}

FlagSet::Flag FlagSet::Flag::Commas() const {
  option_->delimiter(',');
  return *this;
}

FlagSet::Flag FlagSet::Flag::OneValueEach() const {
  option_->allow_extra_args(false);
  return *this;
}

bool FlagSet::Flag::given() const { return option_->count() > 0; }

FlagSet::FlagSet(const std::string& usage, const std::string& description,
                 const std::string& footer)
    : usage_(usage),
      description_(description),
      verb_(std::vector<std::string>(absl::StrSplit(usage, ' '))[0]) {
  std::string notes = footer;
  examples_ = TakeExamples(notes);
  app_ = std::make_unique<CLI::App>(WithExamples(description, examples_),
                                    absl::StrCat("gpuctl ", verb_));
  app_->formatter(std::make_shared<UsageFormatter>(usage));
  app_->footer(notes);
  app_->option_defaults()->group("Options");  // "OPTIONS" since CLI11 2.5
  app_->set_help_flag("-h,--help", "Show this help and exit");
}

FlagSet::~FlagSet() = default;

FlagSet::Flag FlagSet::Option(const std::string& names, int& value, const std::string& help) {
  return Flag(app_->add_option(names, value, help));
}

FlagSet::Flag FlagSet::Option(const std::string& names, std::string& value,
                              const std::string& help) {
  return Flag(app_->add_option(names, value, help));
}

FlagSet::Flag FlagSet::Option(const std::string& names, std::vector<std::string>& values,
                              const std::string& help) {
  return Flag(app_->add_option(names, values, help));
}

FlagSet::Flag FlagSet::Switch(const std::string& names, bool& value, const std::string& help) {
  return Flag(app_->add_flag(names, value, help));
}

FlagSet::Flag FlagSet::Switch(const std::string& names, std::string& value,
                              const std::string& help) {
  const std::vector<std::string> all = absl::StrSplit(names, ',');
  for (const std::string& name : all) optional_[name] = all.back();
  return Flag(app_->add_flag(names, value, help));
}

// A flag with an optional value takes it after '=' only: a number behind it is most likely meant
// for it, and would be taken for an argument.
absl::Status FlagSet::CheckOptionalValues(const std::vector<std::string>& args) const {
  for (size_t i = 0; i + 1 < args.size() && args[i] != "--"; ++i) {
    const auto name = optional_.find(args[i]);
    if (name == optional_.end()) continue;
    const std::string& next = args[i + 1];
    if (next.find_first_not_of("0123456789") != std::string::npos || next.empty()) continue;
    return UsageError(absl::StrCat(verb_, ": ", args[i], " takes its number after \"=\""),
                      absl::StrCat("write ", name->second, "=", next));
  }
  return absl::OkStatus();
}

void FlagSet::OneValueEach() {
  for (CLI::Option* option : app_->get_options()) {
    if (option->get_items_expected_max() > 1 && !option->get_positional())
      option->allow_extra_args(false);
  }
}

VerbText FlagSet::Describe() const {
  VerbText text;
  text.usage = usage_;
  text.description = description_;
  text.examples = examples_;
  text.footer = app_->get_footer();
  for (const CLI::Option* option : app_->get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    VerbText::Flag flag;
    if (option->get_positional()) flag.names.push_back(option->get_name(true));
    for (const std::string& name : option->get_snames()) flag.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) flag.names.push_back("--" + name);
    flag.help = option->get_description();
    flag.group = option->get_group();
    // A switch takes none, and one that may have a value is complete without it.
    flag.takes_value = option->get_items_expected_min() > 0;
    text.flags.push_back(std::move(flag));
  }
  return text;
}

absl::StatusOr<std::optional<std::string>> FlagSet::Read(const std::vector<std::string>& args) {
  RETURN_IF_ERROR(CheckOptionalValues(args));
  try {
    std::vector<std::string> reversed(args.rbegin(), args.rend());
    app_->parse(reversed);
  } catch (const CLI::CallForHelp&) {
    // CLI11 leaves two empty lines between groups.
    return absl::StrReplaceAll(app_->help(), {{"\n\n\n", "\n\n"}});
  } catch (const CLI::ParseError& error) {
    return Explain(*app_, verb_, error, args);
  }
  return std::nullopt;
}

}  // namespace gpuctl
