// The work directory that goes with a run.
#ifndef GPUCTL_CLIENT_WORKDIR_WORKDIR_H_
#define GPUCTL_CLIENT_WORKDIR_WORKDIR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/ignore/ignore_rules.h"
#include "client/runs/context.h"
#include "client/workdir/work_size.h"
#include "common/tree/manifest.h"

namespace gpuctl {

struct WorkdirOptions {
  bool allow_large = false;            // above the limits of client/workdir/work_size.h
  std::vector<std::string> include;    // paths below it that are sent whatever the rules say
  std::vector<std::string> leave_out;  // paths below it that are not sent, nor what is below them
  // For one that is looked at again and again: what was last said of it, which is not said again
  // before it is something else. Null: everything is said.
  std::string* told = nullptr;
};

struct Workdir {
  std::string path;  // absolute
  Manifest manifest;
  std::string digest;
  int64_t files = 0;
  int64_t bytes = 0;
  std::vector<std::string> skipped;  // sockets, devices and the like
};

// The directory's absolute path with symlinks resolved; a usage error when there is none.
absl::StatusOr<std::string> ResolveWorkdir(const std::string& path);
// The rules of a resolved work directory; a usage error for `include` that cannot hold.
absl::StatusOr<IgnoreRules> LoadWorkdirRules(const std::string& root,
                                             const std::vector<std::string>& include);
// Says on stderr which rules cannot be read, and what is held back because it looks like a secret.
void PrintWorkdirRemarks(const CommandContext& context, const std::vector<std::string>& notes,
                         const std::vector<std::string>& held_back);

// Scans what client/ignore/ignore_rules.h says is sent. Unchanged files are not read again. Prints
// the remarks, and for more than the limits where the bulk lies. FAILED_PRECONDITION with the same
// for more than the limits unless `allow_large`.
absl::StatusOr<Workdir> ScanWorkdir(CommandContext& context, const std::string& path,
                                    const WorkdirOptions& options);

// What ScanWorkdir would find, without reading a file.
struct WorkdirListing {
  struct File {
    std::string path;
    int64_t bytes = 0;  // 0 for a symlink
    bool is_symlink = false;
  };
  std::string path;         // absolute
  std::vector<File> files;  // by path
  WorkSize size;            // symlinks do not count
  int64_t left_out = 0;     // files and directories that rules keep home; one that counts is not
                            // looked into
  std::vector<std::string> held_back;  // what looks like a secret
  std::vector<std::string> notes;      // rule files that cannot be read
};
absl::StatusOr<WorkdirListing> ListWorkdir(const std::string& path,
                                           const std::vector<std::string>& include);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_WORKDIR_WORKDIR_H_
