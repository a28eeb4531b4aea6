#include "client/follow/cluster_end.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"
#include "client/cluster/allocation.h"
#include "client/keys/market_access.h"
#include "client/market/holdings.h"
#include "common/base/status_macros.h"
#include "common/job/lifecycle.h"
#include "common/release/release_route.h"
#include "provisioning/market/provider.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

// The time that an allocation may need from its jobs' end to its own. It is longer where much is
// copied to a shared file system; then the end has no more than the holder's word.
constexpr absl::Duration kOverWithin = absl::Seconds(30);
constexpr absl::Duration kAskEvery = absl::Seconds(1);
constexpr int kKilled = 137;

bool IsWord(absl::string_view words, absl::string_view word) {
  return absl::ConsumePrefix(&words, word) && (words.empty() || words[0] == ' ');
}

// True for an end that is the allocation's: its holder, or Slurm itself, told the job.
bool IsOfAllocation(const RunEnd& end) {
  return end.reason == kAllocationEndsReason || end.reason == kShutdownReason;
}

// True where another part of the run ended first. Its node may be gone, and the allocation with it.
bool IsOfGang(const RunEnd& end) { return absl::StartsWith(end.reason, kGangPrefix); }

// True where the batch script came to its own end: nobody ended the allocation.
bool EndedByItself(absl::string_view words) {
  return IsWord(words, "COMPLETED") || IsWord(words, "FAILED");
}

// Returns the scheduler's words about the end of an allocation; "" while it goes on, and when
// nobody knows.
absl::StatusOr<std::string> AskWords(Provider& provider, const std::string& job) {
  const absl::Status answer = provider.Describe(job).status();
  if (absl::IsNotFound(answer)) return WordsOfGone(answer);
  RETURN_IF_ERROR(answer);
  return std::string();
}

}  // namespace

RunEnd EndByWords(absl::string_view words, RunEnd before) {
  if (words.empty()) return before;
  const bool taken_back = IsWord(words, kNotStartedAgainWords);
  const bool lost = before.state == gpuctl::v1::JOB_STATE_LOST;
  // Slurm knows nothing of why the run ended: the allocation went on without it for a moment.
  if (EndedByItself(words) && !IsOfAllocation(before) && !(lost && taken_back)) return before;
  RunEnd end = std::move(before);
  end.reason = absl::StrCat(kSlurmReason, words);
  for (const absl::string_view taken :
       {"PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "REVOKED", kNotStartedAgainWords}) {
    if (!IsWord(words, taken)) continue;
    end.state = gpuctl::v1::JOB_STATE_LOST;
    end.cause = EndCause::kPreempted;
    end.exit_code = kExitLost;
    end.source = EndSource::kGpuctl;
    return end;
  }
  if (IsWord(words, "TIMEOUT") || IsWord(words, "DEADLINE")) {
    end.cause = EndCause::kLimit;
    end.exit_code = kExitLimit;
    end.source = EndSource::kGpuctl;
  } else if (IsWord(words, "CANCELLED") || IsWord(words, "COMPLETED")) {
    // Somebody ended the allocation, by scancel or by a signal to its batch script, which then
    // ended the job.
    end.cause = EndCause::kUser;
  } else {
    end.cause = EndCause::kNone;
  }
  return end;
}

bool MayBeOfAllocation(const RunEnd& end) {
  // Slurm knows how the allocation ended, and not why the run did not go on.
  if (absl::StartsWith(end.reason, kNotStarted)) return false;
  if (end.state == gpuctl::v1::JOB_STATE_LOST) return true;
  if (end.state != gpuctl::v1::JOB_STATE_FINISHED) return false;
  return IsOfAllocation(end) || IsOfGang(end) || (end.job_code == kKilled && end.reason.empty());
}

RunEnd WithWordOfCluster(CommandContext& context, const RunRow& row, RunEnd end) {
  const std::string job = InstanceIdOf(row.target);
  if (row.target.provider != kClusterProvider || !MayBeOfAllocation(end) ||
      absl::StartsWith(end.reason, kSlurmReason)) {
    return end;
  }
  Holdings holdings(context);
  const absl::StatusOr<std::vector<Market>> markets =
      holdings.Open({std::string(kClusterProvider)});
  if (!markets.ok()) return end;
  Provider& provider = *markets->front().provider;
  // A job that was killed may be the only one that ends.
  const absl::Duration patience =
      context.clock.SinceBoot() + (IsOfAllocation(end) ? kOverWithin : absl::ZeroDuration());
  for (;;) {
    const absl::StatusOr<std::string> words = AskWords(provider, job);
    if (words.ok() && !words->empty()) return EndByWords(*words, std::move(end));
    if (context.clock.SinceBoot() >= patience) return end;
    context.clock.SleepFor(kAskEvery);
  }
}

}  // namespace gpuctl
