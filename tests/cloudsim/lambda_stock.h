// The stock of Lambda Cloud, and what its accounts keep beside instances.
#ifndef GPUCTL_TESTS_CLOUDSIM_LAMBDA_STOCK_H_
#define GPUCTL_TESTS_CLOUDSIM_LAMBDA_STOCK_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/cloudsim/service.h"

namespace gpuctl::cloudsim {

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

struct LambdaStock {
  LambdaStock();
  LambdaType* Find(const std::string& name);
  // As in Service.
  std::string Set(const Json& change);
  std::string Add(const Json& item);
  std::string SetPrice(const Json& change);
  Json ToJson() const;
  void Return(const Instance& instance);

  std::vector<LambdaType> types;
  std::map<std::string, std::string> regions;  // name -> description
  Json tables = Json::object();                // file systems, firewall
};

// Returns the world's one.
LambdaStock& LambdaStockOf(const World& world);

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_LAMBDA_STOCK_H_
