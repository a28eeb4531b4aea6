#include "client/gpu_names.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/quantity.h"
#include "client/suggest.h"

namespace gpuctl {
namespace {

struct Model {
  const char* name;    // canonical
  const char* driver;  // what the squeezed driver name contains
  int memory_gb;       // nominal; tells models apart whose driver names agree. 0: any
};

// The more specific driver names come first: the first match counts.
constexpr Model kModels[] = {
    {"GB200", "GB200", 0},
    {"GH200", "GH200", 0},
    {"B300", "B300", 0},
    {"B200", "B200", 0},
    {"H200", "H200", 0},
    {"H100", "H100", 0},
    {"A100-40GB", "A100", 40},
    {"A100-80GB", "A100", 80},
    {"A800", "A800", 0},
    {"L40S", "L40S", 0},
    {"L40", "L40", 0},
    {"L4", "L4", 0},
    {"RTX-PRO-6000", "RTXPRO6000", 0},
    {"RTX-6000-Ada", "RTX6000ADA", 0},
    {"RTX-5090", "RTX5090", 0},
    {"RTX-5080", "RTX5080", 0},
    {"RTX-4090", "RTX4090", 0},
    {"RTX-4080", "RTX4080", 0},
    {"RTX-3090", "RTX3090", 0},
    {"RTX-3080", "RTX3080", 0},
    {"RTX-A6000", "RTXA6000", 0},
    {"RTX-A5000", "RTXA5000", 0},
    {"RTX-A4000", "RTXA4000", 0},
    {"A40", "A40", 0},
    {"A30", "A30", 0},
    {"A10G", "A10G", 0},
    {"A10", "A10", 0},
    {"V100-16GB", "V100", 16},
    {"V100-32GB", "V100", 32},
    {"T4", "T4", 0},
};

// Upper case letters and digits only, so that "RTX 4090", "rtx_4090" and "RTX-4090" are one.
std::string Squeeze(absl::string_view text) {
  std::string squeezed;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      squeezed += absl::ascii_toupper(static_cast<unsigned char>(c));
    }
  }
  return squeezed;
}

bool LooksLikeMemory(absl::string_view text) {
  return !text.empty() && absl::ascii_isdigit(static_cast<unsigned char>(text[0]));
}

absl::Status ParseMemoryRange(absl::string_view text, GpuRequirement& requirement) {
  const size_t dots = text.find("..");
  const absl::string_view low = text.substr(0, dots);
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
  const std::string squeezed = Squeeze(text);
  std::vector<std::string> variants;
  for (const std::string& name : CanonicalGpuNames()) {
    const std::string candidate = Squeeze(name);
    // "4090" and "RTX4090" mean the same card.
    if (candidate == squeezed || candidate == absl::StrCat("RTX", squeezed)) return name;
    if (!squeezed.empty() &&
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

const std::vector<std::string>& CanonicalGpuNames() {
  static const std::vector<std::string>* const names = [] {
    auto* list = new std::vector<std::string>;
    for (const Model& model : kModels) list->push_back(model.name);
    return list;
  }();
  return *names;
}

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

std::string CanonicalGpuName(absl::string_view driver_name, int64_t memory_bytes) {
  const std::string squeezed = Squeeze(driver_name);
  const double memory_gb = static_cast<double>(memory_bytes) / 1e9;
  for (const Model& model : kModels) {
    if (!absl::StrContains(squeezed, model.driver)) continue;
    // Drivers report a little more or less than the nominal size; half is the next model.
    if (model.memory_gb != 0 && memory_gb > 1.3 * model.memory_gb) continue;
    return model.name;
  }
  return std::string(driver_name);
}

bool GpuSatisfies(const GpuRequirement& requirement, absl::string_view canonical_name,
                  int64_t memory_bytes) {
  if (!requirement.name.empty()) return canonical_name == requirement.name;
  // A "24GB" card reports 24 GiB less what the firmware keeps, so both ends get room.
  const double memory = static_cast<double>(memory_bytes);
  return memory >= 0.93 * static_cast<double>(requirement.min_memory_bytes) &&
         (requirement.max_memory_bytes == 0 ||
          memory <= 1.08 * static_cast<double>(requirement.max_memory_bytes));
}

}  // namespace gpuctl
