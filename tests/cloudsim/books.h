// Instances and their costs.
#ifndef GPUCTL_TESTS_CLOUDSIM_BOOKS_H_
#define GPUCTL_TESTS_CLOUDSIM_BOOKS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/cloudsim/json_check.h"
#include "tests/cloudsim/node.h"

namespace gpuctl::cloudsim {

// One item that costs while it exists.
struct Charge {
  std::string kind;  // gpu, disk
  double usd_per_hour = 0;
  int64_t quantum_ms = 1000;  // begun quanta count as whole
  int64_t from_ms = 0;
  int64_t to_ms = 0;  // 0: still running
};

// Returns the cost of `charge` until `now_ms`, in USD.
double Cost(const Charge& charge, int64_t now_ms);

// A network volume or file system. It has its own directory for its files.
struct StoredVolume {
  std::string service;
  std::string id;
  std::string account;  // its name
  std::string name;
  std::string place;  // a data center, a region, a machine
  std::string dir;
  int64_t used_bytes = 0;  // when it was last measured
  std::vector<Charge> charges;
  bool gone = false;
};

// The faults of one instance; set when it is made (see faults.h), or by the control route.
struct Trouble {
  bool no_endpoint = false;  // running, but without a known address
  bool ssh_never = false;
  double ssh_late_s = 0;
  std::string wrong_gpu;  // the real GPU of the machine
  int wrong_gpu_count = -1;
  int64_t wrong_gpu_memory_mib = 0;  // 0: as promised
  int cuda_error = 0;  // the driver's answer to every program, although nvidia-smi looks healthy
  bool boot_fails = false;  // failed, unhealthy, container did not start
  bool boot_never = false;
  bool image_missing = false;    // its image cannot be pulled (Vast says so)
  std::string image_error;       // the words of its daemon, when its image is private
  bool offline = false;          // the service does not hear from it
  bool hidden = false;           // the service shows it nowhere, and it goes on
  bool volume_missing = false;   // the requested mount is missing
  bool mute_end = false;         // its ssh gateway answers on after its end
  bool no_direct_ports = false;  // its host opens none, whatever the offer said (Vast)
  int list_lag = 0;              // absent from this many lists
  double list_lag_s = 0;
  int ended_lag = 0;            // still shown in this many lists after its end
  double preempt_after_s = -1;  // after its boot
  double price_factor = 1;      // the price rises by this …
  double price_after_s = -1;    // … this long after its creation
};

enum class Phase { kBooting, kRunning, kStopped, kFailed, kEnding, kEnded };
const char* PhaseName(Phase phase);

struct Instance {
  std::string service;
  std::string id;
  std::string account;  // its name
  std::string label;
  std::string product;  // the rented GPU type, instance type or offer
  std::string region;
  std::string gpu_name;
  int gpu_count = 0;
  double usd_per_hour = 0;  // of the GPUs
  Phase phase = Phase::kBooting;
  int64_t created_ms = 0;
  int64_t boot_at_ms = 0;
  int64_t ssh_at_ms = 0;
  int64_t started_ms = 0;
  int64_t end_at_ms = 0;
  int64_t ended_ms = 0;
  std::string ended_by;
  std::string message;  // why it failed or stopped
  std::vector<Json> states;
  std::vector<Charge> charges;
  double traffic_usd = 0;
  int64_t sent_bytes = 0;
  int64_t received_bytes = 0;
  bool spot = false;
  bool holds_stock = false;
  Json request;     // as it came
  Json extra;       // data for its service only
  std::string key;  // the instance's own API key
  Trouble trouble;
  NodeSpec spec;
  std::unique_ptr<Node> node;

  // Sets its GPUs: `market_name` is the market's name of the model; `row` has their number as
  // "gpus", and one of them as nvidia-smi shows it as "driver" and "mib".
  void HasGpus(const Json& row, const std::string& market_name);
  double Billed(int64_t now_ms) const;
  bool alive() const { return phase != Phase::kEnded; }
  // True when its ssh address is known.
  bool reachable() const {
    return phase == Phase::kRunning && node != nullptr && !trouble.no_endpoint;
  }
  void Enter(Phase next, int64_t now_ms, const std::string& by);
  void StartCharge(const std::string& kind, double usd_per_hour, int64_t quantum_ms,
                   int64_t now_ms);
  // "": all.
  void StopCharges(const std::string& kind, int64_t now_ms);
};

struct Account {
  std::string service;
  std::string name;
  std::string key;
  double balance_usd = 100;  // before the first rent
  double spend_limit_usd_per_hour = 80;
  int quota = 1000;  // instances at the same time
  bool inactive = false;
  int64_t user_id = 0;
  Json ssh_keys = Json::array();
};

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_BOOKS_H_
