// What is asked of a rental market and what it answers, in words common to all of them.
#ifndef GPUCTL_PROVISIONING_TYPES_H_
#define GPUCTL_PROVISIONING_TYPES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace gpuctl {

// Constraints on hardware, price and place. Empty or zero: no constraint.
struct Requirements {
  struct Gpu {
    std::string name;  // canonical; empty: any with enough memory
    int count = 1;
    int64_t min_memory_bytes = 0;
    int64_t max_memory_bytes = 0;
  };
  std::vector<Gpu> gpus;  // alternatives, first choice first
  int64_t disk_bytes = 0;
  std::optional<double> max_price_usd_per_hour;
};

// How ssh reaches a machine.
struct SshAddress {
  std::string host;
  int port = 22;
  std::string user;
  std::vector<std::string> identity_files;
  std::string proxy_command;
};

// Something a provider says can be rented now.
struct Offer {
  std::string provider;
  std::string ref;  // the provider's own, opaque
  std::string description;
  double price_usd_per_hour = 0;
};

using InstanceId = std::string;

struct RentOptions {
  std::string ssh_public_key;  // one line of authorized_keys; empty where the user's keys are there
  std::string start_script;
};

// A rented machine, or, for the providers that rent nothing, the user's own.
struct Instance {
  enum class State { kStarting, kRunning, kStopping };
  InstanceId id;
  std::string label;  // empty: nothing bills under it
  State state = State::kStarting;
  std::optional<SshAddress> address;  // absent until known; of no use to the local provider
  double price_usd_per_hour = 0;
};

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_TYPES_H_
