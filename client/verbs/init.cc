// gpuctl init: writes a run file that it guesses from a directory.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/base/exit_codes.h"
#include "client/base/paths.h"
#include "client/guess/guess_run.h"
#include "client/spec/run_spec.h"
#include "client/terminal/console.h"
#include "client/terminal/shown_name.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

// Writes the schema where editors find it without a network, and returns its path.
absl::StatusOr<std::string> WriteSchema(const ClientPaths& paths) {
  RETURN_IF_ERROR(MakeDirectories(paths.state_dir));
  std::error_code error;
  const std::string dir = std::filesystem::absolute(paths.state_dir, error).string();
  std::string path = JoinPath(error ? paths.state_dir : dir, "run.schema.json");
  RETURN_IF_ERROR(WriteFileAtomic(path, absl::StrCat(RunFileSchema().dump(2), "\n"), 0644));
  return path;
}

absl::Status Exists(const std::string& path) {
  return WithExitCode(WithHint(absl::AlreadyExistsError(absl::StrCat("init: ", path, " is there")),
                               "--force replaces it"),
                      kExitUsage);
}

// Writes the file. Replaces nothing unless `force`.
absl::Status WriteRunFile(const std::string& path, const std::string& text, bool force) {
  if (force) return WriteFileAtomic(path, text, 0644);
  const std::string whole = absl::StrCat(path, ".gpuctl-", getpid());
  RETURN_IF_ERROR(WriteFileAtomic(whole, text, 0644));
  // Unlike a rename, a link replaces nothing.
  const int failed = link(whole.c_str(), path.c_str()) == 0 ? 0 : errno;
  file_ops::Unlink(whole);
  if (failed == EEXIST) return Exists(path);
  if (failed == 0) return absl::OkStatus();
  // File systems without hard links.
  if (failed != EPERM && failed != ENOTSUP && failed != ENOSYS) {
    return absl::UnavailableError(absl::StrCat("write ", path, ": ", strerror(failed)));
  }
  return WriteFileAtomic(path, text, 0644);
}

}  // namespace

absl::StatusOr<int> CmdInit(CommandContext& context, std::vector<std::string> args) {
  std::string dir = ".";
  bool force = false;
  VerbParser parser(
      context, "init [DIR] [FLAGS]",
      "Writes run.yaml into DIR, by looking at what is there: the script that trains, its\n"
      "environment (uv, requirements, conda, poetry), how it is started and where it\n"
      "saves. Says what it guessed, and from what. Editors check the file as you type.",
      "  gpuctl init\n"
      "  gpuctl launch run.yaml --dry-run");
  parser.Option("DIR", dir, "Directory to look at (default .)");
  parser.Switch("--force", force, "Replace a run.yaml that is there");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  if (!IsDirectory(dir)) {
    return UsageError(absl::StrCat("init: ", dir, " is no directory"), "gpuctl init DIR");
  }
  const std::string path = dir == "." ? "run.yaml" : JoinPath(dir, "run.yaml");
  // Also a link that leads nowhere.
  std::error_code error;
  const bool there =
      std::filesystem::symlink_status(path, error).type() != std::filesystem::file_type::not_found;
  if (there && !force) return Exists(path);
  const std::string whole = std::filesystem::canonical(dir, error).string();
  ASSIGN_OR_RETURN(const GuessedRun run, GuessRun(error ? dir : whole));
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const std::string schema, WriteSchema(paths));
  const std::string text = FormatRunFile(run, schema);
  const absl::StatusOr<RunSpec> spec = ParseRunSpec(text, path);
  if (!spec.ok()) return absl::InternalError(spec.status().message());
  RETURN_IF_ERROR(WriteRunFile(path, text, force));
  for (const Guess& guess : run.guesses) {
    context.Say(absl::StrCat(guess.field, ": ", absl::StrReplaceAll(guess.value, {{"\n", "; "}}),
                             " (", guess.why, ")"));
  }
  if (run.run.empty()) context.Warn("found no script that trains: write the command behind run:");
  if (run.checkpoints.empty() && !run.run.empty()) {
    context.Warn("checkpoints: not found; see the comment in the file");
  }
  if (context.json()) {
    nlohmann::ordered_json guesses = nlohmann::ordered_json::array();
    for (const Guess& guess : run.guesses) {
      guesses.push_back({{"field", guess.field}, {"value", guess.value}, {"why", guess.why}});
    }
    context.PrintJson({{"path", path}, {"schema", schema}, {"guesses", guesses}});
  } else {
    context.PrintLine(path);
    context.Hint(
        absl::StrCat("gpuctl launch --dry-run ", TypedName(path, "run.yaml"), " shows the plan"));
  }
  return kExitOk;
}

}  // namespace gpuctl
