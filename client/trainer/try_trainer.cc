#include "client/trainer/try_trainer.h"

#include <new>

#include "client/base/exit_codes.h"
#include "trainer/base/error.h"

namespace gpuctl {

absl::Status TryTrainer(const std::function<void()>& work) {
  try {
    work();
  } catch (const trainer::Error& error) {
    if (error.code() == trainer::ExitCode::kBadConfig)
      return UsageError(error.what(), error.hint());
    const absl::Status status = absl::FailedPreconditionError(error.what());
    return error.hint().empty() ? status : WithHint(status, error.hint());
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("there is not enough memory");
  }
  return absl::OkStatus();
}

}  // namespace gpuctl
