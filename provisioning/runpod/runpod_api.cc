#include "provisioning/runpod/runpod_api.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "provisioning/market/registry_login.h"
#include "provisioning/market/rent_options.h"
#include "provisioning/rest/json_reader.h"

namespace gpuctl {
namespace {

void ReadGpuType(JsonReader& json, RunpodGpuType& type) {
  json.Require("id", type.id);
  type.name = type.id;
  json.Read("name", type.name);
  json.Read("manufacturer", type.manufacturer);
  json.Require("memory", type.memory_gb);
  json.Read("availability", type.availability);
  json.Read("price.secure", type.secure_usd_per_hour);
  json.Read("price.community", type.community_usd_per_hour);
  json.Read("maxCount.secure", type.secure_max_count);
  json.Read("maxCount.community", type.community_max_count);
  json.ReadEach("dataCenters", "data center", [&](JsonReader& row) {
    RunpodGpuType::DataCenter& center = type.data_centers.emplace_back();
    row.Require("id", center.id);
    row.Read("availability", center.availability);
  });
  json.ReadEach("cudaVersions", "CUDA version", [&](JsonReader& row) {
    bool available = false;
    std::string version;
    row.Read("available", available);
    row.Require("version", version);
    if (available) type.cuda_versions.push_back(version);
  });
}

// Most refusals of GraphQL come with HTTP 200. Only its words distinguish a refusal for lack of
// machines from a bad request.
using Code = absl::StatusCode;
constexpr Refusal kRefusals[] = {
    {404, "", "", Code::kNotFound, Code::kOk},
    {0, "", "no longer any instances available", Code::kOk, Code::kAborted},
    {0, "", "no resources to deploy", Code::kOk, Code::kAborted},
    {0, "", "no instances currently available", Code::kOk, Code::kAborted},
    {0, "", "supply_constraint", Code::kOk, Code::kAborted},
    {0, "", "bid is too low", Code::kOk, Code::kAborted},
    {0, "", "bid too low", Code::kOk, Code::kAborted},
    {0, "", "outbid", Code::kOk, Code::kAborted},
    {0, "", "balance", Code::kOk, Code::kResourceExhausted},
    {0, "", "insufficient funds", Code::kOk, Code::kResourceExhausted},
    {0, "", "spend limit", Code::kOk, Code::kResourceExhausted},
    {0, "UNAUTHENTICATED", "", Code::kUnauthenticated, Code::kUnauthenticated},
    {0, "FORBIDDEN", "", Code::kPermissionDenied, Code::kPermissionDenied},
    {0, "GRAPHQL_VALIDATION_FAILED", "", Code::kInvalidArgument, Code::kInvalidArgument},
    {0, "BAD_USER_INPUT", "", Code::kInvalidArgument, Code::kInvalidArgument},
};

}  // namespace

absl::StatusOr<std::vector<RunpodGpuType>> ParseRunpodCatalog(absl::string_view body) {
  return ParseRows<RunpodGpuType>(body, "the catalog", "gpus", "GPU type", ReadGpuType);
}

void ReadRunpodPod(JsonReader& json, RunpodPod& pod) {
  json.Read("status", pod.status);
  json.Read("cost", pod.cost_usd_per_hour);
  json.Read("dataCenterId", pod.data_center);
  json.Read("cloud", pod.cloud);
  json.Read("disk", pod.disk_gb);
  json.Read("mounts.persistent.size", pod.persistent_gb);
  json.Read("gpu.id", pod.gpu_id);
  json.Read("gpu.count", pod.gpu_count);
}

void ReadRunpodVolume(JsonReader& json, RunpodVolume& volume) {
  json.RequireId("id", volume.id);
  json.Read("name", volume.name);
  json.Require("size", volume.size_gb);
  json.Require("dataCenter", volume.data_center);
  json.Read("type", volume.type);
}

void ReadRunpodRegistry(JsonReader& json, RunpodRegistry& registry) {
  json.RequireId("id", registry.id);
  json.Read("name", registry.name);
}

std::string RunpodText(const nlohmann::json& row, const char* field) {
  const nlohmann::json* found = JsonReader(row, "pod").Find(field);
  return found != nullptr && found->is_string() ? found->get<std::string>() : "";
}

absl::StatusOr<RunpodRegistry> ParseRunpodRegistry(absl::string_view body) {
  return ParseAnswer<RunpodRegistry>(body, "registry", ReadRunpodRegistry);
}

std::string FindRunpodPullError(absl::string_view events) {
  std::string found;
  for (absl::string_view line : absl::StrSplit(events, '\n')) {
    if (!absl::ConsumePrefix(&line, "data:")) continue;
    const std::string said = ParseWhatFits<std::string>(
        line, [](JsonReader& event, std::string& text) { event.Read("line", text); });
    if (SaysImageFails(said)) found = said;
  }
  return found;
}

std::string RunpodErrorDetail(absl::string_view body) {
  return ParseWhatFits<std::string>(body, [](JsonReader& error, std::string& detail) {
    error.Read("detail", detail);
    if (detail.empty()) error.Read("title", detail);
    const nlohmann::json* failures = error.Find("errors");
    if (failures == nullptr || !failures->is_array()) return;
    for (const nlohmann::json& failure : *failures) {
      if (failure.is_string()) absl::StrAppend(&detail, " ", failure.get<std::string>());
    }
  });
}

std::string FindRunpodPodId(absl::string_view body) {
  return ParseWhatFits<std::string>(body,
                                    [](JsonReader& pod, std::string& id) { pod.Read("id", id); });
}

nlohmann::json RunpodCreateBody(const RunpodCreate& create) {
  nlohmann::json body = {{"name", create.name},
                         {"image", create.image},
                         // Without the count every create fails, and the error speaks of capacity.
                         {"gpu", {{"id", create.gpu_id}, {"count", create.gpu_count}}},
                         {"cloud", create.cloud},
                         {"disk", create.disk_gb},
                         // There is no default: without this sshd is not reachable.
                         {"ports", nlohmann::json::array({"22/tcp"})}};
  if (!create.min_cuda_version.empty()) body["gpu"]["minCudaVersion"] = create.min_cuda_version;
  if (!create.data_center.empty()) {
    body["dataCenterIds"] = nlohmann::json::array({create.data_center});
  }
  if (!create.args.empty()) body["args"] = create.args;
  if (!create.env.empty()) body["env"] = create.env;
  if (!create.registry_id.empty()) body["registry"] = create.registry_id;
  if (create.start_ssh) body["startSsh"] = true;
  if (!create.volume_id.empty()) {
    body["mounts"]["network"] =
        nlohmann::json::array({{{"volumeId", create.volume_id}, {"path", create.volume_path}}});
  }
  return body;
}

double RunpodDiskUsdPerHour(int64_t disk_gb) {
  constexpr double kUsdPerGbMonth = 0.10;
  return static_cast<double>(disk_gb) * kUsdPerGbMonth / kHoursPerMonth;
}

std::optional<double> RunpodPodUsdPerHour(const RunpodPod& pod) {
  const double mount = RunpodDiskUsdPerHour(pod.persistent_gb);
  if (pod.status == "EXITED") return 2 * mount;
  if (pod.cost_usd_per_hour <= 0) return std::nullopt;
  return pod.cost_usd_per_hour + RunpodDiskUsdPerHour(pod.disk_gb) + mount;
}

absl::Status StatusOfRunpodRefusal(const HttpResponse& response, const MarketError& error,
                                   bool creating) {
  return StatusOfRefusal(response, error, kRefusals, creating);
}

}  // namespace gpuctl
