#include "provisioning/ledger/listing.h"

namespace gpuctl {

absl::string_view HolderName(Holder holder) {
  switch (holder) {
    case Holder::kWanted:
      return "ours";
    case Holder::kLaunching:
      return "launching";
    case Holder::kLeak:
      return "leak";
    case Holder::kOtherOwner:
      return "other-owner";
    case Holder::kLost:
      return "lost";
    case Holder::kForeign:
      break;
  }
  return "not-gpuctl";
}

}  // namespace gpuctl
