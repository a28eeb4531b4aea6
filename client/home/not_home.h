// Finds a run's results that are on its node but not at home: removing them there would lose them.
#ifndef GPUCTL_CLIENT_HOME_NOT_HOME_H_
#define GPUCTL_CLIENT_HOME_NOT_HOME_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/runs/pulled_record.h"
#include "client/runs/run_store.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// A result that is on the node and not here.
struct NotHome {
  enum class Kind { kCheckpoint, kFile };
  Kind kind = Kind::kFile;
  std::string path;  // relative to the job's directory on the node
  int64_t bytes = 0;
  bool newest = false;  // the newest checkpoint of all
};

struct Missing {
  std::vector<NotHome> items;  // the named ones
  int64_t checkpoints = 0;     // of all, named or not
  int64_t files = 0;
  int64_t bytes = 0;
  bool empty() const { return checkpoints + files == 0; }
};

// Returns the patterns of the run's results: checkpoints and artifacts.
std::vector<std::string> ResultPatterns(const RunRow& row);

// True when the path, relative to the job's directory, is the checkpoint's or below it.
bool IsPartOf(absl::string_view path, const gpuctl::v1::CheckpointInfo& checkpoint);

// Compares the node's lists with pull's record. A checkpoint is home when the node's current
// content was downloaded and is unchanged here, also as files by a pattern after `ended_ms`, or
// when pull's own --keep removed it here. A file is home when it was downloaded after `ended_ms`,
// when the job was known to be over, with its current size, and is unchanged here. `left` is the
// reply to a RemoveJob with dry_run, `listed` that to a ListArtifacts of all checkpoints. Pure but
// for looks at the files.
Missing FindMissing(const gpuctl::v1::RemoveJobReply& left,
                    const gpuctl::v1::ListArtifactsReply& listed, const PulledRecord::All& pulled,
                    int64_t ended_ms);

// Returns the part of `missing` that the user surely wants: the newest checkpoint, the files beside
// checkpoints, and the files that the run names as its results or checkpoints, whole or not. Older
// checkpoints, and whatever else a job wrote, are no reason to let a machine bill.
Missing SurelyWanted(const Missing& missing, const RunRow& row);

// Returns "2 checkpoints and 3 files (1.20 GB): ckpt/step-00000002, work/a, …". `missing` must not
// be empty.
std::string DescribeMissing(const Missing& missing);

// Returns what of `missing` is not in `wanted`, which SurelyWanted made of it: "3 older checkpoints
// and 1 other file (3.60 GB): work/log"; "" when there is nothing else.
std::string DescribeOthers(const Missing& missing, const Missing& wanted);

// Returns the commands that bring `missing` home, for a hint: pull alone brings only the newest
// checkpoint.
std::string HowToBring(const std::string& run_name, const Missing& missing);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_HOME_NOT_HOME_H_
