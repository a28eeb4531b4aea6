// The run file's `data:`: trees beside the work directory that are sent once for all runs of a
// node.
#ifndef GPUCTL_CLIENT_WORKDIR_DATA_TREES_H_
#define GPUCTL_CLIENT_WORKDIR_DATA_TREES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/runs/context.h"
#include "client/spec/run_spec.h"
#include "client/workdir/trainer_kit.h"
#include "common/tree/manifest.h"
#include "gpuctl/v1/run.pb.h"

namespace gpuctl {

struct DataTree {
  std::string source;  // absolute, on the laptop
  // Where each entry lies below `source`; empty when the tree is as it lies there.
  std::vector<std::string> sources;
  std::string path;   // below the job's work directory
  Manifest manifest;  // files without the permission to write
  std::string digest;
};

// Scans every tree of the spec, all of it: what is named as data is not ignored. Unchanged files
// are not read again. Usage errors name the entry.
absl::StatusOr<std::vector<DataTree>> ScanDataTrees(CommandContext& context, const RunSpec& spec);

// One tree that goes to `path` below the work directory; and one file, in a tree of its own.
absl::StatusOr<DataTree> ScanDataTree(CommandContext& context, const std::string& local,
                                      const std::string& path);
absl::StatusOr<DataTree> ScanDataFile(const std::string& local, const std::string& path);

// The built-in trainer as one more tree of the job's.
absl::StatusOr<DataTree> ScanTrainerKit(CommandContext& context, const TrainerKit& kit);

// What of the work directory at `workdir` is not to be sent because data is there, or goes there.
std::vector<std::string> PathsOfData(const std::vector<DataTree>& trees,
                                     const std::string& workdir);
// The same for a job that was started.
std::vector<std::string> PathsOfData(const gpuctl::v1::JobSpec& spec);

// Names the trees in the spec.
void AddDataTrees(const std::vector<DataTree>& trees, const std::string& workdir,
                  gpuctl::v1::JobSpec& spec);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_WORKDIR_DATA_TREES_H_
