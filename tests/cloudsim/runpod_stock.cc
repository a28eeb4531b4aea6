#include "tests/cloudsim/runpod_stock.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace gpuctl::cloudsim {
namespace {

std::vector<RunpodGpu> RunpodGpus() {
  return {
      {"NVIDIA GeForce RTX 4090",
       "RTX 4090",
       "ADA_24",
       "NVIDIA",
       24,
       0.74,
       0.34,
       8,
       {"12.4", "12.8"},
       {{"EU-RO-1", 8}, {"US-TX-3", 4}, {"US-KS-2", 1}},
       {{"EU-RO-1", 4}}},
      {"NVIDIA RTX 2000 Ada Generation",
       "RTX 2000 Ada",
       "ADA_16",
       "NVIDIA",
       16,
       0.24,
       0.16,
       8,
       {"12.8"},
       {{"EU-RO-1", 2}},
       {}},
      {"NVIDIA A100 80GB PCIe",
       "A100 PCIe",
       "AMPERE_80",
       "NVIDIA",
       80,
       1.64,
       1.19,
       8,
       {"12.4", "12.8"},
       {{"US-KS-2", 8}, {"EU-RO-1", 8}},
       {}},
      {"NVIDIA H100 80GB HBM3",
       "H100 SXM",
       "HOPPER_80",
       "NVIDIA",
       80,
       2.99,
       2.69,
       8,
       {"12.4", "12.8"},
       {{"US-TX-3", 16}, {"AP-IN-1", 8}},
       {}},
      {"NVIDIA H100 NVL", "H100 NVL", "HOPPER_80", "NVIDIA", 94, 2.59, 1.39, 8, {"12.8"}, {}, {}},
      {"NVIDIA H200",
       "H200 SXM",
       "HOPPER_141",
       "NVIDIA",
       141,
       3.99,
       3.59,
       8,
       {"12.8"},
       {{"US-TX-3", 8}},
       {}},
      {"AMD Instinct MI300X OAM", "MI300X", "", "AMD", 192, 2.39, 0.5, 8, {}, {{"EU-RO-1", 2}}, {}},
  };
}

}  // namespace

RunpodStock::RunpodStock()
    : gpus(RunpodGpus()),
      centers({{"EU-RO-1", "EUROPE", "RO", {"STANDARD"}},
               {"EU-FR-1", "EUROPE", "FR", {"HIGH_PERFORMANCE"}},
               {"US-TX-3", "NORTH_AMERICA", "US", {"STANDARD", "HIGH_PERFORMANCE"}},
               {"US-KS-2", "NORTH_AMERICA", "US", {"STANDARD"}},
               {"AP-IN-1", "ASIA", "IN", {}}}) {}

RunpodGpu* RunpodStock::Find(const std::string& id) {
  for (RunpodGpu& gpu : gpus) {
    if (gpu.id == id) return &gpu;
  }
  return nullptr;
}

// The change may name a "cloud": COMMUNITY, or else SECURE.
std::string RunpodStock::Set(const Json& change) {
  RunpodGpu* gpu = Find(StringAt(change, "item"));
  if (gpu == nullptr) return absl::StrCat("no GPU type ", StringAt(change, "item"));
  auto& places = StringAt(change, "cloud") == "COMMUNITY" ? gpu->community : gpu->secure;
  const std::string region = StringAt(change, "region");
  const int count = static_cast<int>(IntegerAt(change, "count"));
  if (!region.empty()) places[region] = count;
  for (auto& place : places) {
    if (region.empty()) place.second = count;
  }
  return "";
}

std::string RunpodStock::Add(const Json& item) {
  const RunpodGpu* like = Find(StringAt(item, "like"));
  if (like == nullptr) return absl::StrCat("no GPU type ", StringAt(item, "like"));
  RunpodGpu gpu = *like;
  gpu.id = StringAt(item, "item");
  gpu.name = StringAt(item, "gpu", gpu.id);
  gpu.driver_name = StringAt(item, "driver_gpu");
  gpu.pool.clear();
  gpu.memory_gb = static_cast<int>(IntegerAt(item, "memory_mib", gpu.memory_gb * 1024) / 1024);
  gpu.secure_usd = NumberAt(item, "usd_per_hour", gpu.secure_usd);
  gpu.community_usd = NumberAt(item, "usd_per_hour", gpu.community_usd);
  gpus.push_back(gpu);
  return "";
}

std::string RunpodStock::SetPrice(const Json& change) {
  RunpodGpu* gpu = Find(StringAt(change, "item"));
  if (gpu == nullptr) return "no such GPU type";
  (StringAt(change, "cloud") == "COMMUNITY" ? gpu->community_usd : gpu->secure_usd) =
      NumberAt(change, "usd_per_hour");
  return "";
}

Json RunpodStock::ToJson() const {
  Json all = Json::object();
  for (const RunpodGpu& gpu : gpus) {
    all[gpu.id] = {{"secure", gpu.secure}, {"community", gpu.community}};
  }
  return all;
}

void RunpodStock::Return(const Instance& instance) {
  RunpodGpu* gpu = Find(instance.product);
  if (gpu == nullptr) return;
  auto& places = StringAt(instance.extra, "cloud") == "COMMUNITY" ? gpu->community : gpu->secure;
  places[instance.region] += instance.gpu_count;
}

}  // namespace gpuctl::cloudsim
