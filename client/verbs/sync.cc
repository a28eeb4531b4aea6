// gpuctl sync: update a run's work directory; show which files are sent, and why others are not.
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"
#include "client/base/flag_set.h"
#include "client/base/quantity.h"
#include "client/base/shell_quote.h"
#include "client/ignore/ignore_rules.h"
#include "client/terminal/console.h"
#include "client/terminal/shown_name.h"
#include "client/verbs/sync_run.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "client/workdir/workdir.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

using Json = nlohmann::ordered_json;

struct SyncFlags {
  SyncRunFlags run;
  std::string workdir = ".";
  std::vector<std::string> explain, include;
  bool dry_run = false;
};

Json FileJson(const WorkdirListing::File& file) {
  return {
      {"path", file.path}, {"kind", file.is_symlink ? "symlink" : "file"}, {"bytes", file.bytes}};
}

void PrintListingJson(const CommandContext& context, const WorkdirListing& listing) {
  if (context.format == OutputFormat::kJsonLines) {
    std::vector<Json> lines;
    for (const WorkdirListing::File& file : listing.files) lines.push_back(FileJson(file));
    context.PrintJsonList("entries", lines);
    return;
  }
  Json json;
  json["workdir"] = listing.path;
  json["files"] = listing.size.files();
  json["bytes"] = listing.size.bytes();
  json["left_out"] = listing.left_out;
  json["held_back"] = listing.held_back;
  json["entries"] = Json::array();
  for (const WorkdirListing::File& file : listing.files) json["entries"].push_back(FileJson(file));
  context.PrintJson(json);
}

absl::StatusOr<int> DryRun(const CommandContext& context, const SyncFlags& flags) {
  ASSIGN_OR_RETURN(const WorkdirListing listing, ListWorkdir(flags.workdir, flags.include));
  if (context.json()) {
    PrintListingJson(context, listing);
    return kExitOk;
  }
  std::vector<std::string> lines;
  for (const WorkdirListing::File& file : listing.files) {
    lines.push_back(
        absl::StrFormat("%9s  %s", file.is_symlink ? "link" : FormatBytes(file.bytes), file.path));
  }
  context.PrintLines(lines);
  PrintWorkdirRemarks(context, listing.notes, listing.held_back);
  context.Say(absl::StrCat(listing.path, ": ", listing.size.Describe(),
                           "; left out by rules: ", listing.left_out));
  return kExitOk;
}

// One path that the user asked about.
struct Question {
  std::string path;  // relative to the work directory
  bool exists = false, is_directory = false, is_special = false;
};

absl::StatusOr<Question> MakeQuestion(const std::string& workdir, const std::string& asked) {
  const std::string name(absl::StripSuffix(asked, "/"));
  Question question;
  struct stat info {};
  question.exists = lstat(name.c_str(), &info) == 0;
  question.is_directory = question.exists ? S_ISDIR(info.st_mode) : absl::EndsWith(asked, "/");
  question.is_special =
      question.exists && !S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode) && !S_ISLNK(info.st_mode);
  // Follow links in the parent directories, but not in the last component.
  std::error_code error;
  std::filesystem::path full = std::filesystem::absolute(name, error).lexically_normal();
  if (!full.has_filename()) full = full.parent_path();  // "a/.", "a/b/.."
  full = std::filesystem::weakly_canonical(full.parent_path(), error) / full.filename();
  const std::string below = workdir == "/" ? "/" : absl::StrCat(workdir, "/");
  if (error || !absl::StartsWith(full.string(), below) || full.string().size() == below.size()) {
    return UsageError(absl::StrCat("explain ", asked, ": not below the work directory ", workdir),
                      "--workdir DIR names another; PATH is relative to here");
  }
  question.path = full.string().substr(below.size());
  return question;
}

std::string Explain(const Question& question, const IgnoreRules::Decision& decision) {
  const std::string& shown = question.path;
  std::string text = absl::StrCat(shown, decision.excluded ? ": not sent: " : ": sent");
  const std::string why = DescribeDecision(decision);
  if (!decision.excluded && question.is_special) {
    text = absl::StrCat(shown, ": not sent: neither file, directory nor link");
  } else if (!decision.excluded) {
    absl::StrAppend(&text, why.empty() ? "" : ": ", why);
  } else if (decision.reason == IgnoreRules::Reason::kSecret) {
    absl::StrAppend(&text, "held back: ", why, "; to send it: --include ", TypedName(shown, "PATH"),
                    ", or a line !/", IsPlainWord(shown) ? shown : "PATTERN", " in .gpuctlignore");
  } else {
    absl::StrAppend(&text, why);
    if (decision.reason == IgnoreRules::Reason::kRule && decision.decided != question.path) {
      absl::StrAppend(&text, " (leaves out ", decision.decided, "/)");
    }
  }
  if (!question.exists) absl::StrAppend(&text, " (there is no such file)");
  return text;
}

