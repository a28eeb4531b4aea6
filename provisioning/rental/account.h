// Whether a provider's answers are about the account in which a machine was rented. With the key
// of another account a machine looks gone, and goes on billing.
#ifndef GPUCTL_PROVISIONING_RENTAL_ACCOUNT_H_
#define GPUCTL_PROVISIONING_RENTAL_ACCOUNT_H_

#include "absl/status/status.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/market/provider.h"

namespace gpuctl {

// Asks the market, once for each key, for the id of the key's account and writes it down. A market
// that does not answer costs nothing: the key is then known by its fingerprint alone.
void LearnAccount(Ledger& ledger, Provider& provider);

// Returns OK when `provider` asks with a key of the account in which `lease` was rented, or when
// nothing is known about that. PERMISSION_DENIED: a key of another account, or a new key of the
// same one that has proved nothing yet; what it answers about this lease means nothing.
absl::Status CheckAccount(Ledger& ledger, Provider& provider, const Lease& lease);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_RENTAL_ACCOUNT_H_
