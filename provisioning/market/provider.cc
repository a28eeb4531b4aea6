#include "provisioning/market/provider.h"

#include "absl/strings/cord.h"

namespace gpuctl {
namespace {

constexpr char kBusyPayload[] = "gpuctl/busy";

}  // namespace

absl::Status BusyError(absl::string_view message) {
  absl::Status status = absl::UnavailableError(message);
  status.SetPayload(kBusyPayload, absl::Cord("1"));
  return status;
}

bool IsBusy(const absl::Status& status) { return status.GetPayload(kBusyPayload).has_value(); }

}  // namespace gpuctl
