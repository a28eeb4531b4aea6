#include "provisioning/runpod/runpod_graphql.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "provisioning/rest/json_reader.h"

namespace gpuctl {
namespace {

void ReadType(JsonReader& json, RunpodSpotType& type) {
  json.Require("id", type.id);
  type.name = type.id;
  json.Read("displayName", type.name);
  json.Read("memoryInGb", type.memory_gb);
  json.Read("lowestPrice.minimumBidPrice", type.min_bid_usd_per_hour);
  json.Read("lowestPrice.stockStatus", type.stock);
}

}  // namespace

nlohmann::json RunpodSpotQuery(int gpu_count, bool secure) {
  return {{"query", absl::StrCat("query { gpuTypes { id displayName memoryInGb "
                                 "lowestPrice(input: { gpuCount: ",
                                 gpu_count, ", secureCloud: ", secure ? "true" : "false",
                                 " }) { minimumBidPrice stockStatus } } }")}};
}

absl::StatusOr<std::vector<RunpodSpotType>> ParseRunpodSpotTypes(absl::string_view body) {
  return ParseRows<RunpodSpotType>(body, "the answer", "data.gpuTypes", "GPU type", ReadType);
}

nlohmann::json RunpodSpotMutation(const RunpodCreate& create, double bid_usd_per_gpu_hour) {
  nlohmann::json env = nlohmann::json::array();
  for (const auto& variable : create.env) {
    env.push_back({{"key", variable.first}, {"value", variable.second}});
  }
  nlohmann::json input = {{"name", create.name},
                          {"imageName", create.image},
                          {"gpuTypeId", create.gpu_id},
                          {"gpuCount", create.gpu_count},
                          {"cloudType", create.cloud},
                          {"bidPerGpu", bid_usd_per_gpu_hour},
                          {"containerDiskInGb", create.disk_gb},
                          {"volumeInGb", 0},
                          {"ports", "22/tcp"},
                          {"dockerArgs", create.args},
                          {"env", std::move(env)},
                          {"startSsh", true},
                          // Without it a host outside the data centres may have no port for ssh.
                          {"supportPublicIp", true}};
  if (!create.registry_id.empty()) input["containerRegistryAuthId"] = create.registry_id;
  if (!create.volume_id.empty()) {
    input["networkVolumeId"] = create.volume_id;
    input["volumeMountPath"] = create.volume_path;
  }
  return {{"query",
           "mutation Rent($input: PodRentInterruptableInput!) { podRentInterruptable(input: "
           "$input) { id costPerHr } }"},
          {"variables", {{"input", std::move(input)}}}};
}

absl::StatusOr<RunpodSpotPod> ParseRunpodSpotPod(absl::string_view body) {
  return ParseObject<RunpodSpotPod>(body, "the answer", "data.podRentInterruptable", "pod",
                                    [](JsonReader& json, RunpodSpotPod& pod) {
                                      json.RequireId("id", pod.id);
                                      json.Read("costPerHr", pod.cost_usd_per_hour);
                                    });
}

absl::StatusOr<std::string> ParseRunpodAccountId(absl::string_view body) {
  return ParseObject<std::string>(
      body, "the answer", "data.myself", "user",
      [](JsonReader& user, std::string& id) { user.RequireId("id", id); });
}

MarketError FindRunpodGraphqlError(absl::string_view body) {
  return ParseWhatFits<MarketError>(body, [](JsonReader& answer, MarketError& found) {
    const nlohmann::json* errors = answer.Find("errors");
    if (errors == nullptr || !errors->is_array()) return;
    for (const nlohmann::json& json : *errors) {
      if (!json.is_object()) continue;
      JsonReader error(json, "error");
      std::string message = "an error without words";
      error.Read("message", message);
      absl::StrAppend(&found.message, found.message.empty() ? "" : "; ", message);
      if (found.code.empty()) error.Read("extensions.code", found.code);
    }
  });
}

}  // namespace gpuctl
