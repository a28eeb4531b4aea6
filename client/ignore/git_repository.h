// The little of git that decides which ignore rules hold: where the repository is, and two of its
// settings. Reads files only, git itself is not run: client/ignore/ask_git.h does that.
#ifndef GPUCTL_CLIENT_IGNORE_GIT_REPOSITORY_H_
#define GPUCTL_CLIENT_IGNORE_GIT_REPOSITORY_H_

#include <optional>
#include <string>

namespace gpuctl {

struct GitRepository {
  std::string root;        // the directory that has .git in it
  std::string git_dir;     // that .git, or where it points to when it is a file
  std::string common_dir;  // the same, but for linked worktrees that of the main one
  std::string InfoExclude() const;
};

// The repository that `directory` (absolute, symlinks resolved) belongs to, found upwards on the
// same file system; none when there is none. Something called .git that is no repository is passed
// over.
std::optional<GitRepository> FindGitRepository(const std::string& directory);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_IGNORE_GIT_REPOSITORY_H_
