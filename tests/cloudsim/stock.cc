#include "tests/cloudsim/stock.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace gpuctl::cloudsim {
namespace {

std::vector<RunpodGpu> RunpodStock() {
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

std::vector<LambdaType> LambdaStock() {
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

VastOffer Machine(int64_t id, const char* gpu, int gpus, int ram_mb, double dph,
                  const char* where) {
  VastOffer offer;
  offer.id = id;
  offer.machine_id = id - 9'000'000;
  offer.gpu_name = gpu;
  offer.gpus = gpus;
  offer.gpu_ram_mb = ram_mb;
  offer.dph_base = dph;
  offer.min_bid = std::round(dph * 600) / 1000;
  offer.geolocation = where;
  return offer;
}

std::vector<VastOffer> VastStock() {
  std::vector<VastOffer> offers = {
      Machine(9'100'001, "RTX 4090", 1, 24564, 0.29, "Sweden, SE"),
      Machine(9'100'002, "RTX 4090", 1, 24564, 0.31, "Texas, US"),
      Machine(9'100'003, "RTX 4090", 2, 24564, 0.62, "Norway, NO"),
      Machine(9'100'004, "RTX 4090", 1, 24564, 0.22, "Vietnam, VN"),   // no port open
      Machine(9'100'005, "RTX 4090", 1, 24564, 0.19, "Bulgaria, BG"),  // not verified
      Machine(9'100'006, "RTX 3090", 1, 24576, 0.14, "Quebec, CA"),
      Machine(9'100'007, "A100 SXM4", 1, 81920, 0.89, "Washington, US"),
      Machine(9'100'008, "H100 SXM", 1, 81559, 2.1, "Texas, US"),
      Machine(9'100'009, "H100 SXM", 8, 81559, 17.6, "Texas, US"),
      Machine(9'100'010, "H200", 1, 143771, 2.6, "Iceland, IS"),
  };
  offers[3].direct_ports = 0;
  offers[4].verified = false;
  offers[4].reliability = 0.87;
  offers[6].compute_cap = "800";
  for (size_t i = 7; i < offers.size(); ++i) offers[i].compute_cap = "900";
  return offers;
}

std::string SetRunpodStock(Stock* stock, const Json& change, const std::string& item, int count) {
  RunpodGpu* gpu = stock->FindRunpod(item);
  if (gpu == nullptr) return absl::StrCat("no GPU type ", item);
  auto& places = StringAt(change, "cloud") == "COMMUNITY" ? gpu->community : gpu->secure;
  const std::string region = StringAt(change, "region");
  if (!region.empty()) places[region] = count;
  for (auto& place : places) {
    if (region.empty()) place.second = count;
  }
  return "";
}

void SetTerms(VastOffer* offer, const Json& change) {
  offer->duration_s = NumberAt(change, "duration_s", offer->duration_s);
  offer->direct_ports = static_cast<int>(IntegerAt(change, "direct_ports", offer->direct_ports));
}

std::string AddRunpod(Stock* stock, const Json& item) {
  const RunpodGpu* like = stock->FindRunpod(StringAt(item, "like"));
  if (like == nullptr) return absl::StrCat("no GPU type ", StringAt(item, "like"));
  RunpodGpu gpu = *like;
  gpu.id = StringAt(item, "item");
  gpu.name = StringAt(item, "gpu", gpu.id);
  gpu.driver_name = StringAt(item, "driver_gpu");
  gpu.pool.clear();
  gpu.memory_gb = static_cast<int>(IntegerAt(item, "memory_mib", gpu.memory_gb * 1024) / 1024);
  gpu.secure_usd = NumberAt(item, "usd_per_hour", gpu.secure_usd);
  gpu.community_usd = NumberAt(item, "usd_per_hour", gpu.community_usd);
  stock->runpod.push_back(gpu);
  return "";
}

std::string AddLambda(Stock* stock, const Json& item) {
  const LambdaType* like = stock->FindLambda(StringAt(item, "like"));
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
  stock->lambda.push_back(type);
  return "";
}

std::string AddVast(Stock* stock, const Json& item) {
  const VastOffer* like = stock->FindVast(IntegerAt(item, "like"));
  if (like == nullptr) return absl::StrCat("no offer ", IntegerAt(item, "like"));
  VastOffer offer = *like;
  offer.id = IntegerAt(item, "item");
  offer.machine_id = offer.id - 9'000'000;
  offer.gpu_name = StringAt(item, "gpu", offer.gpu_name);
  offer.driver_name = StringAt(item, "driver_gpu");
  offer.gpu_ram_mb = static_cast<int>(IntegerAt(item, "memory_mib", offer.gpu_ram_mb));
  offer.dph_base = NumberAt(item, "usd_per_hour", offer.dph_base);
  offer.rented = offer.gone = false;
  SetTerms(&offer, item);
  stock->vast.push_back(offer);
  return "";
}

}  // namespace

RunpodGpu* Stock::FindRunpod(const std::string& id) {
  for (RunpodGpu& gpu : runpod) {
    if (gpu.id == id) return &gpu;
  }
  return nullptr;
}

LambdaType* Stock::FindLambda(const std::string& name) {
  for (LambdaType& type : lambda) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

VastOffer* Stock::FindVast(int64_t id) {
  for (VastOffer& offer : vast) {
    if (offer.id == id) return &offer;
  }
  return nullptr;
}

Stock DefaultStock() {
  Stock stock;
  stock.runpod = RunpodStock();
  stock.data_centers = {{"EU-RO-1", "EUROPE", "RO", {"STANDARD"}},
                        {"EU-FR-1", "EUROPE", "FR", {"HIGH_PERFORMANCE"}},
                        {"US-TX-3", "NORTH_AMERICA", "US", {"STANDARD", "HIGH_PERFORMANCE"}},
                        {"US-KS-2", "NORTH_AMERICA", "US", {"STANDARD"}},
                        {"AP-IN-1", "ASIA", "IN", {}}};
  stock.lambda = LambdaStock();
  stock.lambda_regions = {{"us-west-1", "California, USA"},
                          {"us-west-3", "Utah, USA"},
                          {"us-east-1", "Virginia, USA"},
                          {"us-east-3", "Washington DC, USA"},
                          {"us-south-2", "North Texas, USA"}};
  stock.vast = VastStock();
  return stock;
}

std::string SetStock(Stock* stock, const Json& change) {
  const std::string service = StringAt(change, "service");
  const int count = static_cast<int>(IntegerAt(change, "count"));
  if (service == "runpod") return SetRunpodStock(stock, change, StringAt(change, "item"), count);
  if (service == "lambda") {
    LambdaType* type = stock->FindLambda(StringAt(change, "item"));
    if (type == nullptr) return absl::StrCat("no instance type ", StringAt(change, "item"));
    const std::string region = StringAt(change, "region");
    if (!region.empty()) type->regions[region] = count;
    for (auto& place : type->regions) {
      if (region.empty()) place.second = count;
    }
    return "";
  }
  if (service == "vast") {
    VastOffer* offer = stock->FindVast(IntegerAt(change, "item"));
    if (offer == nullptr) return absl::StrCat("no offer ", IntegerAt(change, "item"));
    offer->gone = BoolAt(change, "gone", offer->gone);
    if (change.contains("count")) offer->rented = count == 0;
    SetTerms(offer, change);
    return "";
  }
  return absl::StrCat("no service ", service);
}

std::string AddStock(Stock* stock, const Json& item) {
  const std::string service = StringAt(item, "service");
  if (service == "runpod") return AddRunpod(stock, item);
  if (service == "lambda") return AddLambda(stock, item);
  if (service == "vast") return AddVast(stock, item);
  return absl::StrCat("no service ", service);
}

std::string SetPrice(Stock* stock, const Json& change) {
  const std::string service = StringAt(change, "service");
  const double usd = NumberAt(change, "usd_per_hour");
  if (service == "runpod") {
    RunpodGpu* gpu = stock->FindRunpod(StringAt(change, "item"));
    if (gpu == nullptr) return "no such GPU type";
    (StringAt(change, "cloud") == "COMMUNITY" ? gpu->community_usd : gpu->secure_usd) = usd;
    return "";
  }
  if (service == "lambda") {
    LambdaType* type = stock->FindLambda(StringAt(change, "item"));
    if (type == nullptr) return "no such instance type";
    type->cents = static_cast<int>(std::lround(usd * 100));
    return "";
  }
  if (service == "vast") {
    VastOffer* offer = stock->FindVast(IntegerAt(change, "item"));
    if (offer == nullptr) return "no such offer";
    offer->dph_base = NumberAt(change, "usd_per_hour", offer->dph_base);
    offer->min_bid = NumberAt(change, "min_bid", offer->min_bid);
    return "";
  }
  return absl::StrCat("no service ", service);
}

Json StockJson(const Stock& stock) {
  Json all = {{"runpod", Json::object()}, {"lambda", Json::object()}, {"vast", Json::object()}};
  for (const RunpodGpu& gpu : stock.runpod) {
    all["runpod"][gpu.id] = {{"secure", gpu.secure}, {"community", gpu.community}};
  }
  for (const LambdaType& type : stock.lambda) all["lambda"][type.name] = type.regions;
  for (const VastOffer& offer : stock.vast) {
    all["vast"][absl::StrCat(offer.id)] = {{"rented", offer.rented}, {"gone", offer.gone}};
  }
  return all;
}

}  // namespace gpuctl::cloudsim
