// Whether all that a run left on its node is at home: what may be removed there without a loss.
#ifndef GPUCTL_CLIENT_RESULTS_NOT_HOME_H_
#define GPUCTL_CLIENT_RESULTS_NOT_HOME_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/results/pulled_record.h"
#include "client/runs/run_store.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// Something of a run that is on the node and not here.
struct NotHome {
  enum class Kind { kCheckpoint, kFile };
  Kind kind = Kind::kFile;
  std::string path;  // relative to the job's directory on the node
  int64_t bytes = 0;
};

struct Missing {
  std::vector<NotHome> items;  // those that are named
  int64_t checkpoints = 0;     // of all
  int64_t files = 0;
  int64_t bytes = 0;
  bool empty() const { return checkpoints + files == 0; }
};

// Compares what the node says with what pull has recorded. A checkpoint is home when it was brought
// as the node still has it, and is here untouched, or was removed here by pull's own --keep. A file
// is home when it was brought after `ended_ms`, when the job was known to be over, with the size it
// has, and is here untouched. `left` is the reply to a RemoveJob with dry_run, `listed` that to a
// ListArtifacts of all checkpoints. Pure, but for looks at the files.
Missing FindMissing(const gpuctl::v1::RemoveJobReply& left,
                    const gpuctl::v1::ListArtifactsReply& listed, const PulledRecord::All& pulled,
                    int64_t ended_ms);

// "2 checkpoints and 3 files (1.20 GB): ckpt/step-00000002, work/a, …". Not of nothing.
std::string DescribeMissing(const Missing& missing);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RESULTS_NOT_HOME_H_
