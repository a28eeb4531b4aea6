#include "trainer/config/gpus.h"

#include <cctype>

#include "trainer/base/error.h"

namespace gpuctl::trainer {
namespace {

std::string Plain(const std::string& name) {
  std::string plain;
  for (const char c : name) {
    if (c != ' ' && c != '-' && c != '_') {
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  // Forms that have the same figures.
  if (plain == "a10080gb") return "a100";
  if (plain == "h100sxm") return "h100";
  return plain;
}

}  // namespace

const std::vector<Gpu>& KnownGpus() {
  static const std::vector<Gpu> gpus = {
      {"L4", 24, 121},        {"A10", 24, 125},          {"RTX 3090", 24, 71},
      {"RTX 4090", 24, 165},  {"RTX 5090", 32, 209},     {"A100-40GB", 40, 312},
      {"RTX A6000", 48, 155}, {"A40", 48, 150},          {"L40", 48, 181},
      {"L40S", 48, 362},      {"RTX 6000 Ada", 48, 364}, {"A100", 80, 312},
      {"H100", 80, 989},      {"H100-PCIe", 80, 756},    {"H100-NVL", 94, 835},
      {"GH200", 96, 989},     {"H200", 141, 989},        {"B200", 180, 2250}};
  return gpus;
}

std::optional<Gpu> FindKnownGpu(const std::string& name) {
  for (const Gpu& gpu : KnownGpus()) {
    if (Plain(gpu.name) == Plain(name)) return gpu;
  }
  return std::nullopt;
}

Gpu FindGpu(const std::string& name) {
  if (const std::optional<Gpu> gpu = FindKnownGpu(name)) return *gpu;
  std::string list;
  for (const Gpu& gpu : KnownGpus()) list += (list.empty() ? "" : ", ") + gpu.name;
  throw ConfigError("preflight: --gpu " + name + " is none of " + list);
}

}  // namespace gpuctl::trainer
