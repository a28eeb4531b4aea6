#include "client/verbs/man_page.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace gpuctl {
namespace {

constexpr char kCommon[] = "Common";
constexpr char kArguments[] = "Positionals";

std::string Head(absl::string_view page, absl::string_view version, absl::string_view summary) {
  return absl::StrCat(".TH ", EscapeRoff(absl::AsciiStrToUpper(page)), " 1 \"\" \"gpuctl ",
                      EscapeRoff(version), "\" \"gpuctl manual\"\n.SH NAME\n", EscapeRoff(page),
                      " \\- ", EscapeRoff(summary), "\n");
}

// Lines of columns and examples stay as they are; other lines flow.
bool IsFixed(absl::string_view line) {
  return absl::StartsWith(line, " ") || absl::StrContains(line, "  ");
}

std::string Paragraphs(absl::string_view text) {
  // Examples are indented as a whole; columns are not.
  bool indented = true;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (IsFixed(line)) indented = indented && absl::StartsWith(line, "  ");
  }
  std::string page;
  bool fixed = false, empty = true;
  const auto end_fixed = [&] {
    if (fixed) absl::StrAppend(&page, ".fi\n.RE\n");
    fixed = false;
  };
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    if (line.empty()) {
      end_fixed();
      empty = true;
      continue;
    }
    if (IsFixed(line) != fixed || empty) {
      end_fixed();
      absl::StrAppend(&page, ".PP\n");
      fixed = IsFixed(line);
      if (fixed) absl::StrAppend(&page, ".RS 2\n.nf\n");
      empty = false;
    }
    absl::StrAppend(&page, EscapeRoff(absl::StripPrefix(line, indented ? "  " : "")), "\n");
  }
  end_fixed();
  // A section begins its first paragraph itself.
  return std::string(absl::StripPrefix(page, ".PP\n"));
}

std::string FlagText(const VerbText::Flag& flag) {
  std::string names;
  for (const std::string& name : flag.names) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", "\\fB", EscapeRoff(name), "\\fR");
  }
  return absl::StrCat(".TP\n", names,
                      flag.takes_value && !flag.is_argument() ? " \\fIVALUE\\fR" : "", "\n",
                      EscapeRoff(absl::StrReplaceAll(flag.help, {{"\n", " "}})), "\n");
}

// Returns the names of the groups, with the flags of all verbs at the end.
std::vector<std::string> GroupsOf(const VerbText& text) {
  std::vector<std::string> groups;
  for (const VerbText::Flag& flag : text.flags) {
    const std::string group = flag.is_argument() ? kArguments : flag.group;
    if (group != kCommon && std::find(groups.begin(), groups.end(), group) == groups.end()) {
      groups.push_back(group);
    }
  }
  std::stable_partition(groups.begin(), groups.end(),
                        [](const std::string& group) { return group == kArguments; });
  groups.push_back(kCommon);
  return groups;
}

}  // namespace

std::string EscapeRoff(absl::string_view text) {
  std::string escaped =
      absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}, {"`", "\\(ga"}, {"'", "\\(aq"}});
  // A control line begins with a dot.
  if (absl::StartsWith(escaped, ".")) escaped.insert(0, "\\&");
  return escaped;
}

std::string ManPageOf(const ManVerb& verb, absl::string_view version) {
  std::string page = Head(absl::StrCat("gpuctl-", verb.name), version, verb.summary);
  absl::StrAppend(&page, ".SH SYNOPSIS\n\\fBgpuctl ", EscapeRoff(verb.name), "\\fR",
                  EscapeRoff(absl::StripPrefix(verb.text.usage, verb.name)), "\n");
  absl::StrAppend(&page, ".SH DESCRIPTION\n", Paragraphs(verb.text.description));
  for (const std::string& group : GroupsOf(verb.text)) {
    absl::StrAppend(&page, ".SH ",
                    group == kArguments ? "ARGUMENTS" : EscapeRoff(absl::AsciiStrToUpper(group)),
                    "\n");
    for (const VerbText::Flag& flag : verb.text.flags) {
      if ((flag.is_argument() ? kArguments : flag.group) == group) {
        absl::StrAppend(&page, FlagText(flag));
      }
    }
  }
  if (!verb.text.footer.empty()) {
    absl::StrAppend(&page, ".SH NOTES\n", Paragraphs(verb.text.footer));
  }
  if (!verb.text.examples.empty()) {
    absl::StrAppend(&page, ".SH EXAMPLES\n", Paragraphs(verb.text.examples));
  }
  absl::StrAppend(&page, ".SH SEE ALSO\n.BR gpuctl (1)\n");
  return page;
}

std::string ManOverview(const std::vector<ManVerb>& verbs, absl::string_view version) {
  std::string page = Head("gpuctl", version, "run training jobs on GPU machines");
  absl::StrAppend(&page,
                  ".SH SYNOPSIS\n\\fBgpuctl\\fR \\fIVERB\\fR [ARGUMENTS] [FLAGS]\n"
                  ".SH DESCRIPTION\ngpuctl runs a training job on a GPU machine and keeps a copy "
                  "of its output here.\nEach verb has a page of its own, gpuctl\\-\\fIVERB\\fR.\n");
  std::string group;
  for (const ManVerb& verb : verbs) {
    if (verb.group != group) {
      group = verb.group;
      absl::StrAppend(&page, ".SS ", EscapeRoff(group), "\n");
    }
    absl::StrAppend(&page, ".TP\n.BR gpuctl\\-", EscapeRoff(verb.name), " (1)\n",
                    EscapeRoff(verb.summary), "\n");
  }
  absl::StrAppend(&page, ".SH FILES\n");
  constexpr std::pair<const char*, const char*> kFiles[] = {
      {"~/.config/gpuctl", "keys of providers, where there is no keychain"},
      {"~/.local/state/gpuctl",
       "the list of runs, the ledger of rented machines, copies of output"},
      {"~/.cache/gpuctl", "what can be lost: it costs time alone"}};
  for (const auto& [path, what] : kFiles) {
    absl::StrAppend(&page, ".TP\n\\fI", EscapeRoff(path), "\\fR\n", EscapeRoff(what), "\n");
  }
  return page;
}

}  // namespace gpuctl