Json ExplainJson(const Question& question, const IgnoreRules::Decision& decision) {
  using Reason = IgnoreRules::Reason;
  const bool rule = decision.reason == Reason::kRule;
  Json json;
  json["path"] = question.path;
  json["exists"] = question.exists;
  json["sent"] = !decision.excluded && !question.is_special;
  json["reason"] = decision.reason == Reason::kSecret     ? Json("secret")
                   : decision.reason == Reason::kGit      ? Json("git")
                   : decision.reason == Reason::kOurs     ? Json("gpuctl")
                   : decision.reason == Reason::kIncluded ? Json("include")
                   : rule                                 ? Json("rule")
                                                          : Json();
  json["file"] = rule ? Json(decision.file->shown) : Json();
  json["line"] = rule ? Json(decision.pattern->line()) : Json();
  json["pattern"] = rule ? Json(decision.pattern->text()) : Json();
  return json;
}

absl::StatusOr<int> ExplainPaths(const CommandContext& context, const SyncFlags& flags) {
  ASSIGN_OR_RETURN(const std::string workdir, ResolveWorkdir(flags.workdir));
  ASSIGN_OR_RETURN(IgnoreRules rules, LoadWorkdirRules(workdir, flags.include));
  std::vector<std::string> lines;
  std::vector<Json> objects;
  for (const std::string& asked : flags.explain) {
    ASSIGN_OR_RETURN(const Question question, MakeQuestion(workdir, asked));
    const IgnoreRules::Decision decision = rules.Decide(question.path, question.is_directory);
    lines.push_back(Explain(question, decision));
    objects.push_back(ExplainJson(question, decision));
  }
  if (context.json()) {
    context.PrintJsonList("paths", objects);
  } else {
    context.PrintLines(lines);
  }
  PrintWorkdirRemarks(context, rules.notes(), {});
  return kExitOk;
}

}  // namespace

absl::StatusOr<int> CmdSync(CommandContext& context, std::vector<std::string> args) {
  SyncFlags flags;
  VerbParser parser(
      context, "sync RUN | --dry-run | --explain PATH... [FLAGS]",
      "Sends a run what changed in the work directory. Keeps files that the job itself\n"
      "changed, and names them.",
      "Does not send .git, files that look like secrets, and what .gitignore,\n"
      ".gpuctlignore and git's other ignore rules leave out.\n\n"
      "  gpuctl sync amber-fox-3 --watch\n"
      "  gpuctl sync --dry-run\n"
      "  gpuctl sync --explain .env data/train.bin");
  parser.Option("RUN", flags.run.reference, "Name, id, or the beginning of one");
  parser.Switch("--checksum", flags.run.checksum,
                "Read every file: a change may not show in its time (mapped files)");
  parser.Switch("--watch", flags.run.watch, "Go on with every change, until Ctrl-C");
  parser.Switch("-y,--yes", flags.run.yes,
                "Ask nothing: send a large work directory, remove what it lacks");
  parser.Switch("--dry-run", flags.dry_run, "List what would go, with sizes");
  parser.Option("--explain", flags.explain,
                "Say for each PATH whether it goes, and which rule decides");
  const FlagSet::Flag workdir = parser.Option(
      "--workdir", flags.workdir, "Directory to send (default: the run's, or . without a run)");
  parser.Option("--streams", flags.run.streams, "Connections to use (default: as many as help)")
      .Range(1, 16);
  parser.Option("--include", flags.include, "Path in it to send, whatever the rules say")
      .OneValueEach();
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  const int asked = (flags.dry_run ? 1 : 0) + (flags.explain.empty() ? 0 : 1) +
                    (flags.run.reference.empty() ? 0 : 1);
  if (asked != 1) {
    return UsageError(asked == 0
                          ? "sync: one of RUN, --dry-run and --explain PATH is needed"
                          : "sync: RUN, --dry-run and --explain PATH do not go with each other",
                      "gpuctl sync --dry-run --workdir DIR lists what that directory would send");
  }
  if (!flags.run.reference.empty()) {
    if (workdir.given()) flags.run.workdir = flags.workdir;
    flags.run.include = flags.include;
    return SyncRun(context, flags.run);
  }
  return flags.dry_run ? DryRun(context, flags) : ExplainPaths(context, flags);
}

}  // namespace gpuctl
