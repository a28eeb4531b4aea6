// The initial stock of the three markets; /_sim/stock and /_sim/price change it.
#ifndef GPUCTL_TESTS_CLOUDSIM_STOCK_H_
#define GPUCTL_TESTS_CLOUDSIM_STOCK_H_

#include <map>
#include <string>
#include <vector>

#include "tests/cloudsim/json_check.h"

namespace gpuctl::cloudsim {

struct RunpodGpu {
  std::string id;
  std::string name;
  std::string pool;
  std::string manufacturer = "NVIDIA";
  int memory_gb = 0;
  double secure_usd = 0;  // an hour, for one
  double community_usd = 0;
  int max_count = 8;
  std::vector<std::string> cuda;
  std::map<std::string, int> secure;  // data centre -> available GPUs
  std::map<std::string, int> community;
  std::string driver_name;  // as nvidia-smi shows it; empty: its id
};

struct RunpodDataCenter {
  std::string id;
  std::string region;
  std::string country;
  std::vector<std::string> volume_types;
};

struct LambdaType {
  std::string name;
  std::string description;
  std::string gpu_description;
  std::string gpu_name;  // as nvidia-smi shows it
  int gpu_memory_mib = 0;
  int cents = 0;  // an hour
  int vcpus = 0;
  int memory_gib = 0;
  int storage_gib = 0;
  int gpus = 0;
  std::string architecture = "x86_64";
  std::map<std::string, int> regions;  // the available numbers
};

// One machine with one offer.
struct VastOffer {
  int64_t id = 0;
  int64_t machine_id = 0;
  std::string gpu_name;
  int gpus = 0;
  int gpu_ram_mb = 0;
  double dph_base = 0;
  double min_bid = 0;
  double storage_cost = 0.15;  // USD a GB and month
  double up_cost = 0.003;      // USD a GB
  double down_cost = 0.003;
  double reliability = 0.99;
  double cuda = 12.8;
  double inet_mbps = 800;
  double disk_gb = 500;
  std::string geolocation;
  int direct_ports = 64;      // 0: ssh goes by the service's own host
  double duration_s = 2.5e6;  // the longest contract
  bool verified = true;
  std::string compute_cap = "890";
  std::string driver_name;  // as nvidia-smi shows it; empty: made from gpu_name
  bool rented = false;
  bool gone = false;
};

struct Stock {
  std::vector<RunpodGpu> runpod;
  std::vector<RunpodDataCenter> data_centers;
  std::vector<LambdaType> lambda;
  std::map<std::string, std::string> lambda_regions;  // name -> description
  std::vector<VastOffer> vast;

  RunpodGpu* FindRunpod(const std::string& id);
  LambdaType* FindLambda(const std::string& name);
  VastOffer* FindVast(int64_t id);
};

Stock DefaultStock();

// Sets the available number: {"service", "item", "region"?, "cloud"?, "count"}; an absent region
// means all. For Vast, `item` is an offer id, `count` 0 or 1, and "gone": true removes it for ever;
// "duration_s" and "direct_ports" change the offer.
// Returns "", or the error.
std::string SetStock(Stock* stock, const Json& change);
// Adds an item that is like another one: {"service", "like", "item"[, "gpu"][, "driver_gpu"]
// [, "memory_mib"][, "usd_per_hour"]}; for Vast also "duration_s" and "direct_ports". `gpu` is the
// market's name of the model and `driver_gpu` that of its driver. Returns "", or the error.
std::string AddStock(Stock* stock, const Json& item);
// Sets a price: {"service", "item", "usd_per_hour"[, "cloud"][, "min_bid"]}.
std::string SetPrice(Stock* stock, const Json& change);
Json StockJson(const Stock& stock);

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_STOCK_H_
