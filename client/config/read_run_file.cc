#include "client/config/read_run_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/terminal/shown_name.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr int64_t kMaxRunFileBytes = 1 << 20;

// Refuses what has no end or would wait for a writer. A shell's <(...) is a pipe below /dev/fd.
absl::Status CheckRunFileKind(const std::string& path) {
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
                    "name a YAML file, or give a command: gpuctl launch -- CMD");
}

// Refuses what is to be run itself.
absl::Status CheckNoScript(const std::string& path, absl::string_view text) {
  const bool python = absl::EndsWith(path, ".py"), shell = absl::EndsWith(path, ".sh");
  const bool notebook = absl::EndsWith(path, ".ipynb");
  if (!python && !shell && !notebook && !absl::StartsWith(text, "#!")) return absl::OkStatus();
  const std::string name = TypedName(path, "FILE");
  return UsageError(
      absl::StrCat(path, notebook ? " is a notebook" : " is a script", ", no run file"),
      absl::StrCat("to run it write: gpuctl launch -- ",
                   python     ? "python3 "
                   : notebook ? "jupyter execute "
                              : "bash ",
                   name));
}

}  // namespace

absl::StatusOr<RunSpec> ReadRunFile(const std::string& path) {
  RETURN_IF_ERROR(CheckRunFileKind(path));
  absl::StatusOr<std::string> text = ReadFileToString(path, kMaxRunFileBytes);
  if (absl::IsNotFound(text.status())) {
    const bool file_like = absl::EndsWith(path, ".yaml") || absl::EndsWith(path, ".yml");
    return UsageError(absl::StrCat("read the run file ", path, ": no such file"),
                      file_like ? "name an existing file, or give a command: gpuctl launch -- CMD"
                                : absl::StrCat("to run a command write: gpuctl launch -- ",
                                               TypedName(path, "CMD")));
  }
  if (!text.ok()) return WithExitCode(Annotate(text.status(), "read the run file"), kExitUsage);
  RETURN_IF_ERROR(CheckNoScript(path, *text));
  absl::StatusOr<RunSpec> spec = ParseRunSpec(*text, path);
  if (!spec.ok()) return WithHint(spec.status(), absl::StrCat("correct ", path, " there"));
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
    context.Say(
        absl::StrCat(setting.where, ": ", setting.key.key, " does not count: ", setting.ignored));
  }
  return settings;
}

}  // namespace gpuctl
