#include "client/runs/given_up.h"

#include "client/runs/run_end.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

std::string MarkOf(const std::string& run_dir) { return JoinPath(run_dir, "given-up"); }

}  // namespace

bool IsGivenUp(const std::string& run_dir) { return PathExists(MarkOf(run_dir)); }

absl::Status GiveUpIfTakenAway(const std::string& run_dir, const RunRow& row) {
  if (!row.end.has_value() || !IsPreempted(*row.end) || IsGivenUp(run_dir)) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(MakeDirectories(run_dir));
  return WriteFileAtomic(MarkOf(run_dir), "");
}

}  // namespace gpuctl
