#include "provisioning/lambda/lambda_api.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "provisioning/market/rent_options.h"

namespace gpuctl {

void ReadLambdaRegion(JsonReader& json, LambdaRegion& region) {
  json.Require("name", region.name);
  json.Read("description", region.description);
}

void ReadLambdaType(JsonReader& json, LambdaInstanceType& type) {
  json.Require("name", type.name);
  type.description = type.name;
  json.Read("description", type.description);
  json.Read("gpu_description", type.gpu_description);
  json.Require("price_cents_per_hour", type.price_cents_per_hour);
  json.RequireObject("specs", absl::StrCat("the specs of ", type.name), [&](JsonReader& specs) {
    specs.Read("gpus", type.gpus);
    specs.Read("storage_gib", type.storage_gib);
  });
}

void ReadLambdaFileSystem(JsonReader& json, LambdaFileSystem& system) {
  json.RequireId("id", system.id);
  json.Read("name", system.name);
  json.Read("mount_point", system.mount_point);
  json.Read("is_in_use", system.in_use);
  json.Read("bytes_used", system.used_bytes);
  json.RequireObject("region", "region",
                     [&](JsonReader& region) { ReadLambdaRegion(region, system.region); });
}

absl::StatusOr<std::vector<LambdaInstanceType>> ParseLambdaInstanceTypes(absl::string_view body) {
  using Types = std::vector<LambdaInstanceType>;
  constexpr auto kRead = [](JsonReader& answer, Types& types) {
    answer.RequireEachField("data", "instance type", [&](JsonReader& row) {
      LambdaInstanceType& type = types.emplace_back();
      row.RequireObject("instance_type", "instance type",
                        [&](JsonReader& json) { ReadLambdaType(json, type); });
      row.RequireRows("regions_with_capacity_available", "region", ReadLambdaRegion,
                      type.regions_with_capacity);
    });
  };
  return ParseAnswer<Types>(body, "the list of instance types", kRead);
}

absl::StatusOr<std::vector<std::string>> ParseLambdaLaunch(absl::string_view body) {
  using Ids = std::vector<std::string>;
  return ParseAnswer<Ids>(body, "the answer", [](JsonReader& answer, Ids& ids) {
    const nlohmann::json* listed = answer.RequireArray("data.instance_ids");
    if (listed == nullptr) return;
    for (const nlohmann::json& id : *listed) {
      if (!id.is_string() || id.get_ref<const std::string&>().empty()) {
        answer.Fail("data.instance_ids", "holds something else than ids");
        return;
      }
      ids.push_back(id.get<std::string>());
    }
  });
}

absl::StatusOr<std::vector<std::string>> ParseLambdaTerminated(absl::string_view body) {
  return ParseRows<std::string>(
      body, "the answer", "data.terminated_instances", "instance",
      [](JsonReader& instance, std::string& id) { instance.Require("id", id); });
}

MarketError ParseLambdaError(absl::string_view body) {
  return ParseWhatFits<MarketError>(body, [](JsonReader& answer, MarketError& error) {
    answer.Read("error.code", error.code);
    answer.Read("error.message", error.message);
    std::string suggestion;
    answer.Read("error.suggestion", suggestion);
    if (!suggestion.empty()) absl::StrAppend(&error.message, " ", suggestion);
  });
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
  // There is no quantity: a later description dropped it, and one instance is launched.
  nlohmann::json body = {
      {"region_name", launch.region},
      {"instance_type_name", launch.instance_type},
      {"ssh_key_names", nlohmann::json::array({launch.ssh_key_name})},
      {"name", launch.name},
      // The name can be changed in the console; the tag is harder to lose.
      {"tags", nlohmann::json::array({{{"key", kLambdaLeaseTag}, {"value", launch.name}}})}};
  if (!launch.user_data.empty()) body["user_data"] = launch.user_data;
  if (!launch.file_system_id.empty()) {
    body["file_system_mounts"] = nlohmann::json::array(
        {{{"mount_point", launch.mount_point}, {"file_system_id", launch.file_system_id}}});
  }
  return body;
}

}  // namespace gpuctl
