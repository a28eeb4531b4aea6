#include "provisioning/market/label.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace gpuctl {
namespace {

constexpr absl::string_view kPrefix = "gpuctl";
constexpr size_t kOwnerDigits = 8;
constexpr size_t kLeaseDigits = 12;
constexpr size_t kTaskDigits = 3;  // of kMostTasks

bool IsHex(absl::string_view text, size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f');
         });
}

}  // namespace

std::string FormatLabel(const LeaseLabel& label) {
  return absl::StrCat(kPrefix, "-", label.owner, "-", label.lease);
}

std::string TaskLease(absl::string_view lease, int task) {
  return absl::StrCat(lease.substr(0, kLeaseDigits - kTaskDigits),
                      absl::Hex(task, absl::kZeroPad3));
}

LeaseLabel TaskLabel(const LeaseLabel& label, int task) {
  return {label.owner, TaskLease(label.lease, task)};
}

std::optional<LeaseLabel> ParseLabel(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '-');
  if (parts.size() != 3 || parts[0] != kPrefix || !IsHex(parts[1], kOwnerDigits) ||
      !IsHex(parts[2], kLeaseDigits)) {
    return std::nullopt;
  }
  return LeaseLabel{std::string(parts[1]), std::string(parts[2])};
}

}  // namespace gpuctl
