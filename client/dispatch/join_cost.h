// The money of a run that joins a rented machine on which others run.
#ifndef GPUCTL_CLIENT_DISPATCH_JOIN_COST_H_
#define GPUCTL_CLIENT_DISPATCH_JOIN_COST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/batch/batch_store.h"
#include "client/spec/run_spec.h"
#include "provisioning/ledger/lease.h"
#include "provisioning/ledger/ledger.h"

namespace gpuctl {

// What a run's place on a machine means for it and for its batch.
struct JoinCost {
  LeaseLimits limits;   // of the machine with the run: never less than they are
  double more_usd = 0;  // by which its cost limit rises
  bool held = false;    // a run of the same batch holds the machine already
  // What the batch of the run promises more: that, or all that the machine may still cost when the
  // batch has no run there yet.
  double reserved_usd = 0;
};

// Returns it for a run of the batch with these attempts.
JoinCost CostOfJoining(const RunSpec& spec, const Lease& lease,
                       const std::vector<Attempt>& attempts, int64_t now_ms);

// Checks that the other batches with runs on the machine can pay for a cost limit that rises by
// `more_usd`: RESOURCE_EXHAUSTED when one cannot.
absl::Status CheckOthersOn(BatchStore& batches, Ledger& ledger, const Lease& lease,
                           const std::string& batch_id, double more_usd, int64_t now_ms);

// Returns the leases that count for a batch with these attempts.
absl::StatusOr<std::vector<Lease>> LeasesOf(Ledger& ledger, const std::vector<Attempt>& attempts);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_DISPATCH_JOIN_COST_H_
