#include "client/spec/gpu_names.h"

#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/base/quantity.h"
#include "client/base/suggest.h"

namespace gpuctl {
namespace {

bool LooksLikeMemory(absl::string_view text) {
  return !text.empty() && absl::ascii_isdigit(static_cast<unsigned char>(text[0]));
}

absl::Status ParseMemoryRange(absl::string_view text, GpuRequirement& requirement) {
  const size_t dots = text.find("..");
  const absl::string_view low = text.substr(0, dots);
  constexpr int64_t kLeast = 1'000'000'000;
  if (const absl::StatusOr<int64_t> bytes = ParseSize(low); bytes.ok() && *bytes < kLeast) {
    return absl::InvalidArgumentError(
        absl::StrCat("GPU memory \"", text, "\" is less than 1 GB: did you mean ", low, "GB?"));
  }
  const absl::StatusOr<int64_t> minimum = ParseSize(low);
  if (!minimum.ok()) return minimum.status();
  requirement.min_memory_bytes = *minimum;
  if (dots == absl::string_view::npos || dots + 2 == text.size()) return absl::OkStatus();
  const absl::StatusOr<int64_t> maximum = ParseSize(text.substr(dots + 2));
  if (!maximum.ok()) return maximum.status();
  requirement.max_memory_bytes = *maximum;
  if (*maximum < *minimum) {
    return absl::InvalidArgumentError(
        absl::StrCat("GPU memory range \"", text, "\" ends below its beginning"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> FindName(absl::string_view text) {
  if (std::optional<std::string> name = FindGpuName(text); name.has_value()) {
    return *std::move(name);
  }
  std::vector<std::string> variants;
  for (const std::string& name : CanonicalGpuNames()) {
    if (!SqueezeGpuName(text).empty() &&
        absl::StartsWith(name, absl::StrCat(absl::AsciiStrToUpper(text), "-"))) {
      variants.push_back(name);
    }
  }
  if (!variants.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("GPU \"", text, "\" comes in several sizes; write ", variants[0],
                     variants.size() > 1 ? absl::StrCat(" or ", variants[1]) : ""));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown GPU \"", text, "\"", DidYouMean(text, CanonicalGpuNames())));
}

}  // namespace

absl::StatusOr<GpuRequirement> ParseGpuRequirement(absl::string_view text) {
  GpuRequirement requirement;
  requirement.text = std::string(text);
  absl::string_view rest = absl::StripAsciiWhitespace(text);
  if (const size_t colon = rest.rfind(':'); colon != absl::string_view::npos) {
    if (!absl::SimpleAtoi(rest.substr(colon + 1), &requirement.count) || requirement.count < 1 ||
        requirement.count > 64) {
      return absl::InvalidArgumentError(
          absl::StrCat("GPU \"", text, "\": the count after ':' must be 1 to 64"));
    }
    rest = rest.substr(0, colon);
  }
  if (LooksLikeMemory(rest) && !FindName(rest).ok()) {
    if (absl::Status status = ParseMemoryRange(rest, requirement); !status.ok()) return status;
    return requirement;
  }
  absl::StatusOr<std::string> name = FindName(rest);
  if (!name.ok()) return name.status();
  requirement.name = *std::move(name);
  return requirement;
}

bool GpuSatisfies(const GpuRequirement& requirement, absl::string_view canonical_name,
                  int64_t memory_bytes) {
  // A model's name implies its memory: a range counts only without a name.
  Requirements::Gpu asked;
  asked.name = requirement.name;
  if (asked.name.empty()) {
    asked.min_memory_bytes = requirement.min_memory_bytes;
    asked.max_memory_bytes = requirement.max_memory_bytes;
  }
  return GpuSatisfies(asked, canonical_name, memory_bytes);
}

}  // namespace gpuctl
