#include "provisioning/lambda/lambda_api.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "provisioning/market/rest_api.h"

namespace gpuctl {
namespace {

constexpr char kLeaseTag[] = "gpuctl-lease";

LambdaRegion ReadRegion(const nlohmann::json& json, WireObject& parent) {
  WireObject region(json, "region");
  LambdaRegion read = {region.String("name"), region.OptionalString("description").value_or("")};
  parent.Check(region.status());
  return read;
}

LambdaInstanceType ReadType(const nlohmann::json& json, WireObject& parent) {
  WireObject type(json, "instance type");
  LambdaInstanceType read;
  read.name = type.String("name");
  read.description = type.OptionalString("description").value_or(read.name);
  read.gpu_description = type.OptionalString("gpu_description").value_or("");
  read.price_cents_per_hour = type.Int("price_cents_per_hour");
  if (const nlohmann::json* json_specs = type.Object("specs"); json_specs != nullptr) {
    WireObject specs(*json_specs, absl::StrCat("the specs of ", read.name));
    read.gpus = specs.OptionalInt("gpus").value_or(0);
    read.storage_gib = specs.OptionalInt("storage_gib").value_or(0);
    type.Check(specs.status());
  }
  parent.Check(type.status());
  return read;
}

absl::StatusOr<LambdaInstance> ReadInstance(const nlohmann::json& json) {
  WireObject row(json, "instance");
  LambdaInstance instance;
  instance.id = row.String("id");
  instance.name = row.OptionalString("name").value_or("");
  instance.status = row.String("status");
  instance.ip = row.OptionalString("ip").value_or("");
  if (const nlohmann::json* region = row.OptionalObject("region"); region != nullptr) {
    instance.region = ReadRegion(*region, row);
  }
  if (const nlohmann::json* type = row.OptionalObject("instance_type"); type != nullptr) {
    instance.type = ReadType(*type, row);
  }
  if (const nlohmann::json* tags = row.OptionalArray("tags"); tags != nullptr) {
    for (const nlohmann::json& json_tag : *tags) {
      WireObject tag(json_tag, "tag");
      const std::string key = tag.OptionalString("key").value_or("");
      const std::string value = tag.OptionalString("value").value_or("");
      if (key == kLeaseTag) instance.lease_tag = value;
      row.Check(tag.status());
    }
  }
  if (instance.id.empty()) row.Fail("id", "is empty");
  if (!instance.ip.empty() && !IsSafeHost(instance.ip)) row.Fail("ip", "is no address");
  RETURN_IF_ERROR(row.status());
  return instance;
}

absl::StatusOr<std::vector<LambdaInstance>> ReadInstances(const nlohmann::json& rows) {
  std::vector<LambdaInstance> instances;
  for (const nlohmann::json& row : rows) {
    ASSIGN_OR_RETURN(LambdaInstance instance, ReadInstance(row));
    instances.push_back(std::move(instance));
  }
  return instances;
}

LambdaSshKey ReadSshKey(const nlohmann::json& json, WireObject& parent) {
  WireObject row(json, "ssh key");
  LambdaSshKey key = {row.String("name"), row.OptionalString("public_key").value_or("")};
  parent.Check(row.status());
  return key;
}

}  // namespace

absl::StatusOr<std::vector<LambdaInstanceType>> ParseLambdaInstanceTypes(absl::string_view body) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseWireJson(body));
  WireObject reply(json, "the list of instance types");
  const nlohmann::json* data = reply.Object("data");
  RETURN_IF_ERROR(reply.status());
  std::vector<LambdaInstanceType> types;
  for (const auto& [name, json_item] : data->items()) {
    WireObject item(json_item, absl::StrCat("instance type ", PrintableText(name, 60)));
    const nlohmann::json* json_type = item.Object("instance_type");
    const nlohmann::json* regions = item.Array("regions_with_capacity_available");
    RETURN_IF_ERROR(item.status());
    LambdaInstanceType type = ReadType(*json_type, item);
    for (const nlohmann::json& region : *regions) {
      type.regions_with_capacity.push_back(ReadRegion(region, item));
    }
    RETURN_IF_ERROR(item.status());
    types.push_back(std::move(type));
  }
  return types;
}

absl::StatusOr<std::vector<LambdaSshKey>> ParseLambdaSshKeys(absl::string_view body) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseWireJson(body));
  WireObject reply(json, "the list of ssh keys");
  const nlohmann::json* data = reply.Array("data");
  RETURN_IF_ERROR(reply.status());
  std::vector<LambdaSshKey> keys;
  for (const nlohmann::json& row : *data) keys.push_back(ReadSshKey(row, reply));
  RETURN_IF_ERROR(reply.status());
  return keys;
}

absl::StatusOr<LambdaSshKey> ParseLambdaSshKey(absl::string_view body) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseWireJson(body));
  WireObject reply(json, "the answer");
  const nlohmann::json* data = reply.Object("data");
  RETURN_IF_ERROR(reply.status());
  LambdaSshKey key = ReadSshKey(*data, reply);
  RETURN_IF_ERROR(reply.status());
  return key;
}

