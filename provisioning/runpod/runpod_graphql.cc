#include "provisioning/runpod/runpod_graphql.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "provisioning/market/rest_api.h"

namespace gpuctl {
namespace {

absl::StatusOr<RunpodSpotType> ReadType(const nlohmann::json& json) {
  WireObject row(json, "GPU type");
  RunpodSpotType type;
  type.id = row.String("id");
  type.name = row.OptionalString("displayName").value_or(type.id);
  type.memory_gb = row.OptionalInt("memoryInGb").value_or(0);
  const nlohmann::json* price = row.OptionalObject("lowestPrice");
  RETURN_IF_ERROR(row.status());
  if (price == nullptr) return type;
  WireObject lowest(*price, "lowest price");
  type.min_bid_usd_per_hour = lowest.OptionalNumber("minimumBidPrice");
  type.stock = lowest.OptionalString("stockStatus").value_or("");
  RETURN_IF_ERROR(lowest.status());
  return type;
}

}  // namespace

nlohmann::json RunpodSpotQuery(int gpu_count, bool secure) {
  return {{"query", absl::StrCat("query { gpuTypes { id displayName memoryInGb "
                                 "lowestPrice(input: { gpuCount: ",
                                 gpu_count, ", secureCloud: ", secure ? "true" : "false",
                                 " }) { minimumBidPrice stockStatus } } }")}};
}

absl::StatusOr<std::vector<RunpodSpotType>> ParseRunpodSpotTypes(absl::string_view body) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseWireJson(body));
  WireObject reply(json, "the answer");
  const nlohmann::json* data = reply.Object("data");
  RETURN_IF_ERROR(reply.status());
  WireObject inner(*data, "data");
  const nlohmann::json* rows = inner.Array("gpuTypes");
  RETURN_IF_ERROR(inner.status());
  std::vector<RunpodSpotType> types;
  for (const nlohmann::json& row : *rows) {
    ASSIGN_OR_RETURN(RunpodSpotType type, ReadType(row));
    types.push_back(std::move(type));
  }
  return types;
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
                          {"startSsh", true}};
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
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseWireJson(body));
  WireObject reply(json, "the answer");
  const nlohmann::json* data = reply.Object("data");
  RETURN_IF_ERROR(reply.status());
  WireObject inner(*data, "data");
  const nlohmann::json* row = inner.Object("podRentInterruptable");
  RETURN_IF_ERROR(inner.status());
  WireObject pod(*row, "pod");
  RunpodSpotPod made;
  made.id = pod.String("id");
  made.cost_usd_per_hour = pod.OptionalNumber("costPerHr").value_or(0);
  RETURN_IF_ERROR(pod.status());
  if (made.id.empty()) return absl::UnknownError("the answer names no pod");
  return made;
}

RunpodGraphqlError FindRunpodGraphqlError(absl::string_view body) {
  RunpodGraphqlError found;
  const absl::StatusOr<nlohmann::json> json = ParseWireJson(body);
  if (!json.ok() || !json->is_object()) return found;
  const nlohmann::json* errors = WireObject(*json, "answer").OptionalArray("errors");
  if (errors == nullptr) return found;
  for (const nlohmann::json& row : *errors) {
    if (!row.is_object()) continue;
    // Each field by a reader of its own: one odd field does not hide the others.
    const std::string message =
        WireObject(row, "error").OptionalString("message").value_or("an error without words");
    absl::StrAppend(&found.message, found.message.empty() ? "" : "; ", message);
    const nlohmann::json* more = WireObject(row, "error").OptionalObject("extensions");
    if (more != nullptr && found.code.empty()) {
      found.code = WireObject(*more, "extensions").OptionalString("code").value_or("");
    }
  }
  return found;
}

}  // namespace gpuctl
