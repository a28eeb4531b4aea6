#include "provisioning/rental/kept_logins.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

std::string LockPath(const Ledger& ledger, const Provider& provider) {
  return JoinPath(JoinPath(ledger.state_dir(), "locks"), absl::StrCat("logins-", provider.name()));
}

}  // namespace

absl::StatusOr<UniqueFd> HoldKeptLogins(const Ledger& ledger, const Provider& provider) {
  const std::string path = LockPath(ledger, provider);
  RETURN_IF_ERROR(MakeDirectories(DirName(path)));
  return WaitForSharedLock(path);
}

absl::StatusOr<int> RemoveKeptLogins(Ledger& ledger, Provider& provider) {
  const std::string path = LockPath(ledger, provider);
  if (!PathExists(path)) return 0;
  const absl::StatusOr<UniqueFd> lock = TryLock(path);
  if (absl::IsUnavailable(lock.status())) return 0;
  RETURN_IF_ERROR(lock.status());
  ASSIGN_OR_RETURN(const std::vector<Lease> open, ledger.List(/*open_only=*/true));
  for (const Lease& lease : open) {
    if (lease.provider == provider.name() && lease.state == LeaseState::kIntent) return 0;
  }
  ASSIGN_OR_RETURN(const std::string owner, ledger.OwnerId());
  return provider.RemoveUnusedLogins(owner);
}

}  // namespace gpuctl
