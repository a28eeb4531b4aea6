// One rental market. See tests/contract/provider_contract.h for what every implementation promises.
#ifndef GPUCTL_PROVISIONING_PROVIDER_H_
#define GPUCTL_PROVISIONING_PROVIDER_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "provisioning/types.h"

namespace gpuctl {

// Never sleeps and never retries: its callers do. Used by one thread at a time.
class Provider {
 public:
  virtual ~Provider() = default;
  virtual absl::string_view name() const = 0;

  // What meets `requirements` now, cheapest first; only machines that full SSH reaches. Those whose
  // hardware is not known before one is there (local, ssh) are offered whatever is asked for: the
  // node itself is asked before the job starts.
  virtual absl::StatusOr<std::vector<Offer>> ListOffers(const Requirements& requirements) = 0;

  // Rents `offer` under `label`. Returns once the provider has accepted; the address may still be
  // missing. ABORTED: the offer is gone, plan again. RESOURCE_EXHAUSTED: quota or funds.
  // DEADLINE_EXCEEDED, UNKNOWN: it may exist. INVALID_ARGUMENT: the offer is not this provider's.
  virtual absl::StatusOr<Instance> Rent(const Offer& offer, const RentOptions& options,
                                        absl::string_view label) = 0;

  // NOT_FOUND only when the provider says that it is gone.
  virtual absl::StatusOr<Instance> Describe(const InstanceId& id) = 0;

  // What bills under labels of ours; an answer that cannot be understood is an error, never "none".
  virtual absl::StatusOr<std::vector<Instance>> ListOurs() = 0;

  // Ends the bill. One that is gone already is OK.
  virtual absl::Status Terminate(const InstanceId& id) = 0;
};

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_PROVIDER_H_
