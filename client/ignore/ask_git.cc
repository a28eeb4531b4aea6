#include "client/ignore/ask_git.h"

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/base/run_program.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

// The third setting is in the configuration of every repository that git made, and nowhere else. It
// shows that git accepts the repository: git silently skips one that it does not accept.
constexpr char kSettings[] = "^core\\.(excludesfile|ignorecase|repositoryformatversion)$";

bool IsConfigured(const GitEnvironment& environment) {
  if (environment.says_settings || PathExists(environment.system_config)) return true;
  if (environment.global_config.has_value()) return PathExists(*environment.global_config);
  return PathExists(environment.UserFile("config")) ||
         (!environment.home.empty() && PathExists(JoinPath(environment.home, ".gitconfig")));
}

// Parses one "NAME\nVALUE\0" per assignment, without "\nVALUE" when there is no value. The last
// assignment of a name holds.
std::optional<GitConfig> ParseAnswer(const GitEnvironment& environment, absl::string_view answer,
                                     bool in_repository, const std::string& directory) {
  std::optional<std::string> excludes_file;
  GitConfig config;
  // Every repository has its format version. Outside of one, no answer may be that of another
  // program, and our own reader finds the same nothing.
  bool accepted = !in_repository && !answer.empty();
  for (const absl::string_view setting : absl::StrSplit(answer, '\0', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(setting, absl::MaxSplits('\n', 1));
    std::optional<std::string> value;
    if (parts.size() > 1) value = parts[1];
    if (parts[0] == "core.excludesfile") {
      excludes_file = value.value_or("");
    } else if (parts[0] == "core.ignorecase") {
      config.ignore_case = IsGitTrue(value);
    } else if (parts[0] == "core.repositoryformatversion") {
      accepted = true;
    } else {
      return std::nullopt;  // this program is not git
    }
  }
  if (!accepted) return std::nullopt;
  config.excludes_file = excludes_file.value_or(environment.UserFile("ignore"));
  if (!config.excludes_file.empty() && config.excludes_file[0] != '/') {
    config.excludes_file = JoinPath(directory, config.excludes_file);
  }
  return config;
}

std::optional<GitConfig> AskGit(const GitEnvironment& environment, bool in_repository,
                                const std::string& directory) {
  const absl::StatusOr<ProgramEnd> end =
      RunWithin(environment.git_limit,
                {environment.git, "-C", directory, "config", "--null", "--type=path",
                 "--get-regexp", kSettings},
                {"GIT_TERMINAL_PROMPT=0"});
  // 1 means that none of them is set.
  if (!end.ok() || end->exit_code > 1) return std::nullopt;
  return ParseAnswer(environment, end->output, in_repository, directory);
}

}  // namespace

GitConfig GitConfigFor(const GitEnvironment& environment,
                       const std::optional<GitRepository>& repository,
                       const std::string& directory) {
  const bool worth_asking = repository.has_value() || IsConfigured(environment);
  if (!environment.git.empty() && worth_asking) {
    // git runs at the repository's root: a relative core.excludesFile begins there, and a relative
    // GIT_DIR=.git, as hooks have it, is found from there.
    std::optional<GitConfig> told = AskGit(environment, repository.has_value(),
                                           repository.has_value() ? repository->root : directory);
    if (told.has_value()) return *std::move(told);
  }
  return ReadGitConfig(environment, repository);
}

}  // namespace gpuctl
