// Who uses a rented machine that several runs share.
#ifndef GPUCTL_CLIENT_MARKET_MACHINE_USERS_H_
#define GPUCTL_CLIENT_MARKET_MACHINE_USERS_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/runs/run_store.h"
#include "provisioning/ledger/lease.h"

namespace gpuctl {

// Returns the run, or the part of a run on several machines, with that id. All parts end with their
// run, so a part has the run's end where its own is not known here. NOT_FOUND as RunStore::Get.
absl::StatusOr<RunRow> UserOf(RunStore& store, absl::string_view run_id);

// Returns the names of the runs on the machine of `lease` whose end is not known here, oldest
// first, without those with an id in `except`.
absl::StatusOr<std::vector<std::string>> LiveRunsOn(RunStore& store, const Lease& lease,
                                                    const std::set<std::string>& except);

// Returns since when no run is on the machine of `lease`, in Unix milliseconds; 0 when one is, or
// may be, or when no run of it is in the list.
absl::StatusOr<int64_t> IdleSinceMs(RunStore& store, const Lease& lease);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_MARKET_MACHINE_USERS_H_