absl::StatusOr<std::vector<std::string>> ParseLambdaLaunch(absl::string_view body) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseWireJson(body));
  WireObject reply(json, "the answer");
  const nlohmann::json* json_data = reply.Object("data");
  RETURN_IF_ERROR(reply.status());
  WireObject data(*json_data, "the launch");
  const nlohmann::json* json_ids = data.Array("instance_ids");
  RETURN_IF_ERROR(data.status());
  std::vector<std::string> ids;
  for (const nlohmann::json& id : *json_ids) {
    if (!id.is_string() || id.get_ref<const std::string&>().empty()) {
      return absl::UnknownError("field instance_ids of the launch holds something else than ids");
    }
    ids.push_back(id.get<std::string>());
  }
  return ids;
}

absl::StatusOr<LambdaInstance> ParseLambdaInstance(absl::string_view body) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseWireJson(body));
  WireObject reply(json, "the answer");
  const nlohmann::json* data = reply.Object("data");
  RETURN_IF_ERROR(reply.status());
  return ReadInstance(*data);
}

absl::StatusOr<std::vector<LambdaInstance>> ParseLambdaInstances(absl::string_view body) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseWireJson(body));
  WireObject reply(json, "the list of instances");
  const nlohmann::json* data = reply.Array("data");
  RETURN_IF_ERROR(reply.status());
  return ReadInstances(*data);
}

absl::StatusOr<std::vector<LambdaFileSystem>> ParseLambdaFileSystems(absl::string_view body) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseWireJson(body));
  WireObject reply(json, "the list of file systems");
  const nlohmann::json* rows = reply.Array("data");
  RETURN_IF_ERROR(reply.status());
  std::vector<LambdaFileSystem> systems;
  for (const nlohmann::json& json_row : *rows) {
    WireObject row(json_row, "file system");
    LambdaFileSystem& system = systems.emplace_back();
    system.id = row.String("id");
    system.name = row.OptionalString("name").value_or("");
    system.mount_point = row.OptionalString("mount_point").value_or("");
    system.in_use = row.OptionalBool("is_in_use");
    system.used_bytes = row.OptionalInt("bytes_used");
    if (const nlohmann::json* region = row.Object("region"); region != nullptr) {
      system.region = ReadRegion(*region, row);
    }
    if (system.id.empty()) row.Fail("id", "is empty");
    RETURN_IF_ERROR(row.status());
  }
  return systems;
}

absl::StatusOr<std::vector<std::string>> ParseLambdaTerminated(absl::string_view body) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseWireJson(body));
  WireObject reply(json, "the answer");
  const nlohmann::json* json_data = reply.Object("data");
  RETURN_IF_ERROR(reply.status());
  WireObject data(*json_data, "the termination");
  const nlohmann::json* rows = data.Array("terminated_instances");
  RETURN_IF_ERROR(data.status());
  std::vector<std::string> ids;
  for (const nlohmann::json& row : *rows) {
    WireObject instance(row, "instance");
    ids.push_back(instance.String("id"));
    RETURN_IF_ERROR(instance.status());
  }
  return ids;
}

LambdaError ParseLambdaError(absl::string_view body) {
  const absl::StatusOr<nlohmann::json> json = ParseWireJson(body);
  if (!json.ok() || !json->is_object()) return {};
  WireObject reply(*json, "the answer");
  const nlohmann::json* json_error = reply.OptionalObject("error");
  if (json_error == nullptr) return {};
  WireObject error(*json_error, "error");
  LambdaError read;
  read.code = error.OptionalString("code").value_or("");
  read.message = error.OptionalString("message").value_or("");
  const std::string suggestion = error.OptionalString("suggestion").value_or("");
  if (!suggestion.empty()) absl::StrAppend(&read.message, " ", suggestion);
  return read;
}

int64_t LambdaGpuMemoryBytes(absl::string_view gpu_description) {
  const size_t open = gpu_description.find('(');
  const size_t unit = gpu_description.find(" GB", open == absl::string_view::npos ? 0 : open);
  if (open == absl::string_view::npos || unit == absl::string_view::npos) return 0;
  int64_t gb = 0;
  if (!absl::SimpleAtoi(gpu_description.substr(open + 1, unit - open - 1), &gb)) return 0;
  return gb < 0 || gb > 10'000 ? 0 : gb * 1'000'000'000;
}

nlohmann::json LambdaLaunchBody(const LambdaLaunch& launch) {
  // No quantity: a later description dropped it, and one is what is launched.
  nlohmann::json body = {
      {"region_name", launch.region},
      {"instance_type_name", launch.instance_type},
      {"ssh_key_names", nlohmann::json::array({launch.ssh_key_name})},
      {"name", launch.name},
      // The name can be changed in the console; the tag is harder to lose.
      {"tags", nlohmann::json::array({{{"key", kLeaseTag}, {"value", launch.name}}})}};
  if (!launch.user_data.empty()) body["user_data"] = launch.user_data;
  if (!launch.file_system_id.empty()) {
    body["file_system_mounts"] = nlohmann::json::array(
        {{{"mount_point", launch.mount_point}, {"file_system_id", launch.file_system_id}}});
  }
  return body;
}

}  // namespace gpuctl
