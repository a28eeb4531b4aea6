// Who is at work on a lease.
#ifndef GPUCTL_PROVISIONING_LEDGER_LEASE_LOCK_H_
#define GPUCTL_PROVISIONING_LEDGER_LEASE_LOCK_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

// Held by whoever is renting or releasing a machine, for as long as that takes: a locked lease is
// work in progress that nobody else touches. Freed by the end of the process at the latest.
class LeaseLock {
 public:
  LeaseLock() = default;
  // UNAVAILABLE: somebody else holds it.
  static absl::StatusOr<LeaseLock> Take(const std::string& state_dir, absl::string_view lease_id,
                                        Clock& clock);
  static absl::StatusOr<bool> IsHeld(const std::string& state_dir, absl::string_view lease_id);
  // Another lock of the same lease: of the launch that is about to start a job there. The machine
  // looks idle until then. Nobody who ends machines asks for it. UNAVAILABLE: as Take.
  static absl::StatusOr<LeaseLock> TakeUse(const std::string& state_dir, absl::string_view lease_id,
                                           Clock& clock);
  void Drop() { fd_.reset(); }
  bool held() const { return fd_.valid(); }

 private:
  explicit LeaseLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_LEDGER_LEASE_LOCK_H_
