// Finds the git repository of a directory. Reads files only; client/ignore/ask_git.h runs git
// itself.
#ifndef GPUCTL_CLIENT_IGNORE_GIT_REPOSITORY_H_
#define GPUCTL_CLIENT_IGNORE_GIT_REPOSITORY_H_

#include <optional>
#include <string>

namespace gpuctl {

struct GitRepository {
  std::string root;        // the directory that contains .git
  std::string git_dir;     // that .git, or its target when it is a file
  std::string common_dir;  // the same; for a linked worktree, that of the main one
  std::string InfoExclude() const;
};

// Returns the repository that `directory` (absolute, symlinks resolved) belongs to, if any.
// Searches upwards on the same file system and skips a .git that is no repository.
std::optional<GitRepository> FindGitRepository(const std::string& directory);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_IGNORE_GIT_REPOSITORY_H_
