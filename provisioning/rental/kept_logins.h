// Logins at container registries that a market keeps for us between rents. A launch uses one from
// before its create on; the market's own list shows it in use only when the create is done. So a
// launch holds a shared lock until then, and whoever removes logins needs the lock alone.
#ifndef GPUCTL_PROVISIONING_RENTAL_KEPT_LOGINS_H_
#define GPUCTL_PROVISIONING_RENTAL_KEPT_LOGINS_H_

#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/market/provider.h"

namespace gpuctl {

// Keeps the owner's logins at that market from removal while the result lives. Waits for a removal
// that is under way. The lock's file stays, and shows that there may be such logins.
absl::StatusOr<UniqueFd> HoldKeptLogins(const Ledger& ledger, const Provider& provider);

// Removes the logins of this ledger's owner at the market that no instance uses. Returns their
// number. Does nothing when there were never any, while somebody rents with one, and while it is
// not known whether a rent made something.
absl::StatusOr<int> RemoveKeptLogins(Ledger& ledger, Provider& provider);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_RENTAL_KEPT_LOGINS_H_
