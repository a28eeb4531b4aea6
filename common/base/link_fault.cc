#include "common/base/link_fault.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace gpuctl {
namespace {

constexpr char kFaultPayload[] = "gpuctl/link_fault";

}  // namespace

absl::Status WithFault(absl::Status status, LinkFault fault) {
  if (!status.ok() && fault != LinkFault::kNone) {
    status.SetPayload(kFaultPayload, absl::Cord(absl::StrCat(static_cast<int>(fault))));
  }
  return status;
}

LinkFault FaultOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kFaultPayload);
  int fault = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &fault)) {
    return LinkFault::kNone;
  }
  return static_cast<LinkFault>(fault);
}

}  // namespace gpuctl
