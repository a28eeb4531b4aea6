#include "client/follow/output_hint.h"

#include <algorithm>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace gpuctl {

std::string HintOfOutput(absl::string_view tail) {
  // What Debian's python3 -m venv says without the package python3-venv.
  if (absl::StrContains(tail, "ensurepip is not available")) {
    return "python3 -m venv needs the package python3-venv there; or take uv: uv venv "
           "$GPUCTL_ENV_DIR && uv pip install -r requirements.txt";
  }
  // PEP 668: pip's error where the system's Python belongs to the system's packages.
  if (absl::StrContains(tail, "externally-managed-environment")) {
    return "pip does not change the system's Python there; a setup: of python3 -m venv "
           "$GPUCTL_ENV_DIR && pip install -r requirements.txt makes an environment for the run";
  }
  return "";
}

std::string HintOfOutput(MirrorReader& mirror) {
  const absl::StatusOr<Extent> extent = mirror.OutputExtent();
  if (!extent.ok()) return "";
  int64_t offset = std::max<int64_t>(0, extent->size - static_cast<int64_t>(kHintBytes));
  std::string tail;
  // The end may lie in the next segment.
  while (offset < extent->size) {
    const absl::StatusOr<std::string> more = mirror.ReadOutput(offset);
    if (!more.ok() || more->empty()) break;
    offset += static_cast<int64_t>(more->size());
    absl::StrAppend(&tail, *more);
  }
  return HintOfOutput(tail);
}

}  // namespace gpuctl
