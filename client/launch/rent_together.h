// Rents the machines of a run on several: all of them, or none.
#ifndef GPUCTL_CLIENT_LAUNCH_RENT_TOGETHER_H_
#define GPUCTL_CLIENT_LAUNCH_RENT_TOGETHER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/keys/market_access.h"
#include "client/market/holdings.h"
#include "client/rent/claim_node.h"
#include "client/runs/context.h"
#include "client/spec/run_spec.h"
#include "provisioning/ledger/ledger.h"

namespace gpuctl {

// A part of a run on several machines, before it has one.
struct RentedPart {
  std::string run_id;
  std::string run_name;
};

// Returns the request for one part. `spec` is the run's for one machine (SpecOfOne), and outlives
// it.
RentedNodeRequest RequestOfPart(const RentedNodeRequest& whole, const RunSpec& spec,
                                const std::vector<RentedPart>& parts, size_t rank);

// Takes these idle machines for `parts`, as ReuseNode takes one: all, or none. Returns nothing when
// one of them is not idle any more.
absl::StatusOr<std::vector<RentedNode>> ReuseTogether(CommandContext& context, Ledger& ledger,
                                                      const std::vector<Market>& markets,
                                                      const RentedNodeRequest& request,
                                                      const std::vector<RentedPart>& parts,
                                                      const std::vector<Lease>& idle);

// Rents a machine for each of `parts`, all at the same time and of one offer, so that they are in
// one region. When one of them cannot be had or does not work, gives all back and tries the next
// offer. `request` is that of the whole run: its costs are those of all machines together, its
// prices those of one; run_id and run_name are those of the first part. Says on stderr what it
// does. Returns the machines in the order of `parts`. Errors are RentNode's; after any of them no
// machine bills, or the message or a warning says which may.
absl::StatusOr<std::vector<RentedNode>> RentTogether(CommandContext& context, Holdings& holdings,
                                                     const RentedNodeRequest& request,
                                                     const std::vector<RentedPart>& parts);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LAUNCH_RENT_TOGETHER_H_
