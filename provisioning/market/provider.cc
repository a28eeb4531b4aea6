#include "provisioning/market/provider.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace gpuctl {
namespace {

constexpr char kBusyPayload[] = "gpuctl/busy";
constexpr char kGonePayload[] = "gpuctl/gone";
constexpr char kOwnEndPayload[] = "gpuctl/gone-own-end";

}  // namespace

absl::Status BusyError(absl::string_view message) {
  absl::Status status = absl::UnavailableError(message);
  status.SetPayload(kBusyPayload, absl::Cord("1"));
  return status;
}

bool IsBusy(const absl::Status& status) { return status.GetPayload(kBusyPayload).has_value(); }

absl::Status GoneError(absl::string_view doing, absl::string_view words) {
  absl::Status status = absl::NotFoundError(absl::StrCat(doing, ": ", words));
  status.SetPayload(kGonePayload, absl::Cord(words));
  return status;
}

absl::Status OwnEndError(absl::string_view doing, absl::string_view words) {
  absl::Status status = GoneError(doing, words);
  status.SetPayload(kOwnEndPayload, absl::Cord("yes"));
  return status;
}

bool IsOwnEnd(const absl::Status& status) { return status.GetPayload(kOwnEndPayload).has_value(); }

std::string WordsOfGone(const absl::Status& status) {
  const auto words = status.GetPayload(kGonePayload);
  return words.has_value() ? std::string(*words) : "";
}

}  // namespace gpuctl
