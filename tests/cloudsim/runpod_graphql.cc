// Runpod's GraphQL, as far as clients still use it: the account, prices, and pods that are rented,
// listed, stopped, resumed and terminated.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/cloudsim/registries.h"
#include "tests/cloudsim/runpod.h"
#include "tests/cloudsim/runpod_query.h"

namespace gpuctl::cloudsim {
namespace {

constexpr char kDeploy[] = "podFindAndDeployOnDemand";
constexpr char kRent[] = "podRentInterruptable";

// Returns an error; with `path`, the field that was refused, an HTTP 200.
Reply GraphqlError(int status, const std::string& message, const std::string& code,
                   const std::string& path = "") {
  Json error = {{"message", message}};
  if (!code.empty()) error["extensions"] = {{"code", code}};
  if (!path.empty()) error["path"] = {path};
  Json body = {{"errors", Json::array({error})}};
  if (status == 200) body["data"] = nullptr;
  return JsonReply(status, body);
}

Json LowestPrice(const RunpodGpu& gpu, const Json& input) {
  const bool community = !BoolAt(input, "secureCloud", true);
  const int64_t count = IntegerAt(input, "gpuCount", 1);
  int most = 0;
  for (const auto& place : community ? gpu.community : gpu.secure) {
    most = std::max(most, place.second);
  }
  const double price = community ? gpu.community_usd : gpu.secure_usd;
  const bool any = most > 0 && most >= count && gpu.manufacturer == "NVIDIA";
  return {{"uninterruptablePrice", any ? Json(price) : Json()},
          {"minimumBidPrice", any ? Json(price / 2) : Json()},
          {"minVcpu", kRunpodVcpusPerGpu},
          {"minMemory", RunpodRamPerGpu(gpu)},
          {"stockStatus", any ? Json(most > 6   ? "High"
                                     : most > 2 ? "Medium"
                                                : "Low")
                              : Json()}};
}

Json GpuTypes(const World& world, const QueryField& field) {
  const std::string only = StringAt(field.arguments.value("input", Json()), "id");
  const QueryField* lowest = field.Find("lowestPrice");
  const Json input = lowest != nullptr ? lowest->arguments.value("input", Json()) : Json();
  Json types = Json::array();
  for (const RunpodGpu& gpu : RunpodStockOf(world).gpus) {
    if (!only.empty() && only != gpu.id) continue;
    types.push_back({{"id", gpu.id},
                     {"displayName", gpu.name},
                     {"manufacturer", gpu.manufacturer == "NVIDIA" ? "Nvidia" : gpu.manufacturer},
                     {"memoryInGb", gpu.memory_gb},
                     {"cudaCores", 0},
                     {"maxGpuCount", gpu.max_count},
                     {"secureCloud", true},
                     {"communityCloud", !gpu.community.empty()},
                     {"securePrice", gpu.secure_usd},
                     {"communityPrice", gpu.community_usd},
                     {"secureSpotPrice", gpu.secure_usd / 2},
                     {"communitySpotPrice", gpu.community_usd / 2},
                     {"lowestPrice", LowestPrice(gpu, input)}});
  }
  return types;
}

// Returns the pod as GraphQL's type has it.
Json GraphqlPod(World& world, const Instance& pod) {
  const Json shown = RunpodPodJson(world, pod);
  const Json mounts = shown["mounts"];
  const Json persistent = mounts.value("persistent", Json::object());
  Json environment = Json::array();
  for (const auto& entry : shown["env"].items()) {
    environment.push_back(absl::StrCat(entry.key(), "=", entry.value().get<std::string>()));
  }
  Json runtime = nullptr;
  if (shown["runtime"].is_object()) {
    runtime = {{"uptimeInSeconds", shown["runtime"]["uptime"]},
               {"ports", Json::array()},
               {"gpus", Json::array()},
               {"container", {{"cpuPercent", 0}, {"memoryPercent", 0}}}};
    for (const Json& port : shown["runtime"]["ports"]) {
      runtime["ports"].push_back({{"ip", port["ip"]},
                                  {"isIpPublic", port["type"] == "tcp"},
                                  {"privatePort", port["private"]},
                                  {"publicPort", port["public"]},
                                  {"type", port["type"]}});
    }
    for (int i = 0; i < pod.gpu_count; ++i) {
      runtime["gpus"].push_back({{"id", absl::StrCat("GPU-", pod.id, "-", i)},
                                 {"gpuUtilPercent", 0},
                                 {"memoryUtilPercent", 0}});
    }
  }
  const std::string status = StringAt(shown, "status");
  const bool runs = status == "PROVISIONING" || status == "RUNNING";
  const RunpodGpu* gpu = RunpodStockOf(world).Find(pod.product);
  const std::string host_id = StringAt(pod.extra, "host_id");
  return {{"id", pod.id},
          {"name", pod.label},
          {"imageName", shown["image"]},
          {"costPerHr", shown["cost"]},
          {"desiredStatus", runs                 ? "RUNNING"
                            : status == "EXITED" ? "EXITED"
                                                 : "TERMINATED"},
          {"lastStatusChange", absl::StrCat(status, " by user")},
          {"dockerArgs", shown["args"]},
          {"dockerId", nullptr},
          {"env", environment},
          {"gpuCount", pod.gpu_count},
          {"vcpuCount", shown.value("gpu", Json::object()).value("vcpuCount", 2)},
          {"memoryInGb", shown.value("gpu", Json::object()).value("memory", 8)},
          {"containerDiskInGb", shown["disk"]},
          {"volumeInGb", IntegerAt(persistent, "size")},
          {"volumeMountPath", StringAt(pod.extra, "volume_path")},
          {"podType", pod.spot ? "INTERRUPTABLE" : "RESERVED"},
          {"port", nullptr},
          {"ports", absl::StrJoin(shown["ports"].get<std::vector<std::string>>(), ",")},
          {"templateId", shown["template"]},
          {"uptimeSeconds", runtime.is_object() ? runtime["uptimeInSeconds"] : Json(0)},
          {"runtime", runtime},
          {"machineId", host_id},
          {"machine",
           {{"podHostId", absl::StrCat(pod.id, "-", host_id)},
            {"gpuDisplayName", gpu != nullptr ? Json(gpu->name) : Json()},
            {"gpuTypeId", pod.product},
            {"dataCenterId", pod.region},
            {"gpuAvailable", 0},
            {"maintenanceStart", nullptr},
            {"maintenanceEnd", nullptr},
            {"maintenanceNote", nullptr}}}};
}

Json Myself(World& world, const Account& account, const QueryField& field) {
  Json keys = Json::array();
  for (const Json& key : account.ssh_keys) keys.push_back(key);
  Json myself = {{"id", absl::StrCat("user_", account.user_id)},
                 {"authId", absl::StrCat("auth_", account.user_id)},
                 {"email", "owner@example.invalid"},
                 {"pubKey", absl::StrJoin(keys.get<std::vector<std::string>>(), "\n")},
                 {"clientBalance", world.Balance(account)},
                 {"currentSpendPerHr", world.SpendRate(account)},
                 {"spendLimit", account.spend_limit_usd_per_hour},
                 {"containerRegistryCreds", RunpodRegistriesOf(world, account)},
                 {"networkVolumes", Json::array()},
                 {"pods", Json::array()}};
  if (field.Find("pods") != nullptr) {
    for (const Instance* pod : world.Listed("runpod", account.name)) {
      myself["pods"].push_back(GraphqlPod(world, *pod));
    }
  }
  for (const auto& entry : RunpodTable(world, account, "volumes").items()) {
    const std::string center = StringAt(entry.value(), "dataCenter");
    myself["networkVolumes"].push_back({{"id", entry.key()},
                                        {"name", entry.value()["name"]},
                                        {"size", entry.value()["size"]},
                                        {"dataCenterId", center},
                                        {"dataCenter", {{"id", center}, {"name", center}}}});
  }
  return myself;
}

Json InputSchema(bool spot) {
  Json schema = Json::parse(R"({
    "type": "object", "additionalProperties": false, "required": ["gpuTypeId"], "properties": {
      "name": {"type": "string"}, "imageName": {"type": "string"},
      "gpuTypeId": {"type": "string"}, "gpuCount": {"type": "integer", "minimum": 1},
      "cloudType": {"type": "string", "enum": ["SECURE", "COMMUNITY", "ALL"]},
      "containerDiskInGb": {"type": "integer"}, "volumeInGb": {"type": "integer"},
      "volumeMountPath": {"type": "string"}, "volumeKey": {"type": "string"},
      "ports": {"type": "string"}, "dockerArgs": {"type": "string"},
      "env": {"type": "array", "items": {"type": "object", "required": ["key", "value"],
        "additionalProperties": false,
        "properties": {"key": {"type": "string"}, "value": {"type": "string"}}}},
      "dataCenterId": {"type": "string"}, "countryCode": {"type": "string"},
      "startSsh": {"type": "boolean"}, "startJupyter": {"type": "boolean"},
      "supportPublicIp": {"type": "boolean"}, "minVcpuCount": {"type": "integer"},
      "minMemoryInGb": {"type": "integer"}, "minDownload": {"type": "integer"},
      "minUpload": {"type": "integer"}, "cudaVersion": {"type": "string"},
      "allowedCudaVersions": {"type": "array", "items": {"type": "string"}},
      "networkVolumeId": {"type": "string"}, "templateId": {"type": "string"},
      "containerRegistryAuthId": {"type": "string"},
      "stopAfter": {"type": "string"}, "terminateAfter": {"type": "string"}}})");
  Json& properties = schema["properties"];
  if (spot) {
    schema["required"].push_back("bidPerGpu");
    properties["bidPerGpu"] = {{"type", "number"}};
  } else {
    properties["deployCost"] = {{"type", "number"}};
  }
  return schema;
}

// Returns the REST API's body for the same pod.
Json PodBody(const World& world, const Json& input, const std::string& cloud) {
  Json body = {{"name", StringAt(input, "name", "pod")},
               {"image", StringAt(input, "imageName")},
               {"args", StringAt(input, "dockerArgs")},
               {"gpu", {{"id", input["gpuTypeId"]}, {"count", IntegerAt(input, "gpuCount", 1)}}},
               {"cloud", cloud},
               {"disk", IntegerAt(input, "containerDiskInGb", 20)},
               {"startSsh", BoolAt(input, "startSsh")},
               {"env", Json::object()},
               {"ports", Json::array()}};
  const std::string ports = StringAt(input, "ports");
  for (const absl::string_view port : absl::StrSplit(ports, ',', absl::SkipEmpty())) {
    body["ports"].push_back(std::string(port));
  }
  for (const Json& variable : input.value("env", Json::array())) {
    body["env"][StringAt(variable, "key")] = StringAt(variable, "value");
  }
  if (!StringAt(input, "templateId").empty()) body["templateId"] = input["templateId"];
  if (!StringAt(input, "containerRegistryAuthId").empty()) {
    body["registry"] = input["containerRegistryAuthId"];
  }
  const std::string centers = StringAt(input, "dataCenterId");
  const std::string country = StringAt(input, "countryCode");
  if (!centers.empty()) {
    body["dataCenterIds"] = std::vector<std::string>(absl::StrSplit(centers, ','));
  } else if (!country.empty()) {
    body["dataCenterIds"] = {""};  // no other place will do
    for (const RunpodDataCenter& center : RunpodStockOf(world).centers) {
      if (center.country == country) body["dataCenterIds"].push_back(center.id);
    }
  }
  const std::string path = StringAt(input, "volumeMountPath");
  if (!StringAt(input, "networkVolumeId").empty()) {
    body["mounts"]["network"] =
        Json::array({{{"volumeId", input["networkVolumeId"]}, {"path", path}}});
  } else if (IntegerAt(input, "volumeInGb") > 0) {
    body["mounts"]["persistent"] = {{"size", input["volumeInGb"]}, {"path", path}};
  }
  return body;
}

// Rents the pod of `field`'s input.
Reply Deploy(World& world, Account& account, const QueryField& field) {
  const bool spot = field.name == kRent;
  Json input = field.arguments.value("input", Json());
  for (auto member = input.begin(); input.is_object() && member != input.end();) {
    member = member->is_null() ? input.erase(member) : std::next(member);
  }
  const std::vector<std::string> wrong = CheckJson(input, InputSchema(spot));
  if (!wrong.empty()) {
    return GraphqlError(400, absl::StrCat("Argument \"input\" has invalid value: ", wrong[0]),
                        "GRAPHQL_VALIDATION_FAILED");
  }
  const RunpodGpu* gpu = RunpodStockOf(world).Find(StringAt(input, "gpuTypeId"));
  const double bid = NumberAt(input, "bidPerGpu");
  const int64_t count = IntegerAt(input, "gpuCount", 1);
  if (gpu != nullptr && (IntegerAt(input, "minVcpuCount") > count * kRunpodVcpusPerGpu ||
                         IntegerAt(input, "minMemoryInGb") > count * RunpodRamPerGpu(*gpu))) {
    return GraphqlError(200, kRunpodNoCapacity, "SUPPLY_CONSTRAINT", field.name);
  }
  Caller caller;
  caller.account = &account;
  caller.name = account.name;
  std::vector<std::string> clouds = {StringAt(input, "cloudType", "SECURE")};
  if (clouds[0] == "ALL") clouds = {"SECURE", "COMMUNITY"};
  Reply made;
  for (const std::string& cloud : clouds) {
    const double price = gpu == nullptr         ? 0
                         : cloud == "COMMUNITY" ? gpu->community_usd
                                                : gpu->secure_usd;
    if (spot && bid < price / 2) {
      made = RunpodError(400, "Your bid is too low.");
      continue;
    }
    made = RunpodMakePod(world, caller, PodBody(world, input, cloud), bid);
    if (made.status == 201) break;
  }
  const Json answer = Json::parse(made.body, nullptr, false);
  if (made.status != 201) {
    const std::string detail = StringAt(answer, "detail");
    return GraphqlError(200, detail, detail == kRunpodNoCapacity ? "SUPPLY_CONSTRAINT" : "",
                        field.name);
  }
  Instance* pod = world.Find("runpod", made.instance);
  pod->extra["volume_path"] = StringAt(input, "volumeMountPath");
  Reply reply = JsonReply(200, GraphqlPod(world, *pod));
  reply.instance = made.instance;
  return reply;
}

// Stops, resumes or terminates the pod of `field`'s input.
Reply Change(World& world, Account& account, const QueryField& field) {
  Caller caller;
  caller.account = &account;
  caller.name = account.name;
  const std::string id = StringAt(field.arguments.value("input", Json()), "podId");
  Instance* pod = RunpodPod(world, caller, id);
  const bool end = field.name == "podTerminate";
  if (pod == nullptr || !pod->alive()) {
    return GraphqlError(200, end ? "pod not found to terminate" : "pod not found", "", field.name);
  }
  const std::string action = end ? "terminate" : field.name == "podStop" ? "stop" : "start";
  const Reply done = RunpodAct(world, caller, pod, action);
  if (done.status >= 300) {
    return GraphqlError(200, StringAt(Json::parse(done.body, nullptr, false), "detail"), "",
                        field.name);
  }
  Reply reply = JsonReply(200, end ? Json() : GraphqlPod(world, *pod));
  reply.instance = id;
  return reply;
}

// Answers one field: its whole value, or an error.
Reply AnswerField(World& world, Account& account, const QueryField& field) {
  if (field.name == kDeploy || field.name == kRent) return Deploy(world, account, field);
  if (field.name == "myself") return JsonReply(200, Myself(world, account, field));
  if (field.name == "gpuTypes") return JsonReply(200, GpuTypes(world, field));
  if (field.name != "pod") return Change(world, account, field);
  Caller caller;
  caller.account = &account;
  const std::string id = StringAt(field.arguments.value("input", Json()), "podId");
  const Instance* pod = RunpodPod(world, caller, id);
  const bool there = pod != nullptr && pod->alive();
  return JsonReply(200, there ? GraphqlPod(world, *pod) : Json());
}

QueryDocument Document(const Call& call) {
  return ReadQuery(StringAt(call.json, "query"),
                   call.json.is_object() ? call.json.value("variables", Json()) : Json());
}

}  // namespace

