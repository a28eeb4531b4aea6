// Reuses an idle machine of ours that fits a run.
#ifndef GPUCTL_CLIENT_RENT_REUSE_NODE_H_
#define GPUCTL_CLIENT_RENT_REUSE_NODE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/keys/market_access.h"
#include "client/rent/claim_node.h"
#include "client/runs/context.h"
#include "provisioning/ledger/ledger.h"

namespace gpuctl {

// True when a machine of ours is what `spec` asks for, as far as the ledger tells, and costs at
// most `most_usd_per_hour` (0: any price). Does not ask when its host takes it back.
bool FitsRun(const RunSpec& spec, const Lease& lease, double most_usd_per_hour);

// Lets `spec` ask for the GPUs of `lease`, the machine that its run had, where it rents and does
// not say which: a checkpoint may need their memory. False when it changed nothing.
bool KeepGpus(const Lease& lease, RunSpec& spec);

// Returns why such a machine is not one for the run, for people; "" when FitsRun.
std::string WhyUnfit(const RunSpec& spec, const Lease& lease, double most_usd_per_hour);

// Takes an idle machine of ours that fits, costs no more than was agreed to for the run, and
// belongs to the account of one of `markets`: no other can be ended from here. Returns nothing when
// there is none. Skips machines that cannot be reached.
absl::StatusOr<std::optional<RentedNode>> ReuseNode(CommandContext& context, Ledger& ledger,
                                                    const std::vector<Market>& markets,
                                                    const RentedNodeRequest& request);

// A machine that ReuseNode would take now.
struct IdleMachine {
  Lease lease;
  bool others_wait = false;  // results of earlier runs on it are not at home
};
// Returns it. Changes nothing.
absl::StatusOr<std::optional<IdleMachine>> FindIdleNode(CommandContext& context, Ledger& ledger,
                                                        const std::vector<Market>& markets,
                                                        const RentedNodeRequest& request);

// Returns `count` such machines, with the same GPUs, of one market and one region, whose private
// network they share;
// none where there are fewer. Changes nothing.
absl::StatusOr<std::vector<IdleMachine>> FindIdleTogether(CommandContext& context, Ledger& ledger,
                                                          const std::vector<Market>& markets,
                                                          const RentedNodeRequest& request,
                                                          size_t count);
// Takes this machine as ReuseNode does; nothing where it does not fit any more.
absl::StatusOr<std::optional<RentedNode>> ReuseThis(CommandContext& context, Ledger& ledger,
                                                    const std::vector<Market>& markets,
                                                    const RentedNodeRequest& request,
                                                    const Lease& lease);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RENT_REUSE_NODE_H_
