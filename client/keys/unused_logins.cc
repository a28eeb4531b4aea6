#include "client/keys/unused_logins.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "provisioning/rental/kept_logins.h"

namespace gpuctl {

void RemoveUnusedLogins(CommandContext& context, Ledger& ledger, Provider& provider) {
  const absl::StatusOr<int> removed = RemoveKeptLogins(ledger, provider);
  if (!removed.ok()) {
    context.Warn(absl::StrCat("registry logins that ", provider.name(), " keeps were not removed: ",
                              removed.status().message(), "; gpuctl reap tries again"));
  } else if (*removed > 0) {
    context.Say(absl::StrCat(provider.name(), " keeps ", *removed,
                             *removed == 1 ? " registry login less: nothing uses it"
                                           : " registry logins less: nothing "
                                             "uses them"));
  }
}

}  // namespace gpuctl
