// Lambda Cloud's API, version 1, as its OpenAPI description 1.10.0 shows it: JSON to structs and
// back. lambda_provider.cc says what the fields mean.
#ifndef GPUCTL_PROVISIONING_LAMBDA_LAMBDA_API_H_
#define GPUCTL_PROVISIONING_LAMBDA_LAMBDA_API_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "provisioning/rest/json_reader.h"
#include "provisioning/rest/refusals.h"

namespace gpuctl {

inline constexpr char kLambdaLeaseTag[] = "gpuctl-lease";

struct LambdaRegion {
  std::string name;         // "us-west-1"
  std::string description;  // "California, USA"
};

struct LambdaInstanceType {
  std::string name;                  // "gpu_1x_a10"
  std::string description;           // "1x A10 (24 GB PCIe)"
  std::string gpu_description;       // "A10 (24 GB PCIe)"
  int64_t price_cents_per_hour = 0;  // of the whole instance
  int64_t gpus = 0;
  int64_t storage_gib = 0;
  std::vector<LambdaRegion> regions_with_capacity;  // only in the list of types
};

struct LambdaFileSystem {
  std::string id;
  std::string name;
  std::string mount_point;  // where it is mounted by default
  LambdaRegion region;
  std::optional<bool> in_use;
  std::optional<int64_t> used_bytes;
};

struct LambdaLaunch {
  std::string region;
  std::string instance_type;
  std::string ssh_key_name;
  std::string name;
  std::string user_data;       // empty: none
  std::string file_system_id;  // empty: none
  std::string mount_point;
};

// Read one row each.
void ReadLambdaRegion(JsonReader& json, LambdaRegion& region);
void ReadLambdaType(JsonReader& json, LambdaInstanceType& type);
void ReadLambdaFileSystem(JsonReader& json, LambdaFileSystem& system);

absl::StatusOr<std::vector<LambdaInstanceType>> ParseLambdaInstanceTypes(absl::string_view body);
absl::StatusOr<std::vector<std::string>> ParseLambdaLaunch(absl::string_view body);
// Returns the ids of the instances ended by a terminate.
absl::StatusOr<std::vector<std::string>> ParseLambdaTerminated(absl::string_view body);
// Returns Lambda's own error; with no code when the body is none.
MarketError ParseLambdaError(absl::string_view body);

// Returns the memory of one GPU in bytes, from the "(80 GB SXM5)" of its description; 0 when it has
// none.
int64_t LambdaGpuMemoryBytes(absl::string_view gpu_description);

nlohmann::json LambdaLaunchBody(const LambdaLaunch& launch);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_LAMBDA_LAMBDA_API_H_
