#include "provisioning/runpod/runpod_api.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "provisioning/market/rest_api.h"

namespace gpuctl {
namespace {

absl::StatusOr<RunpodGpuType> ReadGpuType(const nlohmann::json& json) {
  WireObject row(json, "GPU type");
  RunpodGpuType type;
  type.id = row.String("id");
  type.name = row.OptionalString("name").value_or(type.id);
  type.manufacturer = row.OptionalString("manufacturer").value_or("");
  type.memory_gb = row.Int("memory");
  type.availability = row.OptionalString("availability").value_or("");
  if (const nlohmann::json* json_price = row.OptionalObject("price"); json_price != nullptr) {
    WireObject price(*json_price, absl::StrCat("the price of ", type.id));
    type.secure_usd_per_hour = price.OptionalNumber("secure");
    type.community_usd_per_hour = price.OptionalNumber("community");
    row.Check(price.status());
  }
  if (const nlohmann::json* json_count = row.OptionalObject("maxCount"); json_count != nullptr) {
    WireObject count(*json_count, absl::StrCat("maxCount of ", type.id));
    type.secure_max_count = count.OptionalInt("secure");
    type.community_max_count = count.OptionalInt("community");
    row.Check(count.status());
  }
  if (const nlohmann::json* centers = row.OptionalArray("dataCenters"); centers != nullptr) {
    for (const nlohmann::json& json_center : *centers) {
      WireObject center(json_center, "data center");
      type.data_centers.push_back(
          {center.String("id"), center.OptionalString("availability").value_or("")});
      row.Check(center.status());
    }
  }
  if (const nlohmann::json* versions = row.OptionalArray("cudaVersions"); versions != nullptr) {
    for (const nlohmann::json& json_version : *versions) {
      WireObject version(json_version, "CUDA version");
      const bool available = version.OptionalBool("available").value_or(false);
      const std::string number = version.String("version");
      if (available) type.cuda_versions.push_back(number);
      row.Check(version.status());
    }
  }
  RETURN_IF_ERROR(row.status());
  return type;
}

absl::StatusOr<RunpodPod> ReadPod(const nlohmann::json& json) {
  WireObject row(json, "pod");
  RunpodPod pod;
  pod.id = row.String("id");
  pod.name = row.OptionalString("name").value_or("");
  pod.status = row.String("status");
  pod.cost_usd_per_hour = row.OptionalNumber("cost").value_or(0);
  pod.data_center = row.OptionalString("dataCenterId").value_or("");
  pod.cloud = row.OptionalString("cloud").value_or("");
  pod.disk_gb = row.OptionalInt("disk").value_or(0);
  pod.created_at = row.OptionalString("createdAt").value_or("");
  if (const nlohmann::json* json_gpu = row.OptionalObject("gpu"); json_gpu != nullptr) {
    WireObject gpu(*json_gpu, "the pod's gpu");
    pod.gpu_id = gpu.OptionalString("id").value_or("");
    pod.gpu_count = gpu.OptionalInt("count").value_or(0);
    row.Check(gpu.status());
  }
  if (const nlohmann::json* json_ssh = row.OptionalObject("ssh"); json_ssh != nullptr) {
    WireObject ssh(*json_ssh, "the pod's ssh");
    if (const nlohmann::json* json_direct = ssh.OptionalObject("direct"); json_direct != nullptr) {
      WireObject direct(*json_direct, "ssh.direct");
      pod.ssh_host = direct.String("host");
      pod.ssh_port = direct.Int("port");
      pod.ssh_user = direct.OptionalString("username").value_or("root");
      if (!IsSafeHost(pod.ssh_host)) direct.Fail("host", "is no host name");
      if (!IsSafeUser(pod.ssh_user)) direct.Fail("username", "is no user name");
      if (pod.ssh_port < 1 || pod.ssh_port > 65535) direct.Fail("port", "is no port");
      ssh.Check(direct.status());
    }
    row.Check(ssh.status());
  }
  if (pod.id.empty()) row.Fail("id", "is empty");
  RETURN_IF_ERROR(row.status());
  return pod;
}

}  // namespace

absl::StatusOr<std::vector<RunpodGpuType>> ParseRunpodCatalog(absl::string_view body) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseWireJson(body));
  WireObject reply(json, "the catalog");
  const nlohmann::json* gpus = reply.Array("gpus");
  RETURN_IF_ERROR(reply.status());
  std::vector<RunpodGpuType> types;
  for (const nlohmann::json& row : *gpus) {
    ASSIGN_OR_RETURN(RunpodGpuType type, ReadGpuType(row));
    types.push_back(std::move(type));
  }
  return types;
}

