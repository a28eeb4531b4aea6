#include "provisioning/rental/account.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace gpuctl {

void LearnAccount(Ledger& ledger, Provider& provider) {
  if (provider.key_print().empty()) return;
  const absl::StatusOr<std::string> known = ledger.AccountOf(provider.name(), provider.key_print());
  if (!known.ok() || !known->empty()) return;
  const absl::StatusOr<std::string> account = provider.AccountId();
  if (!account.ok() || account->empty()) return;
  // Without the note the market is asked again next time.
  ledger.NoteAccount(provider.name(), provider.key_print(), absl::StrCat("account ", *account))
      .IgnoreError();
}

absl::Status CheckAccount(Ledger& ledger, Provider& provider, const Lease& lease) {
  ASSIGN_OR_RETURN(bool same, ledger.IsOfAccount(lease, provider.key_print()));
  if (same) return absl::OkStatus();
  LearnAccount(ledger, provider);
  ASSIGN_OR_RETURN(same, ledger.IsOfAccount(lease, provider.key_print()));
  if (same) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(lease.instance_id.empty() ? lease.label : lease.instance_id,
                   " was rented with another key of ", provider.name(),
                   ", and this one's account does not show it; gpuctl login ", provider.name(),
                   " --same-account, if it is a new key of the same account"));
}

}  // namespace gpuctl
