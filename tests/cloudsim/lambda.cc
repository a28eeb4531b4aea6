#include <unistd.h>
#include <algorithm>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/ids.h"
#include "tests/cloudsim/cloud_init.h"
#include "tests/cloudsim/lambda_parts.h"
#include "tests/cloudsim/service.h"

namespace gpuctl::cloudsim {
namespace {

const char* StatusOf(const Instance& instance) {
  if (instance.trouble.offline && instance.phase == Phase::kRunning) return "unhealthy";
  switch (instance.phase) {
    case Phase::kBooting:
      return "booting";
    case Phase::kRunning:
      return "active";
    case Phase::kEnding:
      return "terminating";
    case Phase::kFailed:
      return "unhealthy";
    default:
      return instance.message == "preempted" ? "preempted" : "terminated";
  }
}

Json TypeJson(const LambdaType& type) {
  return {{"name", type.name},
          {"description", type.description},
          {"gpu_description", type.gpu_description},
          {"price_cents_per_hour", type.cents},
          {"specs",
           {{"vcpus", type.vcpus},
            {"memory_gib", type.memory_gib},
            {"storage_gib", type.storage_gib},
            {"gpus", type.gpus}}}};
}

Json Action(bool available) {
  if (available) return {{"available", true}};
  return {{"available", false},
          {"reason_code", "vm-is-terminating"},
          {"reason_description", "The instance is being terminated."}};
}

Json InstanceJson(World& world, const Instance& instance) {
  const bool there = instance.phase == Phase::kBooting || instance.phase == Phase::kRunning ||
                     instance.phase == Phase::kFailed;
  Json type = instance.extra["type"];
  type["price_cents_per_hour"] = static_cast<int>(std::lround(instance.usd_per_hour * 100));
  Json json = {{"id", instance.id},
               {"name", instance.label},
               {"status", StatusOf(instance)},
               {"ssh_key_names", instance.request["ssh_key_names"]},
               {"file_system_names", instance.extra["file_systems"]},
               {"region", LambdaRegion(world, instance.region)},
               {"instance_type", type},
               {"tags", instance.request.value("tags", Json::array())},
               {"actions",
                {{"migrate", Action(false)},
                 {"rebuild", Action(false)},
                 {"restart", Action(instance.phase == Phase::kRunning)},
                 {"cold_reboot", Action(false)},
                 {"terminate", Action(there)}}}};
  // Without mounts the member is missing.
  if (!instance.extra["mounts"].empty()) json["file_system_mounts"] = instance.extra["mounts"];
  if (instance.request.contains("firewall_rulesets")) {
    json["firewall_rulesets"] = instance.request["firewall_rulesets"];
  }
  if (instance.reachable()) {
    json["ip"] = instance.node->host();
    json["private_ip"] = "10.19.0.4";
    json["hostname"] = absl::StrReplaceAll(instance.node->host(), {{".", "-"}});
    const std::string token = instance.id;
    json["jupyter_token"] = token;
    json["jupyter_url"] = absl::StrCat("https://jupyter-", token, ".invalid/?token=", token);
  }
  if (instance.request.contains("hostname")) json["hostname"] = instance.request["hostname"];
  return json;
}

Reply NoInstance() {
  return LambdaError(404, "global/object-does-not-exist", "Specified instance does not exist.");
}

const Json& LaunchSchema() {
  static const auto* const schema = new Json(Json::parse(R"({
    "type": "object", "required": ["region_name", "instance_type_name", "ssh_key_names"],
    "properties": {
      "region_name": {"type": "string"}, "instance_type_name": {"type": "string"},
      "ssh_key_names": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 1},
      "file_system_names": {"type": "array", "items": {"type": "string"}},
      "file_system_mounts": {"type": "array", "items": {"type": "object",
        "required": ["mount_point", "file_system_id"], "properties": {
          "mount_point": {"type": "string", "maxLength": 256,
            "pattern": "^(/home|/lambda/nfs|/data)[//a-zA-Z0-9-]*$"},
          "file_system_id": {"type": "string"}}}},
      "hostname": {"type": "string", "pattern": "^[a-z0-9][0-9a-z-]{0,62}$"},
      "name": {"type": ["string", "null"], "maxLength": 64},
      "image": {"type": "object", "properties": {"id": {"type": "string"},
        "family": {"type": "string"}}},
      "user_data": {"type": "string", "maxLength": 1048576},
      "tags": {"type": "array", "items": {"type": "object", "required": ["key", "value"],
        "properties": {
          "key": {"type": "string", "maxLength": 55, "pattern": "^[a-z][a-z0-9-:]+$"},
          "value": {"type": "string", "maxLength": 128}}}},
      "firewall_rulesets": {"type": "array", "items": {"type": "object", "required": ["id"],
        "properties": {"id": {"type": "string"}}}}}})"));
  return *schema;
}

std::optional<Reply> BadLaunch(World& world, const Call& call, const Account& account) {
  const std::vector<std::string> wrong = CheckJson(call.json, LaunchSchema());
  if (call.json.is_discarded() || !wrong.empty()) return LambdaInvalid(wrong);
  if (call.json.contains("quantity") && call.json["quantity"] != 1) {
    return LambdaError(400, "global/invalid-parameters", "quantity: no longer supported");
  }
  if (LambdaStockOf(world).regions.count(StringAt(call.json, "region_name")) == 0) {
    return LambdaError(400, "global/object-does-not-exist", "Region does not exist.");
  }
  if (LambdaStockOf(world).Find(StringAt(call.json, "instance_type_name")) == nullptr) {
    return LambdaError(400, "global/object-does-not-exist", "Instance type does not exist.");
  }
  if (LambdaSshKey(account, call.json["ssh_key_names"][0].get<std::string>()).empty()) {
    return LambdaError(400, "global/object-does-not-exist", "SSH key does not exist.");
  }
  if (auto reply = LambdaBadParts(world, account, call.json)) return reply;
  int64_t alive = 0;
  for (const auto& instance : world.instances) {
    if (instance->service == "lambda" && instance->account == account.name && instance->alive()) {
      ++alive;
    }
  }
  if (alive >= account.quota || world.faults.Take("lambda", "create", "quota")) {
    return LambdaError(400, "global/quota-exceeded", "Quota exceeded.");
  }
  if (world.faults.Take("lambda", "create", "no_funds")) {
    return LambdaError(403, "global/account-inactive", "Your account is inactive.");
  }
  const LambdaType& type = *LambdaStockOf(world).Find(StringAt(call.json, "instance_type_name"));
  const auto place = type.regions.find(StringAt(call.json, "region_name"));
  if (place == type.regions.end() || place->second < 1 ||
      world.faults.Take("lambda", "create", "out_of_stock")) {
    return LambdaError(400, "instance-operations/launch/insufficient-capacity",
                       "Not enough capacity to fulfill launch request.");
  }
  return std::nullopt;
}

Reply Launch(World& world, const Call& call, const Account& account) {
  if (auto bad = BadLaunch(world, call, account)) return *std::move(bad);
  LambdaType& type = *LambdaStockOf(world).Find(StringAt(call.json, "instance_type_name"));
  auto instance = std::make_unique<Instance>();
  instance->service = "lambda";
  instance->id = RandomHex(16);
  instance->account = account.name;
  instance->label = StringAt(call.json, "name");
  instance->product = type.name;
  instance->region = StringAt(call.json, "region_name");
  instance->gpu_name = type.gpu_name;
  instance->gpu_count = type.gpus;
  instance->usd_per_hour = type.cents / 100.0;
  instance->request = call.json;
  instance->extra = {{"type", TypeJson(type)},
                     {"mounts", LambdaMounts(world, account, call.json)},
                     {"file_systems", Json::array()}};
  --type.regions[instance->region];
  instance->holds_stock = true;
  instance->spec.user = "ubuntu";
  instance->spec.host = world.NewAddress();
  instance->spec.port_22 = true;
  instance->spec.authorized_keys = {
      LambdaSshKey(account, call.json["ssh_key_names"][0].get<std::string>())};
  instance->spec.environment["GPUCTL_SIM_API"] = absl::StrCat(world.url, "/lambda");
  instance->spec.script = CloudInitScript(StringAt(call.json, "user_data"));
  if (!world.faults.Take("lambda", "create", "host_key_not_applied")) {
    instance->spec.host_key = CloudInitHostKey(StringAt(call.json, "user_data"));
  }
  instance->spec.gpu_name = type.gpu_name;
  instance->spec.gpu_count = type.gpus;
  instance->spec.gpu_memory_mib = type.gpu_memory_mib;
  for (const Json& mount : instance->extra["mounts"]) {
    if (const StoredVolume* volume =
            world.FindVolume("lambda", StringAt(mount, "file_system_id"))) {
      instance->spec.mounts[StringAt(mount, "mount_point")] = volume->dir;
      instance->extra["file_systems"].push_back(volume->name);
    }
  }
  Instance* made = world.Add(std::move(instance));
  made->StartCharge("gpu", made->usd_per_hour, 60'000, made->created_ms);
  Reply reply = LambdaData({{"instance_ids", {made->id}}});
  reply.instance = made->id;
  return reply;
}

Instance* Own(World& world, const Account& account, const std::string& id) {
  Instance* instance = world.Find("lambda", id);
  return instance != nullptr && instance->account == account.name ? instance : nullptr;
}

Reply ForEach(World& world, const Call& call, const Account& account, bool terminate) {
  static const auto* const schema = new Json(Json::parse(R"({"type": "object",
    "required": ["instance_ids"], "properties": {"instance_ids": {"type": "array",
      "items": {"type": "string"}, "minItems": 1}}})"));
  const std::vector<std::string> wrong = CheckJson(call.json, *schema);
  if (call.json.is_discarded() || !wrong.empty()) return LambdaInvalid(wrong);
  for (const Json& id : call.json["instance_ids"]) {
    const Instance* instance = Own(world, account, id.get<std::string>());
    if (instance == nullptr || !instance->alive()) return NoInstance();
    if (!terminate && instance->phase != Phase::kRunning) {
      return LambdaError(409, "global/conflict",
                         "The request conflicts with the current state of the resource.");
    }
  }
  Json done = Json::array();
  for (const Json& id : call.json["instance_ids"]) {
    Instance* instance = Own(world, account, id.get<std::string>());
    // The reply names the instances that really end; some may be missing.
    if (terminate && world.faults.Take("lambda", "terminate", "terminate_ignored")) continue;
    if (terminate) {
      world.End(instance, account.name, world.options.boot_s / 2);
    } else {
      if (instance->node != nullptr) instance->node->Stop();
      world.Start(instance, account.name);
    }
    done.push_back(InstanceJson(world, *instance));
  }
  return LambdaData({{terminate ? "terminated_instances" : "restarted_instances", done}});
}

Reply Describe(World& world, const Call& call, const Account& account) {
  Instance* instance = Own(world, account, call.parts[3]);
  if (instance == nullptr || (!instance->alive() && instance->trouble.ended_lag <= 0)) {
    return NoInstance();
  }
  if (!instance->alive()) --instance->trouble.ended_lag;
  if (call.method == "POST") {
    const std::vector<std::string> wrong = CheckJson(call.json, Json::parse(R"({"type": "object",
      "properties": {"name": {"type": "string", "maxLength": 64}}})"));
    if (call.json.is_discarded() || !wrong.empty()) return LambdaInvalid(wrong);
    instance->label = StringAt(call.json, "name", instance->label);
  }
  Reply reply = LambdaData(InstanceJson(world, *instance));
  reply.instance = instance->id;
  return reply;
}

Reply InstanceTypes(const World& world) {
  Json types = Json::object();
  for (const LambdaType& type : LambdaStockOf(world).types) {
    Json regions = Json::array();
    for (const auto& place : type.regions) {
      if (place.second > 0) regions.push_back(LambdaRegion(world, place.first));
    }
    types[type.name] = {{"instance_type", TypeJson(type)},
                        {"regions_with_capacity_available", regions}};
  }
  return LambdaData(types);
}

Reply DispatchLambda(World& world, const Call& call, Account& account) {
  if (call.Is("GET", "/api/v1/instance-types")) return InstanceTypes(world);
  if (call.Is("GET", "/api/v1/instances")) {
    Json instances = Json::array();
    // Nobody has a cluster here.
    if (!call.Query("cluster_id").empty()) return LambdaData(instances);
    for (const Instance* instance : world.Listed("lambda", account.name)) {
      instances.push_back(InstanceJson(world, *instance));
    }
    return LambdaData(instances);
  }
  if (call.Is("GET", "/api/v1/instances/{}") || call.Is("POST", "/api/v1/instances/{}")) {
    return Describe(world, call, account);
  }
  if (call.Is("POST", "/api/v1/instance-operations/launch")) return Launch(world, call, account);
  if (call.Is("POST", "/api/v1/instance-operations/terminate")) {
    return ForEach(world, call, account, true);
  }
  if (call.Is("POST", "/api/v1/instance-operations/restart")) {
    return ForEach(world, call, account, false);
  }
  if (auto reply = LambdaStorage(world, call, account)) return *std::move(reply);
  if (auto reply = LambdaFirewall(world, call, account)) return *std::move(reply);
  return LambdaError(404, "global/not-found", "The requested resource was not found.");
}

}  // namespace

Json LambdaRegion(const World& world, const std::string& name) {
  const auto found = LambdaStockOf(world).regions.find(name);
  return {{"name", name},
          {"description", found != LambdaStockOf(world).regions.end() ? found->second : ""}};
}

Reply LambdaError(int status, const std::string& code, const std::string& message) {
  std::string suggestion = "Check the request and try again.";
  if (code == "global/invalid-api-key") {
    suggestion = "Check your API key or create a new one, then try again.";
  }
  return JsonReply(status,
                   {{"error", {{"code", code}, {"message", message}, {"suggestion", suggestion}}}});
}

namespace {

std::string LambdaRoute(const Call& call) {
  if (call.Is("POST", "/api/v1/instance-operations/launch")) return "create";
  if (call.Is("POST", "/api/v1/instance-operations/terminate")) return "terminate";
  if (call.Is("POST", "/api/v1/instance-operations/restart")) return "action";
  if (call.Is("GET", "/api/v1/instances")) return "list";
  if (call.Is("GET", "/api/v1/instances/{}")) return "describe";
  if (call.Is("POST", "/api/v1/instances/{}")) return "update";
  if (call.Is("GET", "/api/v1/instance-types")) return "offers";
  if (call.parts.size() > 2 && call.parts[2] == "ssh-keys") return "keys";
  if (call.parts.size() > 2 &&
      (call.parts[2] == "file-systems" || call.parts[2] == "filesystems")) {
    return "volumes";
  }
  return "other";
}

Reply HandleLambda(World& world, const Call& call) {
  Account* account = world.FindAccount("lambda", call.KeyOrUser());
  if (account == nullptr) {
    return LambdaError(401, "global/invalid-api-key", "API key was invalid, expired, or deleted.");
  }
  Reply reply;
  const std::string bucket = absl::StrCat("lambda/", account->key);
  if (world.options.rate_limits &&
      (!world.Allow(bucket, 1, 1, nullptr, nullptr) ||
       (call.route == "create" &&
        !world.Allow(absl::StrCat(bucket, "/launch"), 1, 1.0 / 12, nullptr, nullptr)))) {
    reply = LambdaError(429, "global/rate-limited", "Too many requests.");
  } else if (account->inactive) {
    reply = LambdaError(403, "global/account-inactive", "Your account is inactive.");
  } else {
    reply = DispatchLambda(world, call, *account);
  }
  reply.account = account->name;
  return reply;
}

class LambdaService : public Service {
 public:
  const char* name() const override { return "lambda"; }
  std::string Route(const Call& call) const override { return LambdaRoute(call); }
  Reply Handle(World& world, const Call& call) override { return HandleLambda(world, call); }
  Reply Error(int status, const std::string& message) const override {
    const char* code = status == 401   ? "global/invalid-api-key"
                       : status == 403 ? "global/forbidden"
                       : status == 404 ? "global/not-found"
                       : status == 409 ? "global/conflict"
                       : status == 429 ? "global/rate-limited"
                       : status == 503 ? "provider/unavailable"
                                       : "global/internal-error";
    return LambdaError(status, code, message);
  }
  std::string SetStock(const Json& change) override { return stock.Set(change); }
  std::string AddStock(const Json& item) override { return stock.Add(item); }
  std::string SetPrice(const Json& change) override { return stock.SetPrice(change); }
  Json StockJson() const override { return stock.ToJson(); }
  void ReturnStock(const Instance& instance) override { stock.Return(instance); }
  bool prepaid() const override { return false; }
  void MeasureVolumes(World& world) override { MeasureFileSystems(world); }

  LambdaStock stock;
};

}  // namespace

LambdaStock& LambdaStockOf(const World& world) {
  return static_cast<LambdaService&>(world.ServiceOf("lambda")).stock;
}

std::unique_ptr<Service> MakeLambdaService() { return std::make_unique<LambdaService>(); }

}  // namespace gpuctl::cloudsim
