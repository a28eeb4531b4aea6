// What the limits of a rented machine call for when it cannot end itself: asked of its node and,
// where that does not answer, worked out from what is written down here.
#ifndef GPUCTL_CLIENT_RENT_DUE_MACHINES_H_
#define GPUCTL_CLIENT_RENT_DUE_MACHINES_H_

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/link/link.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "provisioning/ledger/lease.h"
#include "provisioning/rental/reconcile.h"

namespace gpuctl {

// What `gpuctl-agent limits` said.
struct NodeVerdict {
  std::string lease_id;
  bool job_runs = false;
  bool results_home = false;
  std::string due;  // the limit that is over; "" for none
  bool can_release = false;
  int64_t release_requests = 0;
};
// DATA_LOSS for anything but its line of JSON.
absl::StatusOr<NodeVerdict> ParseNodeVerdict(absl::string_view text);

// "limit:idle is over, …" when the machine of that verdict should be ended from here: a limit is
// over, and it has no means to end itself or has tried in vain; else "".
std::string WhyDueByVerdict(const NodeVerdict& verdict);

// When, by what is known here, the machine's time is surely over: its job has had all of its time,
// its results all of their salvage, or nobody was there for the lease. `run`: the one that used it
// last, absent when it was never written down. Of several such limits the first; kNeverMs for none.
inline constexpr int64_t kNeverMs = std::numeric_limits<int64_t>::max();
int64_t SurelyDueMs(const Lease& lease, const std::optional<RunRow>& run);

// Used by one thread; it asks machines in threads of its own.
class NodeLimitsWatch {
 public:
  // `store`: null where the list of runs cannot be read.
  NodeLimitsWatch(CommandContext& context, RunStore* store) : context_(context), store_(store) {}

  // Why to end claimed machines, in their order; "" when not. Nodes that can end themselves are
  // asked once they should have. All are asked at the same time, so that it takes as long as the
  // slowest; one that gave no answer within the last minute is not asked again. A node that does
  // not answer is told of on stderr, with what is not known.
  std::vector<std::string> WhyDue(const std::vector<DueQuestion>& machines);

 private:
  // One machine while it is asked.
  struct Asked {
    const Lease* lease = nullptr;
    int64_t surely_ms = kNeverMs;
    bool ask = false;
    std::unique_ptr<LinkFactory> links;
    absl::StatusOr<NodeVerdict> verdict = absl::UnknownError("it was not asked");
  };
  struct Silence {
    absl::Duration since;
    absl::Status cause;
  };

  Asked Prepare(const DueQuestion& machine);
  std::string Judge(const Asked& asked);

  CommandContext& context_;
  RunStore* const store_;
  std::set<std::string> told_;             // lease ids
  std::map<std::string, Silence> silent_;  // by lease id
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RENT_DUE_MACHINES_H_
