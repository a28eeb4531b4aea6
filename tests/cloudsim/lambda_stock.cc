#include "tests/cloudsim/lambda_stock.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace gpuctl::cloudsim {
namespace {

std::vector<LambdaType> LambdaTypes() {
  return {
      {"gpu_1x_a10",
       "1x A10 (24 GB PCIe)",
       "A10 (24 GB PCIe)",
       "NVIDIA A10",
       23028,
       75,
       30,
       200,
       1400,
       1,
       "x86_64",
       {{"us-west-1", 4}, {"us-east-1", 2}}},
      {"gpu_1x_a100_sxm4",
       "1x A100 (40 GB SXM4)",
       "A100 (40 GB SXM4)",
       "NVIDIA A100-SXM4-40GB",
       40960,
       129,
       30,
       200,
       512,
       1,
       "x86_64",
       {{"us-east-1", 2}}},
      {"gpu_1x_h100_pcie",
       "1x H100 (80 GB PCIe)",
       "H100 (80 GB PCIe)",
       "NVIDIA H100 PCIe",
       81559,
       249,
       26,
       200,
       1024,
       1,
       "x86_64",
       {{"us-west-3", 2}}},
      {"gpu_1x_h100_sxm5",
       "1x H100 (80 GB SXM5)",
       "H100 (80 GB SXM5)",
       "NVIDIA H100 80GB HBM3",
       81559,
       329,
       26,
       225,
       2816,
       1,
       "x86_64",
       {}},
      {"gpu_8x_h100_sxm5",
       "8x H100 (80 GB SXM5)",
       "H100 (80 GB SXM5)",
       "NVIDIA H100 80GB HBM3",
       81559,
       2392,
       208,
       1800,
       22000,
       8,
       "x86_64",
       {{"us-south-2", 1}}},
      {"gpu_1x_gh200",
       "1x GH200 (96 GB)",
       "GH200 (96 GB)",
       "NVIDIA GH200 480GB",
       97871,
       149,
       64,
       432,
       4096,
       1,
       "arm64",
       {{"us-east-3", 2}}},
  };
}

}  // namespace

LambdaStock::LambdaStock()
    : types(LambdaTypes()),
      regions({{"us-west-1", "California, USA"},
               {"us-west-3", "Utah, USA"},
               {"us-east-1", "Virginia, USA"},
               {"us-east-3", "Washington DC, USA"},
               {"us-south-2", "North Texas, USA"}}) {}

LambdaType* LambdaStock::Find(const std::string& name) {
  for (LambdaType& type : types) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

std::string LambdaStock::Set(const Json& change) {
  LambdaType* type = Find(StringAt(change, "item"));
  if (type == nullptr) return absl::StrCat("no instance type ", StringAt(change, "item"));
  const std::string region = StringAt(change, "region");
  const int count = static_cast<int>(IntegerAt(change, "count"));
  if (!region.empty()) type->regions[region] = count;
  for (auto& place : type->regions) {
    if (region.empty()) place.second = count;
  }
  return "";
}

std::string LambdaStock::Add(const Json& item) {
  const LambdaType* like = Find(StringAt(item, "like"));
  if (like == nullptr) return absl::StrCat("no instance type ", StringAt(item, "like"));
  LambdaType type = *like;
  type.name = StringAt(item, "item");
  type.gpu_description = StringAt(item, "gpu", type.gpu_description);
  type.description = absl::StrCat(type.gpus, "x ", type.gpu_description);
  type.gpu_name = StringAt(item, "driver_gpu", absl::StrCat("NVIDIA ", type.gpu_description));
  type.gpu_memory_mib = static_cast<int>(IntegerAt(item, "memory_mib", type.gpu_memory_mib));
  if (item.contains("usd_per_hour")) {
    type.cents = static_cast<int>(std::lround(NumberAt(item, "usd_per_hour") * 100));
  }
  types.push_back(type);
  return "";
}

std::string LambdaStock::SetPrice(const Json& change) {
  LambdaType* type = Find(StringAt(change, "item"));
  if (type == nullptr) return "no such instance type";
  type->cents = static_cast<int>(std::lround(NumberAt(change, "usd_per_hour") * 100));
  return "";
}

Json LambdaStock::ToJson() const {
  Json all = Json::object();
  for (const LambdaType& type : types) all[type.name] = type.regions;
  return all;
}

void LambdaStock::Return(const Instance& instance) {
  if (LambdaType* type = Find(instance.product)) ++type->regions[instance.region];
}

}  // namespace gpuctl::cloudsim
