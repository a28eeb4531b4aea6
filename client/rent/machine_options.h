// What a market is told about a machine that is rented for a run.
#ifndef GPUCTL_CLIENT_RENT_MACHINE_OPTIONS_H_
#define GPUCTL_CLIENT_RENT_MACHINE_OPTIONS_H_

#include "absl/status/statusor.h"
#include "client/rent/claim_node.h"
#include "client/runs/context.h"
#include "provisioning/ledger/lease.h"
#include "provisioning/market/provider.h"
#include "provisioning/market/types.h"

namespace gpuctl {

// Returns the options with which `offer` is rented for the run of `request`, under these limits.
absl::StatusOr<RentOptions> MachineOptions(CommandContext& context, const Provider& provider,
                                           const Offer& offer, const RentedNodeRequest& request,
                                           const LeaseLimits& limits);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RENT_MACHINE_OPTIONS_H_
