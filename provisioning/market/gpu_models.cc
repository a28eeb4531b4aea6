#include "provisioning/market/gpu_models.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace gpuctl {
namespace {

struct Model {
  const char* name;      // canonical
  const char* squeezed;  // contained in the squeezed names of drivers and providers
  const char* also;      // also contained there; empty: no condition
  int memory_gb;         // nominal; tells apart models whose names agree. 0: any
  const char* family;    // the canonical name that asks for this form too. Empty: none
};

// The first match counts, so the more specific models come first.
constexpr Model kModels[] = {
    {"GB300", "GB300", "", 0, ""},
    {"GB200", "GB200", "", 0, ""},
    {"GH200", "GH200", "", 0, ""},
    {"B300", "B300", "", 0, ""},
    {"B200", "B200", "", 0, ""},
    {"H200", "H200", "", 0, ""},
    {"H100-NVL", "H100", "NVL", 0, "H100"},
    {"H100-PCIe", "H100", "PCIE", 0, "H100"},
    {"H100-SXM", "H100", "SXM", 0, "H100"},
    // Only the SXM form has HBM3, and its name says so.
    {"H100-SXM", "H10080GBHBM3", "", 0, "H100"},
    {"H100", "H100", "", 0, ""},
    {"A100-40GB", "A100", "", 40, ""},
    {"A100-80GB", "A100", "", 80, ""},
    {"A800", "A800", "", 0, ""},
    {"L40S", "L40S", "", 0, ""},
    {"L40", "L40", "", 0, ""},
    {"L4", "L4", "", 0, ""},
    {"RTX-PRO-6000", "RTXPRO6000", "", 0, ""},
    {"RTX-PRO-5000", "RTXPRO5000", "", 0, ""},
    {"RTX-PRO-4500", "RTXPRO4500", "", 0, ""},
    {"RTX-PRO-4000", "RTXPRO4000", "", 0, ""},
    {"RTX-6000-Ada", "RTX6000ADA", "", 0, ""},
    {"RTX-5000-Ada", "RTX5000ADA", "", 0, ""},
    {"RTX-4000-Ada", "RTX4000ADA", "", 0, ""},
    {"RTX-4000-Ada", "RTX4000SFFADA", "", 0, ""},
    {"RTX-2000-Ada", "RTX2000ADA", "", 0, ""},
    {"RTX-5090", "RTX5090", "", 0, ""},
    {"RTX-5080", "RTX5080", "", 0, ""},
    {"RTX-5070-Ti", "RTX5070TI", "", 0, ""},
    {"RTX-4090-D", "RTX4090D", "", 0, ""},
    {"RTX-4090", "RTX4090", "", 0, ""},
    {"RTX-4080-Super", "RTX4080S", "", 0, ""},
    {"RTX-4080", "RTX4080", "", 0, ""},
    {"RTX-4070-Ti-Super", "RTX4070TISUPER", "", 0, ""},
    {"RTX-4070-Ti-Super", "RTX4070STI", "", 0, ""},
    {"RTX-4070-Ti", "RTX4070TI", "", 0, ""},
    {"RTX-3090-Ti", "RTX3090TI", "", 0, ""},
    {"RTX-3090", "RTX3090", "", 0, ""},
    {"RTX-3080-Ti", "RTX3080TI", "", 0, ""},
    {"RTX-3080", "RTX3080", "", 0, ""},
    {"RTX-A6000", "RTXA6000", "", 0, ""},
    {"RTX-A5000", "RTXA5000", "", 0, ""},
    {"RTX-A4500", "RTXA4500", "", 0, ""},
    {"RTX-A4000", "RTXA4000", "", 0, ""},
    {"RTX-A2000", "RTXA2000", "", 0, ""},
    {"RTX-8000", "RTX8000", "", 0, ""},
    {"RTX-6000", "RTX6000", "", 0, ""},
    {"A40", "A40", "", 0, ""},
    {"A30", "A30", "", 0, ""},
    {"A10G", "A10G", "", 0, ""},
    {"A10", "A10", "", 0, ""},
    {"V100-16GB", "V100", "", 16, ""},
    {"V100-32GB", "V100", "", 32, ""},
    {"T4", "T4", "", 0, ""},
};

// Further models that can be asked for by name. All words of a driver's or provider's name must be
// those of the model, so their order does not matter.
constexpr const char* kOtherModels[] = {
    "RTX-5070",
    "RTX-5060-Ti",
    "RTX-5060",
    "RTX-4070-Super",
    "RTX-4070",
    "RTX-4060-Ti",
    "RTX-4060",
    "RTX-3070-Ti",
    "RTX-3070",
    "RTX-3060-Ti",
    "RTX-3060",
    "RTX-2080-Ti",
    "RTX-2080-Super",
    "RTX-2080",
    "RTX-2070-Super",
    "RTX-2070",
    "RTX-2060-Super",
    "RTX-2060",
    "GTX-1660-Super",
    "GTX-1660-Ti",
    "GTX-1660",
    "GTX-1080-Ti",
    "GTX-1080",
    "GTX-1070-Ti",
    "GTX-1070",
    "GTX-1060",
    "Titan-RTX",
    "Titan-V",
    "Titan-Xp",
    "P100",
    "P40",
    "P4",
    "A2",
    "A16",
};

// Names that people write and that squeezing does not make canonical.
constexpr struct {
  const char* squeezed;
  const char* name;
} kAliases[] = {
    {"H100SXM5", "H100-SXM"},       {"H10080GBHBM3", "H100-SXM"},   {"A100SXM480GB", "A100-80GB"},
    {"A100SXM440GB", "A100-40GB"},  {"A100PCIE80GB", "A100-80GB"},  {"A100PCIE40GB", "A100-40GB"},
    {"A6000", "RTX-A6000"},         {"6000ADA", "RTX-6000-Ada"},    {"RTX4070S", "RTX-4070-Super"},
    {"RTX2080S", "RTX-2080-Super"}, {"RTX2070S", "RTX-2070-Super"}, {"RTX2060S", "RTX-2060-Super"},
    {"GTX1660S", "GTX-1660-Super"}, {"P100PCIE", "P100"},           {"P100SXM2", "P100"},
};

bool MemoryFits(const Model& model, absl::string_view squeezed, int64_t memory_bytes) {
  if (model.memory_gb == 0) return true;
  if (memory_bytes == 0) {
    // The name may say the size. If it does not, the smallest model of that name counts.
    for (const Model& other : kModels) {
      if (absl::string_view(other.squeezed) != model.squeezed || other.memory_gb == 0) continue;
      if (absl::StrContains(squeezed, absl::StrCat(model.squeezed, other.memory_gb, "GB")) ||
          absl::EndsWith(squeezed, absl::StrCat(other.memory_gb, "GB"))) {
        return other.memory_gb == model.memory_gb;
      }
    }
    return true;
  }
  // Drivers report a little more or less than the nominal size; the next model has twice as much.
  return static_cast<double>(memory_bytes) / 1e9 <= 1.3 * model.memory_gb;
}

bool IsGpuDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }

