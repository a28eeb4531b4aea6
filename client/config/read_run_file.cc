#include "client/config/read_run_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"
#include "client/terminal/shown_name.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr int64_t kMaxRunFileBytes = 1 << 20;

// Refuses what has no end or would wait for a writer. A shell's <(...) is a pipe below /dev/fd.
absl::Status CheckRunFileKind(const std::string& path, const std::string& verb) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode)) return absl::OkStatus();
  if (!S_ISDIR(info.st_mode) &&
      (absl::StartsWith(path, "/dev/fd/") || absl::StartsWith(path, "/proc/self/fd/") ||
       path == "/dev/stdin")) {
    return absl::OkStatus();
  }
  return UsageError(absl::StrCat("read the run file ", path, ": it is ",
                                 S_ISDIR(info.st_mode)    ? "a directory"
                                 : S_ISFIFO(info.st_mode) ? "a FIFO"
                                 : S_ISSOCK(info.st_mode) ? "a socket"
                                                          : "a device",
                                 ", no file"),
                    absl::StrCat("name a YAML file, or give a command: gpuctl ", verb, " -- CMD"));
}

bool IsNamedAsRunFile(const std::string& path) {
  return absl::EndsWith(path, ".yaml") || absl::EndsWith(path, ".yml");
}

// Returns how to correct a file that was taken for a run file and is none.
std::string HowToCorrect(const std::string& path) {
  if (IsNamedAsRunFile(path)) return absl::StrCat("correct ", path, " there");
  return absl::StrCat("was ", path,
                      " meant to be a run file? A pattern needs quotes, as in --checkpoints "
                      "'*.pt': else the shell puts the names of files in its place");
}

// Refuses what is to be run itself.
absl::Status CheckNoScript(const std::string& path, const std::string& verb,
                           absl::string_view text) {
  const bool python = absl::EndsWith(path, ".py"), shell = absl::EndsWith(path, ".sh");
  const bool notebook = absl::EndsWith(path, ".ipynb");
  if (!python && !shell && !notebook && !absl::StartsWith(text, "#!")) return absl::OkStatus();
  const std::string name = TypedName(path, "FILE");
  if (notebook) {
    const absl::string_view stem = absl::StripSuffix(path, ".ipynb");
    const std::string script = TypedName(absl::StrCat(stem, ".py"), "FILE.py");
    return UsageError(absl::StrCat(path, " is a notebook, no run file"),
                      absl::StrCat("jupyter nbconvert --to script ", name,
                                   " makes a script of its cells; then write: gpuctl ", verb,
                                   " -- python3 ", script));
  }
  return UsageError(
      absl::StrCat(path, " is a script, no run file"),
      absl::StrCat("to run it write: gpuctl ", verb, " -- ", python ? "python3 " : "bash ", name));
}

}  // namespace

absl::StatusOr<RunSpec> ReadRunFile(const std::string& path, const std::string& verb) {
  RETURN_IF_ERROR(CheckRunFileKind(path, verb));
  absl::StatusOr<std::string> text = ReadFileToString(path, kMaxRunFileBytes);
  if (absl::IsNotFound(text.status())) {
    return UsageError(
        absl::StrCat("read the run file ", path, ": no such file"),
        IsNamedAsRunFile(path)
            ? absl::StrCat("name an existing file, or give a command: gpuctl ", verb, " -- CMD")
            : absl::StrCat("to run a command write: gpuctl ", verb, " -- ",
                           TypedName(path, "CMD")));
  }
  if (!text.ok()) {
    const absl::Status status =
        WithExitCode(Annotate(text.status(), "read the run file"), kExitUsage);
    return IsNamedAsRunFile(path) ? status : WithHint(status, HowToCorrect(path));
  }
  RETURN_IF_ERROR(CheckNoScript(path, verb, *text));
  absl::StatusOr<RunSpec> spec = ParseRunSpec(*text, path);
  if (!spec.ok()) return WithHint(spec.status(), HowToCorrect(path));
  if (!absl::StartsWith(spec->workdir, "/")) spec->workdir = JoinPath(DirName(path), spec->workdir);
  return spec;
}

absl::StatusOr<Settings> ReadSettings(CommandContext& context, const std::string& work) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  std::error_code error;
  const std::filesystem::path whole =
      std::filesystem::weakly_canonical(work.empty() ? "." : work, error);
  ASSIGN_OR_RETURN(Settings settings,
                   Settings::Read(paths.config_dir, error ? work : whole.string()));
  for (const Setting& setting : settings.ignored()) {
    context.Warn(
        absl::StrCat(setting.where, ": ", setting.key.key, " does not count: ", setting.ignored));
  }
  return settings;
}

}  // namespace gpuctl
