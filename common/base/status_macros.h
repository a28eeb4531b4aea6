// Early return for absl::Status and absl::StatusOr; the packaged Abseil has none.
#ifndef GPUCTL_COMMON_BASE_STATUS_MACROS_H_
#define GPUCTL_COMMON_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define GPUCTL_CONCAT_INNER_(a, b) a##b
#define GPUCTL_CONCAT_(a, b) GPUCTL_CONCAT_INNER_(a, b)

// Returns from the enclosing function when `expr` is not OK.
#define RETURN_IF_ERROR(expr)                                         \
  do {                                                                \
    if (absl::Status gpuctl_status_ = (expr); !gpuctl_status_.ok()) { \
      return gpuctl_status_;                                          \
    }                                                                 \
  } while (false)

// `ASSIGN_OR_RETURN(auto x, F())`: x is F's value, or the enclosing function returns F's status.
#define ASSIGN_OR_RETURN(lhs, expr) \
  GPUCTL_ASSIGN_OR_RETURN_(GPUCTL_CONCAT_(gpuctl_statusor_, __LINE__), lhs, expr)
#define GPUCTL_ASSIGN_OR_RETURN_(tmp, lhs, expr) \
  auto tmp = (expr);                             \
  if (!tmp.ok()) return tmp.status();            \
  lhs = std::move(tmp).value()

namespace gpuctl {

// Returns `status` with "context: " before its message, and the same code and payloads. OK stays
// OK.
absl::Status Annotate(const absl::Status& status, absl::string_view context);

// Returns a status for `error_number` with the message "context: strerror". ENOSPC and EDQUOT
// become RESOURCE_EXHAUSTED, ENOENT NOT_FOUND, EACCES and EPERM FAILED_PRECONDITION, EEXIST
// ALREADY_EXISTS. IsDiskFull recognises ENOSPC and EDQUOT.
absl::Status ErrnoStatus(int error_number, absl::string_view context);

// True when `status` comes from ErrnoStatus with ENOSPC or EDQUOT: this machine's disk is full, or
// the user's quota is used up.
bool IsDiskFull(const absl::Status& status);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_BASE_STATUS_MACROS_H_