// A name without its separators, which remembers where they were.
class SqueezedName {
 public:
  explicit SqueezedName(absl::string_view text) {
    bool apart = true;
    for (const char c : text) {
      if (!absl::ascii_isalnum(static_cast<unsigned char>(c))) {
        apart = true;
        continue;
      }
      text_ += absl::ascii_toupper(static_cast<unsigned char>(c));
      apart_.push_back(apart);
      apart = false;
    }
  }
  const std::string& text() const { return text_; }

  // True when it has `part`. A number at the end of `part` must end there, too: "RTX A1000" has no
  // "A100", "H100 80GB" has "H100".
  bool Has(absl::string_view part) const {
    const absl::string_view text = text_;
    for (size_t at = text.find(part); at != absl::string_view::npos; at = text.find(part, at + 1)) {
      const size_t end = at + part.size();
      const bool goes_on = end < text_.size() && !part.empty() && IsGpuDigit(part.back()) &&
                           IsGpuDigit(text_[end]) && !apart_[end];
      if (!goes_on) return true;
    }
    return false;
  }

 private:
  std::string text_;
  std::vector<bool> apart_;  // a separator is before the character
};

// Returns the squeezed words of a name without its maker, its brand and its memory.
std::string OwnWords(absl::string_view name) {
  std::string words;
  for (const absl::string_view word :
       absl::StrSplit(name, absl::ByAnyChar(" -_()/,"), absl::SkipEmpty())) {
    const std::string squeezed = SqueezeGpuName(word);
    const absl::string_view size = absl::StripSuffix(squeezed, "GB");
    const bool is_memory = size.size() < squeezed.size() && !size.empty() &&
                           std::all_of(size.begin(), size.end(), IsGpuDigit);
    if (is_memory || squeezed == "NVIDIA" || squeezed == "GEFORCE" || squeezed == "TESLA" ||
        squeezed == "QUADRO" || squeezed == "GB" || squeezed == "GPU" || squeezed == "AMD") {
      continue;
    }
    // "(48 GB)" is two words.
    if (std::all_of(squeezed.begin(), squeezed.end(), IsGpuDigit) &&
        absl::StrContains(name, absl::StrCat(squeezed, " GB"))) {
      continue;
    }
    words += squeezed;
  }
  return words;
}

