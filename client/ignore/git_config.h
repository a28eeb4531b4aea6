// Reads, without git, the two settings of git's configuration that say which files are ignored.
#ifndef GPUCTL_CLIENT_IGNORE_GIT_CONFIG_H_
#define GPUCTL_CLIENT_IGNORE_GIT_CONFIG_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/ignore/git_repository.h"

namespace gpuctl {

// The inputs of git from the process's environment.
struct GitEnvironment {
  std::string home;             // $HOME; "" without one
  std::string xdg_config_home;  // $XDG_CONFIG_HOME; "": ~/.config
  std::string system_config;    // /etc/gitconfig, $GIT_CONFIG_SYSTEM; "": none
  std::optional<std::string>
      global_config{};  // $GIT_CONFIG_GLOBAL, instead of the user's two files
  // True when other variables hold settings or say where settings are; only git itself can read
  // these.
  bool says_settings = false;

  std::string git;                              // the program to ask; "": none
  absl::Duration git_limit = absl::Seconds(2);  // how long that program may take

  static GitEnvironment FromProcess();
  // Returns the path of a file below git's directory of user configuration; "" when there is no
  // home.
  std::string UserFile(const std::string& name) const;
};

struct GitConfig {
  std::string excludes_file;  // core.excludesFile, expanded; else the default; "": none
  bool ignore_case = false;   // core.ignoreCase
  // Files that cannot be read or parsed, and why. The settings before the error hold; git itself
  // would refuse to work.
  std::vector<std::string> notes;
};

// True when git reads the value as true; a setting without a value is true.
bool IsGitTrue(const std::optional<std::string>& value);

// Reads the system's, the user's and the repository's configuration, in this order; the last
// assignment wins. Follows include.path and includeIf "gitdir:…" and "gitdir/i:…"; other conditions
// are taken as not met, and "~name/" is not expanded. A relative core.excludesFile is relative to
// the repository's root.
GitConfig ReadGitConfig(const GitEnvironment& environment,
                        const std::optional<GitRepository>& repository);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_IGNORE_GIT_CONFIG_H_
