// Vast.ai's API: JSON to structs and back, after its published descriptions and quoted answers.
// Where the two differ, the answers count. vast_provider.cc explains the fields.
#ifndef GPUCTL_PROVISIONING_VAST_VAST_API_H_
#define GPUCTL_PROVISIONING_VAST_VAST_API_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "provisioning/rest/json_reader.h"

namespace gpuctl {

// The number of directly open ports that an offered machine must have.
inline constexpr int64_t kVastMinDirectPorts = 2;

// The fields common to offers and instances. Empty or 0 where Vast says null.
struct VastMachine {
  int64_t machine_id = 0;
  std::string gpu_name;  // "RTX 4090"
  int64_t num_gpus = 0;
  double gpu_ram_mib = 0;   // of one GPU
  double dph_total = 0;     // USD per hour with the requested storage
  double dph_base = 0;      // of that without storage; 0: not told
  std::string geolocation;  // "California, US"
};

struct VastOffer : VastMachine {
  int64_t id = 0;
  double min_bid = 0;  // USD per hour of the machine, without storage
  std::optional<double> inet_up_usd_per_gb;
  std::optional<double> inet_down_usd_per_gb;
  std::optional<double> reliability;
  int64_t direct_port_count = 0;
  double cuda_max_good = 0;
  int64_t compute_cap = 0;           // 890 is 8.9; 0: not said
  std::optional<double> duration_s;  // until the host takes the machine back
  double disk_space_gb = 0;
  bool rentable = true;
  std::string verification;  // empty: not said
  std::string gpu_arch;      // "nvidia"
  std::string cpu_arch;      // "amd64"
};

struct VastInstance : VastMachine {
  int64_t id = 0;
  std::string label;
  std::string actual_status;  // empty: null
  std::string cur_state;
  std::string next_state;
  std::string intended_status;
  std::string status_msg;
  std::string public_ip;      // trimmed
  int64_t ssh_host_port = 0;  // where 22/tcp is on public_ip; 0: not there, or not yet
  std::string proxy_host;     // Vast's own relay to the instance's sshd; empty: none
  int64_t proxy_port = 0;
  double storage_usd_per_hour = 0;  // of its disk, which bills on while it is stopped; 0: not told
  std::optional<double> inet_up_usd_per_gb;
  std::optional<double> inet_down_usd_per_gb;
  double start_date_s = 0;  // since 1970
  double end_date_s = 0;    // when its contract ends; 0: not told
  bool is_bid = false;
};

// The answer to a create, whether it succeeded or not.
struct VastCreated {
  bool success = false;
  std::optional<int64_t> new_contract;  // also beside an error: it bills anyway
};

// The success or error in any answer.
struct VastReply {
  std::optional<bool> success;
  std::string error;  // the code; empty: none
  std::string message;
};

// The change of one part of a price; absent `after`: no change.
struct VastPriceChange {
  std::optional<double> before;
  std::optional<double> after;
};

// A row of the pending price increases. Units cancel out in the ratios of gpu and storage.
struct VastPriceRise {
  int64_t id = 0;
  int64_t contract_id = 0;  // the instance
  VastPriceChange gpu;
  VastPriceChange storage;
  VastPriceChange upload;     // USD per GB
  VastPriceChange download;   // USD per GB
  double contract_end_s = 0;  // since 1970: the end of the old price; 0: not told
};

// The charges for the traffic of one contract.
struct VastCharge {
  int64_t instance_id = 0;  // 0: it is none of an instance
  double traffic_usd = 0;
};

struct VastVolume {
  int64_t id = 0;
  int64_t machine_id = 0;  // the machine on whose disk it is
  std::string label;
  double disk_space_gb = 0;
  std::optional<double> usd_per_hour;
  std::string geolocation;
  int64_t instances = 0;  // that have it mounted
};

struct VastSearch {
  std::vector<std::string> gpu_names;  // empty: any
  int gpu_count = 1;
  double min_gpu_ram_mib = 0;
  double max_gpu_ram_mib = 0;
  int64_t disk_gb = 0;
  std::optional<double> max_usd_per_hour;
  std::vector<std::string> countries;  // empty: any
  bool spot = false;
  std::optional<int64_t> machine_id;  // absent: any
  int64_t min_compute_cap = 0;        // as in VastOffer; 0: any
  double min_duration_s = 0;          // for which the host leaves the machine; 0: any
};

struct VastCreate {
  std::string image;
  std::string image_login;  // a secret: "-u USER -p PASSWORD SERVER"; empty: none
  int64_t disk_gb = 0;
  std::string label;
  std::map<std::string, std::string> env;
  std::string onstart;
  std::optional<double> bid_usd_per_hour;  // absent: on demand
  std::optional<int64_t> volume_id;
  std::string volume_path;
};

absl::StatusOr<std::vector<VastOffer>> ParseVastOffers(absl::string_view body);
// Returns the instance; absent when it is gone.
absl::StatusOr<std::optional<VastInstance>> ParseVastInstance(absl::string_view body);
absl::StatusOr<VastCreated> ParseVastCreated(absl::string_view body);
// Parses the pending price increases. UNKNOWN also when the server left rows out.
absl::StatusOr<std::vector<VastPriceRise>> ParseVastPriceRises(absl::string_view body);
// Read one row each.
void ReadVastInstance(JsonReader& json, VastInstance& instance);
void ReadVastCharge(JsonReader& json, VastCharge& charge);
void ReadVastVolume(JsonReader& json, VastVolume& volume);
// An answer with 200 may still be a refusal.
void CheckVastSuccess(JsonReader& answer);
// Returns the number of the account that a key belongs to.
absl::StatusOr<std::string> ParseVastAccountId(absl::string_view body);
// Parses any answer. Returns empty fields when the body is not Vast's.
VastReply ParseVastReply(absl::string_view body);

nlohmann::json VastSearchBody(const VastSearch& search);
nlohmann::json VastCreateBody(const VastCreate& create);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_VAST_VAST_API_H_
