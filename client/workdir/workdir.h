// Scans the work directory of a run.
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
  bool allow_large = false;          // accept sizes above the limits of client/workdir/work_size.h
  bool read_all = false;             // read unchanged files, too: their times may not tell a change
  std::vector<std::string> include;  // paths below it that are sent in spite of the rules
  std::vector<std::string> leave_out;  // paths below it that, with their contents, are not sent
  bool leave_changed = false;          // a file that changes meanwhile is left out, not an error
  // The last printed remarks, for a directory that is scanned repeatedly: the same remarks are not
  // printed again. Null: always print.
  std::string* told = nullptr;
};

struct Workdir {
  std::string path;  // absolute
  Manifest manifest;
  std::string digest;
  int64_t files = 0;
  int64_t bytes = 0;
  std::vector<std::string> skipped;  // sockets, devices and the like
  std::vector<std::string> grown;    // files that grew meanwhile; their beginnings are sent
  std::vector<std::string> changed;  // with leave_changed: files that changed, and are not sent
};

// Returns the directory's absolute path with symlinks resolved; a usage error when there is none.
absl::StatusOr<std::string> ResolveWorkdir(const std::string& path);
// Returns the rules of a resolved work directory; a usage error for an invalid `include`.
absl::StatusOr<IgnoreRules> LoadWorkdirRules(const std::string& root,
                                             const std::vector<std::string>& include);
// Prints on stderr which rules cannot be read, and which files stay home because they look like
// secrets.
void PrintWorkdirRemarks(const CommandContext& context, const std::vector<std::string>& notes,
                         const std::vector<std::string>& held_back);

// Scans the files that client/ignore/ignore_rules.h sends. Does not read unchanged files again.
// Prints the remarks and, above the limits, the largest places. Above the limits
// FAILED_PRECONDITION names these places, unless `allow_large`.
absl::StatusOr<Workdir> ScanWorkdir(CommandContext& context, const std::string& path,
                                    const WorkdirOptions& options);

// The result of ScanWorkdir without reading a file.
struct WorkdirListing {
  struct File {
    std::string path;
    int64_t bytes = 0;  // 0 for a symlink
    bool is_symlink = false;
  };
  std::string path;         // absolute
  std::vector<File> files;  // by path
  WorkSize size;            // symlinks do not count
  int64_t left_out = 0;     // files and directories that rules keep home; a counted directory is
                            // not searched
  std::vector<std::string> held_back;  // files that look like secrets
  std::vector<std::string> notes;      // rule files that cannot be read
};
absl::StatusOr<WorkdirListing> ListWorkdir(const std::string& path,
                                           const std::vector<std::string>& include);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_WORKDIR_WORKDIR_H_
