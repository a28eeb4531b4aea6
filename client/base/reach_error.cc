#include "client/base/reach_error.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr char kNamedPayload[] = "gpuctl/names_node";

}  // namespace

absl::Status ReachError(const absl::Status& status, absl::string_view node) {
  if (status.ok() || status.GetPayload(kNamedPayload).has_value()) return status;
  absl::Status named = Annotate(status, absl::StrCat("reach ", node));
  named.SetPayload(kNamedPayload, absl::Cord("1"));
  return named;
}

}  // namespace gpuctl
