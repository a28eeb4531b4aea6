// The members of a run on several machines: a row of the list of runs for each, beside the run's
// own, which is that of rank 0.
#ifndef GPUCTL_CLIENT_FOLLOW_MEMBERS_H_
#define GPUCTL_CLIENT_FOLLOW_MEMBERS_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "provisioning/ledger/ledger.h"

namespace gpuctl {

// Returns the row of the run's machine `node`; 0 is the run itself. INVALID_ARGUMENT when it has no
// such machine.
absl::StatusOr<RunRow> MemberOf(RunStore& store, RunRow run, int node);

// Returns the directory for a member's results, where those of the run itself come to `place`:
// ./RUN.node1 beside ./RUN.
std::string PlaceOfMember(absl::string_view place, const RunRow& member);

// Returns the lease of the run's machine; nothing where it is not rented. The parts of a run on one
// allocation have that of the first.
absl::StatusOr<std::optional<Lease>> LeaseOfPart(Ledger& ledger, const RunRow& row);

// Returns the names of all machines of the run: "gpu1, gpu2".
std::string MachinesOf(RunStore& store, const RunRow& run);

// Brings the output of the other members home and records their ends, once the run has ended, and
// shows the last lines of the member that ended first. Does nothing for another run. What cannot be
// reached is said and left.
void BringMembers(CommandContext& context, RunStore& store, const RunRow& run);

// Does what StopRun does for all members. The node of rank 0 tells the others to stop; they are
// told here, too, so that all end when it cannot be reached. Goes on with the others when one
// cannot be told or does not end. Returns the first of these errors and says the others; `run` has
// its end when it has one, also then.
absl::Status StopWithMembers(CommandContext& context, RunStore& store, RunRow& run, bool wait);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_FOLLOW_MEMBERS_H_