std::string RunpodGraphqlRoute(const Call& call) {
  const QueryDocument document = Document(call);
  if (!document.error.empty() || document.fields.empty()) return "graphql";
  const QueryField& field = document.fields[0];
  if (field.name == kDeploy || field.name == kRent) return "create";
  if (field.name == "podTerminate") return "terminate";
  if (document.mutation) return "action";
  if (field.name == "pod") return "describe";
  return field.Find("pods") != nullptr ? "list" : "graphql";
}

Reply RunpodGraphql(World& world, const Call& call) {
  std::string key = call.Key();
  if (key.empty()) key = call.Query("api_key");
  Account* account = world.FindAccount("runpod", key);
  if (account == nullptr) return JsonReply(401, {{"error", Json::object()}});
  if (StringAt(call.json, "query").empty()) {
    return GraphqlError(400, "Must provide query string.", "BAD_REQUEST");
  }
  const QueryDocument document = Document(call);
  if (!document.error.empty()) {
    return GraphqlError(400, document.error,
                        absl::StartsWith(document.error, "Syntax") ? "GRAPHQL_PARSE_FAILED"
                                                                   : "GRAPHQL_VALIDATION_FAILED");
  }
  Json data = Json::object();
  std::string instance;
  for (const QueryField& field : document.fields) {
    Reply reply = AnswerField(world, *account, field);
    const Json answer = Json::parse(reply.body, nullptr, false);
    if (reply.status != 200 || (answer.is_object() && answer.contains("errors"))) {
      reply.account = account->name;
      return reply;
    }
    data[field.alias] = Selected(answer, field.fields);
    if (!reply.instance.empty()) instance = reply.instance;
  }
  Reply reply = JsonReply(200, {{"data", data}});
  reply.account = account->name;
  reply.instance = instance;
  return reply;
}

}  // namespace gpuctl::cloudsim
