// The `data:` of a run file: trees beside the work directory, sent once for all runs of a node.
#ifndef GPUCTL_CLIENT_WORKDIR_DATA_TREES_H_
#define GPUCTL_CLIENT_WORKDIR_DATA_TREES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/runs/context.h"
#include "client/spec/run_spec.h"
#include "common/tree/manifest.h"
#include "gpuctl/v1/run.pb.h"

namespace gpuctl {

struct DataTree {
  std::string source;  // absolute, on the laptop
  std::string origin;  // the directory that the user named, where `source` is only above all files
  // The path of each entry below `source`; empty when the tree has the same paths.
  std::vector<std::string> sources;
  std::string path;   // below the job's work directory
  Manifest manifest;  // files without the permission to write
  std::string digest;

  const std::string& place() const { return origin.empty() ? source : origin; }
};

// A file of a tree whose files lie in different places.
struct GatheredFile {
  std::string path;    // in the tree
  std::string source;  // absolute, on this machine, no symlink
};
enum class FileModes { kExecutable, kReadable };

// Scans every tree of the spec: ignore rules do not apply to data, but files that look like secrets
// stay home, and are named on stderr. Does not read unchanged files again. Usage errors name the
// entry.
absl::StatusOr<std::vector<DataTree>> ScanDataTrees(CommandContext& context, const RunSpec& spec);

// Scan one tree that goes to `path` below the work directory, or one file as its own tree. With
// `held_back` the tree's files that look like secrets by their names are left out, and named there.
absl::StatusOr<DataTree> ScanDataTree(CommandContext& context, const std::string& local,
                                      const std::string& path,
                                      std::vector<std::string>* held_back = nullptr);
absl::StatusOr<DataTree> ScanDataFile(const std::string& local, const std::string& path);

// Scans `files`, which are sorted by PathLess, as a tree that goes to `path`. None may be written
// there. `cache` names the hashes of unchanged files. ABORTED when a file is changed or removed
// meanwhile.
absl::StatusOr<DataTree> ScanGatheredFiles(CommandContext& context,
                                           const std::vector<GatheredFile>& files,
                                           const std::string& path, const std::string& cache,
                                           FileModes modes);

// Returns the paths of the work directory at `workdir` that must not be sent, because data lies or
// goes there.
std::vector<std::string> PathsOfData(const std::vector<DataTree>& trees,
                                     const std::string& workdir);
// Returns the same for a job that was started.
std::vector<std::string> PathsOfData(const gpuctl::v1::JobSpec& spec);

// Adds the trees to the spec.
void AddDataTrees(const std::vector<DataTree>& trees, const std::string& workdir,
                  gpuctl::v1::JobSpec& spec);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_WORKDIR_DATA_TREES_H_
