// The stock of Vast.ai, and what its accounts keep beside instances.
#ifndef GPUCTL_TESTS_CLOUDSIM_VAST_STOCK_H_
#define GPUCTL_TESTS_CLOUDSIM_VAST_STOCK_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/cloudsim/service.h"

namespace gpuctl::cloudsim {

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

struct VastStock {
  VastStock();
  VastOffer* Find(int64_t id);
  // As in Service.
  std::string Set(const Json& change);
  std::string Add(const Json& item);
  std::string SetPrice(const Json& change);
  Json ToJson() const;
  void Return(const Instance& instance);

  std::vector<VastOffer> offers;
  Json tables = Json::object();  // API keys, volumes, price increases, commands
};

// Returns the world's one.
VastStock& VastStockOf(const World& world);

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_VAST_STOCK_H_
