#include "client/keep/keep_plan.h"

#include "client/runs/run_end.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kPullWithin = absl::Minutes(30);
constexpr absl::Duration kResumeWithin = absl::Hours(1);
constexpr absl::Duration kEndDiskWithin = absl::Minutes(10);
constexpr absl::Duration kAnswerPriceWithin = absl::Minutes(2);
// A job saves for its grace first.
constexpr absl::Duration kStopSlack = absl::Minutes(5);

bool IsToResume(const KeptRun& run, int64_t now_ms) {
  const RunRow& row = run.row;
  return row.end.has_value() && IsPreempted(*row.end) && ResumesWhenPreempted(run.record.spec) &&
         !run.goes_on && run.attempts <= run.record.spec.max_retries &&
         now_ms - row.end->ended_ms >=
             absl::ToInt64Milliseconds(kLaunchGoesFirst + run.record.spec.retry_backoff);
}

bool IsToPull(const KeptRun& run, int64_t now_ms) {
  const RunRow& row = run.row;
  if (run.record.pull_dir.empty() || row.accepted_ms == 0 || run.machine_gone || run.home) {
    return false;
  }
  return !row.end.has_value() ||
         now_ms - row.end->ended_ms < absl::ToInt64Milliseconds(kFetchWithin);
}

}  // namespace

std::vector<KeepDeed> DeedsFor(const KeptRun& run, int64_t now_ms) {
  std::vector<KeepDeed> deeds;
  const RunRow& row = run.row;
  const std::string& rule = run.record.spec.on_price_rise;
  if (run.rise_waits && !row.end.has_value()) {
    if (rule == "accept") {
      deeds.push_back(
          {"accept-price", {"price", row.run_id, "--accept", "-y"}, kAnswerPriceWithin});
    } else if (rule == "refuse") {
      deeds.push_back(
          {"refuse-price", {"price", row.run_id, "--refuse", "-y"}, kAnswerPriceWithin});
    } else if (rule == "stop") {
      deeds.push_back({"stop", {"stop", row.run_id}, run.record.spec.grace + kStopSlack});
    }
  }
  if (IsToResume(run, now_ms)) {
    // The disk that a market keeps of a machine that it took away would bill beside the new one.
    // Its checkpoints were brought home while it ran, as a launch that shows the run does.
    if (!run.machine_gone) {
      deeds.push_back({"end-disk", {"down", row.run_id, "-y", "--force"}, kEndDiskWithin});
    }
    deeds.push_back({"resume", {"resume", row.run_id, "-d", "-y", "--anew"}, kResumeWithin});
  } else if (IsToPull(run, now_ms)) {
    deeds.push_back({"pull",
                     {"pull", row.run_id, "--to", JoinPath(run.record.pull_dir, row.name)},
                     kPullWithin});
  }
  return deeds;
}

}  // namespace gpuctl
