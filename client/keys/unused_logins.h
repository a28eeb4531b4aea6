// Removes registry logins that markets keep for us and that nothing uses any more.
#ifndef GPUCTL_CLIENT_KEYS_UNUSED_LOGINS_H_
#define GPUCTL_CLIENT_KEYS_UNUSED_LOGINS_H_

#include "client/runs/context.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/market/provider.h"

namespace gpuctl {

// Does RemoveKeptLogins, and says on stderr how many there were, or why it failed: nothing bills,
// and the next pass tries again.
void RemoveUnusedLogins(CommandContext& context, Ledger& ledger, Provider& provider);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_KEYS_UNUSED_LOGINS_H_
