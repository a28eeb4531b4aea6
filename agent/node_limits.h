// The limits of a lease as the node keeps them, and what follows from them. Deciding is pure; what
// the facts are is looked up on disk, so that any process of the node comes to the same result.
#ifndef GPUCTL_AGENT_NODE_LIMITS_H_
#define GPUCTL_AGENT_NODE_LIMITS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/time_stamp.h"
#include "common/clock.h"
#include "common/job_layout.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// What a decision is made from.
struct NodeFacts {
  absl::Duration billed;      // since the limits were accepted, machine off or suspended included
  absl::Duration no_job;      // since a job last ran
  absl::Duration no_contact;  // since somebody was last here; zero while somebody is
  bool job_runs = false;      // or will, without a laptop
  bool results_home = true;
};

struct NodeAction {
  enum class Kind { kNone, kStopJobs, kRelease };
  Kind kind = Kind::kNone;
  std::string reason;  // "limit:cost", "limit:idle", "limit:salvage", "limit:lease"
  // Until it is due if everything stays as it is; zero or less: now.
  absl::Duration in = absl::InfiniteDuration();
};

// The first thing that the limits call for. kRelease also where the node cannot release itself.
NodeAction NextAction(const gpuctl::v1::NodeLimits& limits, const NodeFacts& facts);

// What the lease has cost after `billed` under these limits.
double SpentUsd(const gpuctl::v1::NodeLimits& limits, absl::Duration billed);

// limits.json.
struct StoredLimits {
  gpuctl::v1::NodeLimits limits;
  TimeStamp accepted;
};
// NOT_FOUND where there are none, DATA_LOSS when the file is not of that kind.
absl::StatusOr<StoredLimits> ReadNodeLimits(const RootPaths& paths);
// Stores `limits` unless newer ones are there, and claims the node. INVALID_ARGUMENT for what makes
// no sense.
absl::Status StoreNodeLimits(const RootPaths& paths, const gpuctl::v1::NodeLimits& limits,
                             const TimeStamp& now);

// home.json: what has been brought home, by job id.
std::map<std::string, gpuctl::v1::JobHome> ReadHome(const RootPaths& paths);
// Adds to it; nothing is taken back. One writer at a time.
absl::Status MarkHome(const RootPaths& paths, const gpuctl::v1::MarkHomeRequest& request);
// Whether all that the jobs `job_ids` left is at home.
bool ResultsHome(const RootPaths& paths, const gpuctl::v1::NodeLimits& limits,
                 const std::vector<std::string>& job_ids);

// clock.json: how far the durations of NodeFacts had come at a moment.
struct ClockNote {
  TimeStamp at;
  int64_t revision = 0;  // of the limits that `billed` counts from; 0: without limits
  absl::Duration billed;
  absl::Duration no_job;
  absl::Duration no_contact;
  int64_t jobs_over = 0;
};
std::optional<ClockNote> ReadClockNote(const RootPaths& paths);
absl::Status WriteClockNote(const RootPaths& paths, const ClockNote& note);

// The jobs of a node, as far as limits care.
struct JobCensus {
  std::vector<std::string> live;          // running, or about to without a laptop
  std::vector<std::string> with_results;  // not live, and started once
};
JobCensus TakeCensus(const RootPaths& paths);

// `note` carried on to `now`.
ClockNote Advance(const std::optional<ClockNote>& note, const StoredLimits& stored,
                  const JobCensus& census, bool in_contact,
                  const std::optional<TimeStamp>& last_contact, const TimeStamp& now);

// What Hello says; nothing where no limits were set.
std::optional<gpuctl::v1::NodeLimitsState> DescribeNodeLimits(const RootPaths& paths,
                                                              const std::string& boot_id,
                                                              Clock& clock);

// `gpuctl-agent limits`: prints, as one line of JSON, what the limits call for if nobody has asked,
// for a laptop that ends what cannot end itself; to ask is no contact. {job_runs, results_home,
// due: "limit:idle" or null, next: the limit that releases it next or null, in_s, can_release,
// cannot_release_why, release_requests, lease_id}. Exits with 3 where no limits were set.
int RunLimits(const std::string& root);

// What the start script noted; nothing where none of ours ran.
std::optional<gpuctl::v1::BootNote> ReadBootNote(const RootPaths& paths);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_NODE_LIMITS_H_
