// The stock of Runpod, and what its accounts keep beside instances.
#ifndef GPUCTL_TESTS_CLOUDSIM_RUNPOD_STOCK_H_
#define GPUCTL_TESTS_CLOUDSIM_RUNPOD_STOCK_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/cloudsim/service.h"

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
  std::string driver_name = {};  // as nvidia-smi shows it; empty: its id
};

struct RunpodDataCenter {
  std::string id;
  std::string region;
  std::string country;
  std::vector<std::string> volume_types;
};

struct RunpodStock {
  RunpodStock();
  RunpodGpu* Find(const std::string& id);
  // As in Service.
  std::string Set(const Json& change);
  std::string Add(const Json& item);
  std::string SetPrice(const Json& change);
  Json ToJson() const;
  void Return(const Instance& instance);

  std::vector<RunpodGpu> gpus;
  std::vector<RunpodDataCenter> centers;
  Json tables = Json::object();  // volumes, templates, registries
};

// Returns the world's one.
RunpodStock& RunpodStockOf(const World& world);

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_RUNPOD_STOCK_H_
