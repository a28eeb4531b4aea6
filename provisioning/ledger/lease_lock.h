// Locks on leases.
#ifndef GPUCTL_PROVISIONING_LEDGER_LEASE_LOCK_H_
#define GPUCTL_PROVISIONING_LEDGER_LEASE_LOCK_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

// A lock that a process holds while it rents or releases a machine. Nobody else touches a locked
// lease. The end of the process frees it at the latest.
class LeaseLock {
 public:
  LeaseLock() = default;
  // Takes the lease's lock. UNAVAILABLE: somebody else holds it.
  static absl::StatusOr<LeaseLock> Take(const std::string& state_dir, absl::string_view lease_id,
                                        Clock& clock);
  static absl::StatusOr<bool> IsHeld(const std::string& state_dir, absl::string_view lease_id);
  // Takes the lease's second lock, for a launch that will start a job on the machine. Until then
  // the machine looks idle. Of the code that ends machines only that which ends idle ones asks for
  // it. UNAVAILABLE as in Take.
  static absl::StatusOr<LeaseLock> TakeUse(const std::string& state_dir, absl::string_view lease_id,
                                           Clock& clock);
  // True while a launch holds that second lock.
  static absl::StatusOr<bool> IsUseHeld(const std::string& state_dir, absl::string_view lease_id);
  // Takes over a lock that another process has taken and passed on: `fd`. FAILED_PRECONDITION when
  // that is no lock of this lease.
  static absl::StatusOr<LeaseLock> TakeOver(const std::string& state_dir,
                                            absl::string_view lease_id, UniqueFd fd);
  // Returns the descriptor to pass on; -1 without a lock. The lock lasts as long as either is open.
  int fd() const { return fd_.get(); }
  void Drop() { fd_.reset(); }
  bool held() const { return fd_.valid(); }

 private:
  explicit LeaseLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_LEDGER_LEASE_LOCK_H_