bool IsInTable(absl::string_view name) {
  return std::any_of(std::begin(kModels), std::end(kModels),
                     [name](const Model& model) { return name == model.name; });
}

bool IsCanonical(absl::string_view name) {
  const std::vector<std::string>& names = CanonicalGpuNames();
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::string SqueezeGpuName(absl::string_view text) { return SqueezedName(text).text(); }

const std::vector<std::string>& CanonicalGpuNames() {
  static const std::vector<std::string>* const names = [] {
    auto* list = new std::vector<std::string>;
    for (const Model& model : kModels) {
      if (list->empty() || list->back() != model.name) list->push_back(model.name);
    }
    list->insert(list->end(), std::begin(kOtherModels), std::end(kOtherModels));
    return list;
  }();
  return *names;
}

std::string CanonicalGpuName(absl::string_view name, int64_t memory_bytes) {
  const SqueezedName squeezed(name);
  for (const Model& model : kModels) {
    if (squeezed.Has(model.squeezed) && absl::StrContains(squeezed.text(), model.also) &&
        MemoryFits(model, squeezed.text(), memory_bytes)) {
      return model.name;
    }
  }
  // "A6000 (48 GB)", as people write it, and the models outside the table.
  return FindGpuName(OwnWords(name)).value_or(std::string(name));
}

bool KeepsGpuPromise(const NamedGpu& promised, const NamedGpu& found) {
  const std::string one = CanonicalGpuName(promised.name, promised.memory_bytes);
  const std::string other = CanonicalGpuName(found.name, found.memory_bytes);
  if (one == other || GpuIsModel(one, other) || GpuIsModel(other, one)) return true;
  if (IsInTable(one) || IsInTable(other) || (IsCanonical(one) && IsCanonical(other))) return false;
  const std::string words = OwnWords(one), others = OwnWords(other);
  const bool part = !words.empty() && !others.empty() &&
                    (absl::StrContains(words, others) || absl::StrContains(others, words));
  if (words == others && !words.empty()) return true;
  if (promised.memory_bytes == 0 || found.memory_bytes == 0) return part;
  const double ratio =
      static_cast<double>(found.memory_bytes) / static_cast<double>(promised.memory_bytes);
  return ratio >= 0.9 && ratio <= 1.12;
}

std::optional<std::string> FindGpuName(absl::string_view text) {
  const std::string squeezed = SqueezeGpuName(text);
  for (const std::string& name : CanonicalGpuNames()) {
    const std::string candidate = SqueezeGpuName(name);
    // "4090" and "RTX4090" mean the same card, as "1080 Ti" and "GTX 1080 Ti", or "Tesla P100" and
    // "P100".
    if (candidate == squeezed || candidate == absl::StrCat("RTX", squeezed) ||
        candidate == absl::StrCat("GTX", squeezed) ||
        squeezed == absl::StrCat("TESLA", candidate)) {
      return name;
    }
  }
  for (const auto& alias : kAliases) {
    if (squeezed == alias.squeezed) return alias.name;
  }
  return std::nullopt;
}

bool GpuIsModel(absl::string_view name, absl::string_view asked) {
  if (name == asked) return true;
  for (const Model& model : kModels) {
    if (name == model.name && asked == model.family) return !asked.empty();
  }
  return false;
}

bool GpuSatisfies(const Requirements::Gpu& asked, absl::string_view name, int64_t memory_bytes) {
  if (!asked.name.empty() && !GpuIsModel(name, asked.name)) return false;
  const double memory = static_cast<double>(memory_bytes);
  return memory >= 0.93 * static_cast<double>(asked.min_memory_bytes) &&
         (asked.max_memory_bytes == 0 ||
          memory <= 1.08 * static_cast<double>(asked.max_memory_bytes));
}

}  // namespace gpuctl
