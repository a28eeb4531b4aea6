// Runpod's REST API, version 2, as its OpenAPI description and recorded answers show it: JSON to
// structs and back. runpod_provider.cc says what the fields mean.
#ifndef GPUCTL_PROVISIONING_RUNPOD_RUNPOD_API_H_
#define GPUCTL_PROVISIONING_RUNPOD_RUNPOD_API_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "provisioning/http/http.h"
#include "provisioning/rest/json_reader.h"
#include "provisioning/rest/refusals.h"

namespace gpuctl {

// One row of GET /v2/catalog/gpus.
struct RunpodGpuType {
  std::string id;  // what a create names
  std::string name;
  std::string manufacturer;
  int64_t memory_gb = 0;
  std::optional<double> secure_usd_per_hour;  // of one GPU
  std::optional<double> community_usd_per_hour;
  std::optional<int64_t> secure_max_count;
  std::optional<int64_t> community_max_count;
  std::string availability;  // NONE, LOW, MEDIUM, HIGH; empty: not said
  struct DataCenter {
    std::string id;
    std::string availability;
  };
  std::vector<DataCenter> data_centers;
  std::vector<std::string> cuda_versions;  // those with capacity now
};

// What a pod's row has beside what every instance has.
struct RunpodPod {
  std::string status;  // PROVISIONING, STARTING, RUNNING, EXITED, ERROR, TERMINATED
  double cost_usd_per_hour = 0;
  std::string data_center;
  std::string cloud;  // SECURE, COMMUNITY
  std::string gpu_id;
  int64_t gpu_count = 0;
  int64_t disk_gb = 0;
  int64_t persistent_gb = 0;  // its own mount, which a stop keeps
};

struct RunpodVolume {
  std::string id;
  std::string name;
  int64_t size_gb = 0;
  std::string data_center;
  std::string type;  // STANDARD, HIGH_PERFORMANCE
};

// A login at a container registry that Runpod keeps. It shows neither user nor password.
struct RunpodRegistry {
  std::string id;
  std::string name;
};

struct RunpodCreate {
  std::string name;
  std::string image;
  std::string registry_id;  // empty: anybody may pull the image
  std::string args;         // empty: the image's own command
  std::string gpu_id;
  int gpu_count = 1;
  std::string min_cuda_version;  // empty: any
  std::string cloud;
  std::string data_center;  // empty: any
  int64_t disk_gb = 0;
  std::map<std::string, std::string> env;
  std::string volume_id;  // empty: none
  std::string volume_path;
  bool start_ssh = false;  // with the account's keys
};

absl::StatusOr<std::vector<RunpodGpuType>> ParseRunpodCatalog(absl::string_view body);
absl::StatusOr<RunpodRegistry> ParseRunpodRegistry(absl::string_view body);
// Read one row each.
void ReadRunpodPod(JsonReader& json, RunpodPod& pod);
void ReadRunpodVolume(JsonReader& json, RunpodVolume& volume);
void ReadRunpodRegistry(JsonReader& json, RunpodRegistry& registry);
// Returns a text of a pod's row; empty for any other value.
std::string RunpodText(const nlohmann::json& row, const char* field);
// Returns the newest line in a pod's log, a stream of events, that says that its image cannot be
// pulled; empty when none does. The stream may be torn.
std::string FindRunpodPullError(absl::string_view events);
// Returns the detail of an error, with its list of failures; empty when the body is not an error of
// Runpod.
std::string RunpodErrorDetail(absl::string_view body);
// Returns the pod's id in an answer that cannot be read as a whole; empty when it has none.
std::string FindRunpodPodId(absl::string_view body);

inline constexpr int64_t kRunpodDefaultDiskGb = 40;
// Returns the hourly list price of a running container's disk, in USD.
double RunpodDiskUsdPerHour(int64_t disk_gb);
// Returns what a pod bills in an hour now, in USD, beside network volumes; absent: the answer does
// not say. A stopped pod has no container disk, and pays for its own mount alone, at twice the
// price of a running one, whatever its "cost" says.
std::optional<double> RunpodPodUsdPerHour(const RunpodPod& pod);
// Returns the status of a refusal, of the REST API as of GraphQL.
absl::Status StatusOfRunpodRefusal(const HttpResponse& response, const MarketError& error,
                                   bool creating);

nlohmann::json RunpodCreateBody(const RunpodCreate& create);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_RUNPOD_RUNPOD_API_H_
