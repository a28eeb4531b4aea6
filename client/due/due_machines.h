// Finds rented machines whose limits are over and that cannot end themselves. Asks a machine's
// node; when that does not answer, uses what is written down on this laptop.
#ifndef GPUCTL_CLIENT_DUE_DUE_MACHINES_H_
#define GPUCTL_CLIENT_DUE_DUE_MACHINES_H_

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

// The answer of `gpuctl-agent limits`.
struct NodeVerdict {
  std::string lease_id;
  bool job_runs = false;
  bool results_home = false;
  std::string due;  // the limit that is over; "" for none
  bool can_release = false;
  int64_t release_requests = 0;
  // The prices that its limits count with; absent: an older agent, which does not tell.
  std::optional<double> usd_per_hour;
  double upload_usd_per_gb = 0;
  double download_usd_per_gb = 0;
  // The start of the bill, in Unix milliseconds, as the client knew it that sent the limits; 0: an
  // older agent, which does not tell.
  int64_t billing_started_ms = 0;
  // All bytes of the machine; absent: an older agent, which does not count.
  std::optional<int64_t> sent_bytes;
  std::optional<int64_t> received_bytes;
};
// Parses the command's line of JSON; DATA_LOSS for anything else.
absl::StatusOr<NodeVerdict> ParseNodeVerdict(absl::string_view text);

// Asks the node of an instance that no lease describes whether it serves `lease_id`.
// FAILED_PRECONDITION: it serves another one. It has 20 s to answer.
absl::StatusOr<NodeVerdict> AskNode(CommandContext& context, absl::string_view provider,
                                    const Instance& instance, absl::string_view lease_id);

// Tells of each instance whether its node serves that lease and has a job, or results that are not
// home; false where it does not answer. Asks all at the same time (see Serves).
std::vector<bool> AreServed(CommandContext& context, const std::vector<ServesQuestion>& machines);

// Returns the name of the newest run that goes on from `run_id`; "" when there is none, or when the
// list of runs cannot be read (null).
std::string SuccessorOf(RunStore* store, const std::string& run_id);

// Makes links to the node of a lease. UNAVAILABLE when its address is not known.
absl::StatusOr<std::unique_ptr<LinkFactory>> LinksToNode(CommandContext& context,
                                                         const Lease& lease);

// Asks a node for its limits and its traffic. This is no contact, which would begin the idle limit
// anew. It has 20 s to answer.
absl::StatusOr<NodeVerdict> AskLimits(LinkFactory& links, absl::string_view lease_id);

// Returns "its idle limit is over, …" when this laptop should end the machine: a limit is over, and
// the machine has no means to end itself or has tried in vain. Otherwise returns "".
std::string WhyDueByVerdict(const NodeVerdict& verdict);

// Returns when the machine's time is surely over, by what is known on this laptop, in Unix
// milliseconds. The time is over when the job has had all of its time and its results all of their
// salvage, or when nobody was in contact for the time of --lease. Returns the earliest such limit;
// kNeverMs when there is none. `run`: the run that used the machine last; absent when it was never
// written down.
inline constexpr int64_t kNeverMs = std::numeric_limits<int64_t>::max();
int64_t SurelyDueMs(const Lease& lease, const std::optional<RunRow>& run);

// Finds due machines. Used by one thread; it asks machines in threads of its own.
class NodeLimitsWatch {
 public:
  // `store`: null when the list of runs cannot be read.
  NodeLimitsWatch(CommandContext& context, RunStore* store) : context_(context), store_(store) {}

  // Returns why to end each of these claimed machines, in their order; "" when not. Asks a node
  // that can end itself only after it should have done so. Asks all nodes at the same time, so the
  // call takes as long as the slowest. Does not ask again for a minute when a node gave no answer.
  // Tells on stderr of a node that does not answer, and what is not known.
  std::vector<std::string> WhyDue(const std::vector<DueQuestion>& machines);

 private:
  // One machine while it is asked.
  struct Asked {
    const Lease* lease = nullptr;
    int64_t surely_ms = kNeverMs;
    bool ask = false;
    // A living launch will start a job there, and waits for another machine of its run, or sends.
    bool begins = false;
    std::unique_ptr<LinkFactory> links;
    absl::StatusOr<NodeVerdict> verdict = absl::UnknownError("it was not asked");
  };
  struct Silence {
    absl::Duration since;
    absl::Status cause;
  };

  Asked Prepare(const DueQuestion& machine);
  // True while a launch holds the lease for the job that it will start.
  bool HasUse(const Lease& lease) const;
  std::string Judge(const Asked& asked);

  CommandContext& context_;
  RunStore* const store_;
  std::set<std::string> told_;             // lease ids
  std::map<std::string, Silence> silent_;  // by lease id
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_DUE_DUE_MACHINES_H_
