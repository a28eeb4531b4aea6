// git's settings, read by git itself where a git program exists.
#ifndef GPUCTL_CLIENT_IGNORE_ASK_GIT_H_
#define GPUCTL_CLIENT_IGNORE_ASK_GIT_H_

#include <optional>
#include <string>

#include "client/ignore/git_config.h"
#include "client/ignore/git_repository.h"

namespace gpuctl {

// Returns the settings that hold in `directory` (absolute), which lies in `repository` if there is
// one. Asks `environment.git`, which considers every kind of includeIf, system files in its own
// places, GIT_CONFIG_COUNT, GIT_DIR and `git -c`. Runs git at most once, and only when there is a
// repository or a configuration. Returns ReadGitConfig's result when git is missing, fails, does
// not answer within `environment.git_limit`, or does not accept the repository (for example because
// it belongs to somebody else).
GitConfig GitConfigFor(const GitEnvironment& environment,
                       const std::optional<GitRepository>& repository,
                       const std::string& directory);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_IGNORE_ASK_GIT_H_
