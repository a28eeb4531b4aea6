// Reads what git says of a work directory: the commit, and the changes since.
#ifndef GPUCTL_CLIENT_WORKDIR_GIT_SOURCE_H_
#define GPUCTL_CLIENT_WORKDIR_GIT_SOURCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/ignore/git_config.h"
#include "client/runs/source_record.h"

namespace gpuctl {

// The most bytes of a diff that are kept, and of a new file in it.
constexpr int64_t kMostDiffBytes = 1 << 20;
constexpr int64_t kMostNewFileBytes = 128 << 10;

struct SourceQuestion {
  std::string root;                    // the work directory, as ResolveWorkdir returns it
  std::vector<std::string> include;    // as in WorkdirOptions
  std::vector<std::string> leave_out;  // the same
};

struct Source {
  SourceRecord record;
  // `git apply` in the repository's root takes it, unless it is cut or names binary files. New
  // files are in it, too. Files that stay on this laptop, or look like secrets, are not.
  std::string diff;
};

// Asks git, which may take ten seconds for each of three questions and changes nothing. Never
// fails: the record says what could not be found out.
Source ReadSource(const GitEnvironment& environment, const SourceQuestion& question);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_WORKDIR_GIT_SOURCE_H_
