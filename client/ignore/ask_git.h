// git's settings as git itself tells them, where there is a git to ask.
#ifndef GPUCTL_CLIENT_IGNORE_ASK_GIT_H_
#define GPUCTL_CLIENT_IGNORE_ASK_GIT_H_

#include <optional>
#include <string>

#include "client/ignore/git_config.h"
#include "client/ignore/git_repository.h"

namespace gpuctl {

// The settings that hold in `directory` (absolute), which is in `repository` if that is there: what
// `environment.git` says, with all that it reads and hears (every kind of includeIf, system files
// in places of its own, GIT_CONFIG_COUNT, GIT_DIR, `git -c`). It is run at most once, and only
// where there is a repository or a configuration. What ReadGitConfig says holds where git is not
// there, fails, has not answered within `environment.git_limit`, or does not accept the repository:
// when it belongs to somebody else, say.
GitConfig GitConfigFor(const GitEnvironment& environment,
                       const std::optional<GitRepository>& repository,
                       const std::string& directory);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_IGNORE_ASK_GIT_H_
