// How a rented instance ends its own bill, for each market. The script that it runs at boot and the
// agent that takes over from it read this one table.
#ifndef GPUCTL_COMMON_RELEASE_RELEASE_ROUTE_H_
#define GPUCTL_COMMON_RELEASE_RELEASE_ROUTE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace gpuctl {

enum class EndsItself {
  kNo,          // only a key of the account ends it
  kByKey,       // the market gives the instance a key that can end it
  kByExit,      // the bill ends when the command of its create ends
  kByShutdown,  // the bill ends when its system shuts down
};

struct ReleaseRoute {
  absl::string_view market;  // as in Provider::name: "runpod"
  EndsItself way = EndsItself::kNo;
  // For kByKey: the variables of the instance's environment with its id and its key, and the
  // request that ends it, with the key as bearer. "{id}" in the path stands for the id.
  absl::string_view id_variable = {};
  absl::string_view key_variable = {};
  absl::string_view method = {};
  absl::string_view path = {};
  absl::string_view body = {};  // JSON; empty: none
  // For kByShutdown: what root's shell runs; empty: ShutdownCommand has it.
  absl::string_view command = {};
};

// The file in the agent's root that ends the start command, for kByExit.
inline constexpr char kReleasedFile[] = "released";

// In the agent's root of a Slurm allocation. The batch script writes this marker, with the number
// of the Slurm job and of its restart: {"job":"17","restart":0}. It says that only the batch
// script starts a guard there (`gpuctl-agent hold`), because what somebody else starts dies with
// the step that started it.
inline constexpr char kHeldFile[] = "held";
// A FIFO beside it, which the batch script has open as long as it lives, and nobody else.
inline constexpr char kHeldSignFile[] = "held.alive";
// The reason, in a job's lifecycle, of a stop because the allocation ends. The node is not told
// whether that is its time limit, a preemption or scancel: only Slurm's books say so.
inline constexpr char kAllocationEndsReason[] = "the allocation ends";
// The reason, in a job's lifecycle, of an attempt that its allocation's next start found without an
// end.
inline constexpr char kNodeFailedReason[] = "the node failed, requeued by Slurm";
// Begin the reason, in a job's lifecycle, of the end of a run that was to go on when Slurm started
// its allocation again, and could not; and of one that was to begin with the allocation's first
// start. Both begin with kNotStarted.
inline constexpr char kNotStarted[] = "not started";
inline constexpr char kNotStartedAgainPrefix[] = "not started again: ";
inline constexpr char kNotStartedPrefix[] = "not started: ";
// The exit code of the batch script of such a start, for Slurm's books: where the file system hangs
// on which the reason is noted, they are all that tells. And the words that gpuctl makes of it.
inline constexpr int kNotStartedAgainExit = 76;
inline constexpr char kNotStartedAgainWords[] = "FAILED (it could not be started again)";
// Of what waits for the first start of an allocation, the directory's ending and the mark in it.
inline constexpr char kStagedWord[] = "staged";
// Begins the line that `gpuctl-agent stage` prints, and what it says when runs can be left for that
// start.
inline constexpr char kStageSays[] = "gpuctl stage: ";
inline constexpr char kStageReady[] = "ready";
// The variable of the batch script's environment with the seconds that jobs have between their
// stop and their end when the allocation ends.
inline constexpr char kHoldGraceVariable[] = "GPUCTL_HOLD_GRACE_S";
// Another one, of an allocation that serves one run alone: it ends when that is over and its
// results are kept on the shared file system. Unset for any other.
inline constexpr char kHoldOneRunVariable[] = "GPUCTL_HOLD_ONE_RUN";
// Variables of the batch script's environment: the directory, made on the login node, in which the
// allocation's results are kept if the node sees it, too; and what its file kResultsTokenFile then
// has. Unset where nothing is to be kept.
inline constexpr char kResultsVariable[] = "GPUCTL_RESULTS";
inline constexpr char kResultsTokenVariable[] = "GPUCTL_RESULTS_TOKEN";
inline constexpr char kResultsTokenFile[] = "token";
// The variable with the number of nodes that were asked for, where that is more than one.
inline constexpr char kAllocationNodesVariable[] = "GPUCTL_ALLOCATION_NODES";
// Before the number of a further node of the allocation, the name of its own directory in there.
inline constexpr char kResultsOfNode[] = "node-";
// The file beside the directories of results that says that a node has seen them.
inline constexpr char kSeenByNodesFile[] = ".seen-by-nodes";

// Returns the market's row, kNo for a market without one. "test-exit" and "test-shutdown" are no
// markets: tests use them, and the second one's command is a program that only tests have.
const ReleaseRoute& ReleaseRouteOf(absl::string_view market);

// Returns the path of the request that ends `id`, which is not escaped.
std::string ReleasePath(const ReleaseRoute& route, absl::string_view id);

// Returns what root's shell runs to shut the system down, without single quotes.
absl::string_view ShutdownCommand(const ReleaseRoute& route);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_RELEASE_RELEASE_ROUTE_H_