absl::StatusOr<RunpodPod> ParseRunpodPod(absl::string_view body) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseWireJson(body));
  return ReadPod(json);
}

absl::StatusOr<RunpodPodPage> ParseRunpodPods(absl::string_view body) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseWireJson(body));
  WireObject reply(json, "the list of pods");
  const nlohmann::json* pods = reply.Array("pods");
  RunpodPodPage page;
  page.next_cursor = reply.OptionalString("nextCursor").value_or("");
  RETURN_IF_ERROR(reply.status());
  for (const nlohmann::json& row : *pods) {
    ASSIGN_OR_RETURN(RunpodPod pod, ReadPod(row));
    page.pods.push_back(std::move(pod));
  }
  return page;
}

absl::StatusOr<std::vector<RunpodVolume>> ParseRunpodVolumes(absl::string_view body) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseWireJson(body));
  WireObject reply(json, "the list of network volumes");
  const nlohmann::json* rows = reply.Array("networkVolumes");
  RETURN_IF_ERROR(reply.status());
  std::vector<RunpodVolume> volumes;
  for (const nlohmann::json& json_row : *rows) {
    WireObject row(json_row, "network volume");
    RunpodVolume& volume = volumes.emplace_back();
    volume.id = row.String("id");
    volume.name = row.OptionalString("name").value_or("");
    volume.size_gb = row.Int("size");
    volume.data_center = row.String("dataCenter");
    volume.type = row.OptionalString("type").value_or("");
    if (volume.id.empty()) row.Fail("id", "is empty");
    RETURN_IF_ERROR(row.status());
  }
  return volumes;
}

std::string RunpodErrorDetail(absl::string_view body) {
  const absl::StatusOr<nlohmann::json> json = ParseWireJson(body);
  if (!json.ok() || !json->is_object()) return "";
  WireObject error(*json, "error");
  std::string detail = error.OptionalString("detail").value_or("");
  if (detail.empty()) detail = error.OptionalString("title").value_or("");
  if (const nlohmann::json* failures = error.OptionalArray("errors"); failures != nullptr) {
    for (const nlohmann::json& failure : *failures) {
      if (failure.is_string()) absl::StrAppend(&detail, " ", failure.get<std::string>());
    }
  }
  return detail;
}

std::string FindRunpodPodId(absl::string_view body) {
  const absl::StatusOr<nlohmann::json> json = ParseWireJson(body);
  if (!json.ok() || !json->is_object()) return "";
  WireObject pod(*json, "pod");
  return pod.OptionalString("id").value_or("");
}

nlohmann::json RunpodCreateBody(const RunpodCreate& create) {
  nlohmann::json body = {{"name", create.name},
                         {"image", create.image},
                         // Without the count every create fails, for want of capacity it is said.
                         {"gpu", {{"id", create.gpu_id}, {"count", create.gpu_count}}},
                         {"cloud", create.cloud},
                         {"disk", create.disk_gb},
                         // There is no default: without it no port leads to sshd.
                         {"ports", nlohmann::json::array({"22/tcp"})}};
  if (!create.min_cuda_version.empty()) body["gpu"]["minCudaVersion"] = create.min_cuda_version;
  if (!create.data_center.empty()) {
    body["dataCenterIds"] = nlohmann::json::array({create.data_center});
  }
  if (!create.args.empty()) body["args"] = create.args;
  if (!create.env.empty()) body["env"] = create.env;
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

bool IsRunpodNoCapacity(absl::string_view detail) {
  const std::string lower = absl::AsciiStrToLower(detail);
  for (const char* words : {"no longer any instances available", "no resources to deploy",
                            "no instances currently available", "supply_constraint"}) {
    if (absl::StrContains(lower, words)) return true;
  }
  return false;
}

}  // namespace gpuctl
