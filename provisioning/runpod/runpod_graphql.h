// The part of Runpod's GraphQL that rents spot machines, which its REST API does not: JSON to
// structs and back, after published examples and public clients. The service has announced the end
// of its GraphQL.
#ifndef GPUCTL_PROVISIONING_RUNPOD_RUNPOD_GRAPHQL_H_
#define GPUCTL_PROVISIONING_RUNPOD_RUNPOD_GRAPHQL_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "provisioning/runpod/runpod_api.h"

namespace gpuctl {

inline constexpr char kRunpodGraphqlPath[] = "/graphql";

// One row of gpuTypes with its lowestPrice.
struct RunpodSpotType {
  std::string id;
  std::string name;
  int64_t memory_gb = 0;
  std::optional<double> min_bid_usd_per_hour;  // of one GPU; absent: not available
  std::string stock;                           // High, Medium, Low; empty: not said
};

struct RunpodSpotPod {
  std::string id;
  double cost_usd_per_hour = 0;  // 0: not said
};

nlohmann::json RunpodSpotQuery(int gpu_count, bool secure);
absl::StatusOr<std::vector<RunpodSpotType>> ParseRunpodSpotTypes(absl::string_view body);

// Returns the mutation that rents. It leaves out the data centre and the CUDA version of `create`.
nlohmann::json RunpodSpotMutation(const RunpodCreate& create, double bid_usd_per_gpu_hour);
// Returns the rented pod. UNKNOWN when the answer names none.
absl::StatusOr<RunpodSpotPod> ParseRunpodSpotPod(absl::string_view body);

// The query of the key's own account, and its id in the answer. The REST API has no such route.
inline constexpr char kRunpodAccountQuery[] = "query { myself { id } }";
absl::StatusOr<std::string> ParseRunpodAccountId(absl::string_view body);

// Returns the messages of all errors in an answer, and the first code among them; empty: none.
MarketError FindRunpodGraphqlError(absl::string_view body);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_RUNPOD_RUNPOD_GRAPHQL_H_
