#include <algorithm>
#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/ids.h"
#include "tests/cloudsim/service.h"

namespace gpuctl::cloudsim {
namespace {

constexpr char kShade[] = "shadeform";
constexpr int64_t kShadeHourMs = 3'600'000;
constexpr double kLeastBalanceUsd = 5;
constexpr char kNever[] = "0001-01-01T00:00:00Z";

// The types by cloud and name: cents of the machine, memory of one GPU, the name and memory of one
// as nvidia-smi shows them, and the available numbers. A region with "spot" has as many spot ones.
constexpr char kTypes[] = R"({
  "hyperstack/A6000": {"gpu": "A6000", "gpus": 1, "vram": 48, "cents": 50, "link": "pcie", "disk": 100,
    "driver": "NVIDIA RTX A6000", "mib": 49140,
    "os": ["ubuntu22.04_shade_os", "ubuntu20.04_cuda11.8_shade_os", "ubuntu22.04_cuda12.2_shade_os"],
    "regions": {"canada-1": {"name": "Toronto, Canada", "count": 4, "spot": "0.30"},
                "norway-1": {"name": "Norway, Hammerfest", "count": 0, "spot": "0.35"}}},
  "massedcompute/H100": {"gpu": "H100", "gpus": 1, "vram": 80, "cents": 298, "link": "pcie", "disk": 625,
    "driver": "NVIDIA H100 PCIe", "mib": 81559, "regions": {"us-central-2": {"name": "US, Wichita, KS", "count": 6}}},
  "digitalocean/H100_sxm5": {"gpu": "H100", "gpus": 1, "vram": 80, "cents": 335, "link": "sxm5", "disk": 720,
    "driver": "NVIDIA H100 80GB HBM3", "mib": 81559, "regions": {"nyc2": {"name": "US, New York, NY", "count": 2}}},
  "lambdalabs/A100_80Gx8": {"gpu": "A100_80G", "gpus": 8, "vram": 80, "cents": 1432, "link": "sxm4", "disk": 10240,
    "driver": "NVIDIA A100-SXM4-80GB", "mib": 81920, "regions": {"us-east-1": {"name": "US, Richmond, VA", "count": 1}}},
  "datacrunch/H100": {"gpu": "H100", "gpus": 1, "vram": 80, "cents": 99, "link": "sxm5", "disk": 100, "kind": "container",
    "driver": "NVIDIA H100 80GB HBM3", "mib": 81559, "regions": {"FIN-01": {"name": "FI, Helsinki", "count": 2}}}
})";
constexpr char kSystem[] = "ubuntu22.04_cuda12.4_shade_os";

Reply ShadeError(int status, const std::string& code, const std::string& message) {
  return JsonReply(status, {{"error_code", code}, {"error", message}});
}

// Returns the region's count under this name: "count" or "spots", which has the first value of the
// other one.
int64_t ShadeCount(const Json& region, bool spot) {
  if (!spot) return IntegerAt(region, "count");
  return region.contains("spot") ? IntegerAt(region, "spots", 3) : 0;
}

Json ShadeHardware(const Json& type) {
  return {{"memory_in_gb", 64},
          {"storage_in_gb", type["disk"]},
          {"vcpus", 16},
          {"num_gpus", type["gpus"]},
          {"gpu_type", type["gpu"]},
          {"interconnect", type["link"]},
          {"nvlink", false},
          {"vram_per_gpu_in_gb", type["vram"]},
          {"gpu_manufacturer", "nvidia"}};
}

Json TypeRow(const std::string& item, const Json& type, bool available_only) {
  Json places = Json::array();
  for (const auto& place : type["regions"].items()) {
    for (const bool spot : {false, true}) {
      const bool available = ShadeCount(place.value(), spot) > 0;
      if (available_only ? !available : spot && !place.value().contains("spot")) continue;
      Json row = {{"region", place.key()},
                  {"available", available},
                  {"display_name", place.value()["name"]},
                  {"rental_type", spot ? "spot" : "on_demand"}};
      if (spot) row["hourly_price"] = place.value()["spot"];
      places.push_back(row);
    }
  }
  Json hardware = ShadeHardware(type);
  hardware["os_options"] = type.value("os", Json::array({kSystem}));
  const size_t slash = item.find('/');
  return {{"cloud", item.substr(0, slash)},
          {"shade_instance_type", item.substr(slash + 1)},
          {"cloud_instance_type", "gpu_" + item.substr(slash + 1)},
          {"configuration", hardware},
          {"hourly_price", type["cents"]},
          {"deployment_type", StringAt(type, "kind", "vm")},
          {"availability", places}};
}

const char* ShadeStatus(const Instance& instance, int64_t now_ms) {
  const int64_t whole = instance.boot_at_ms - instance.created_ms;
  const int64_t part = (now_ms - instance.created_ms) * 3;
  if (instance.phase == Phase::kBooting) {
    return part < whole ? "creating" : part < 2 * whole ? "pending_provider" : "pending";
  }
  if (instance.phase == Phase::kRunning) return "active";
  if (instance.phase == Phase::kEnded && instance.trouble.ended_lag <= 0) return "deleted";
  return instance.phase == Phase::kStopped || instance.phase == Phase::kFailed ? "error"
                                                                               : "deleting";
}

// Returns an instance as the list shows it; with `whole` as an answer about it alone does.
Json ShadeJson(const Instance& instance, int64_t now_ms, bool whole) {
  const Json& type = instance.extra["type"];
  const bool there = instance.reachable();
  Json hardware = ShadeHardware(type);
  hardware["os"] = StringAt(instance.request, "os", kSystem);
  Json json = {{"id", instance.id},
               {"cloud", instance.request["cloud"]},
               {"region", instance.region},
               {"shade_instance_type", instance.request["shade_instance_type"]},
               {"cloud_instance_type", "gpu_" + StringAt(instance.request, "shade_instance_type")},
               {"cloud_assigned_id", "c-" + instance.id},
               {"shade_cloud", true},
               {"name", instance.label},
               {"configuration", hardware},
               {"ip", there ? instance.node->host() : ""},
               {"ssh_user", there ? "shadeform" : ""},
               {"ssh_port", there ? instance.node->port() : 0},
               {"status", ShadeStatus(instance, now_ms)},
               {"status_details", instance.message},
               {"cost_estimate", absl::StrFormat("%.4f", instance.Billed(now_ms))},
               {"hourly_price", static_cast<int64_t>(instance.usd_per_hour * 100 + 0.5)},
               {"tags", instance.extra["tags"]},
               {"created_at", Rfc3339(instance.created_ms)},
               {"active_at", instance.started_ms > 0 ? Rfc3339(instance.started_ms) : kNever},
               {"deleted_at", instance.ended_ms > 0 ? Rfc3339(instance.ended_ms) : kNever}};
  if (instance.spot) {
    json["rental_terms"] = {{"rental_type", "spot"},
                            {"hourly_price", absl::StrFormat("%.2f", instance.usd_per_hour)}};
  }
  if (whole && instance.extra.contains("auto_delete")) {
    json["auto_delete"] = instance.extra["auto_delete"];
  }
  return json;
}

constexpr char kShadeCreate[] = R"({"type": "object",
  "required": ["cloud", "name", "region", "shade_cloud", "shade_instance_type"], "properties": {
    "cloud": {"type": "string"}, "region": {"type": "string"}, "os": {"type": "string"},
    "shade_instance_type": {"type": "string"}, "shade_cloud": {"type": "boolean"},
    "name": {"type": "string"}, "ssh_key_id": {"type": "string"}, "rental_type": {"type": "string"},
    "tags": {"type": "array", "items": {"type": "string"}}, "auto_delete": {"type": "object"},
    "launch_configuration": {"type": "object", "required": ["type"]}}})";

class ShadeformService : public Service {
 public:
  const char* name() const override { return kShade; }

  std::string Route(const Call& call) const override {
    if (call.Is("POST", "/v1/instances/create")) return "create";
    if (call.Is("GET", "/v1/instances")) return "list";
    if (call.Is("GET", "/v1/instances/types")) return "offers";
    if (call.Is("GET", "/v1/instances/{}/info")) return "describe";
    if (call.Is("POST", "/v1/instances/{}/delete")) return "terminate";
    if (call.Is("POST", "/v1/instances/{}/update")) return "update";
    return call.parts.size() > 1 && call.parts[1] == "sshkeys" ? "keys" : "other";
  }

  Reply Error(int status, const std::string& message) const override {
    return ShadeError(status, absl::StrCat("HTTP_", status), message);
  }

  Reply Handle(World& world, const Call& call) override {
    // Anybody may read the types.
    if (call.route == "offers") return Types(call.Query("available") == "true");
    Account* account = world.FindAccount(kShade, call.Header("x-api-key"));
    if (account == nullptr) return Error(401, "invalid API key");
    Reply reply;
    const std::string bucket = absl::StrCat(kShade, "/", account->key);
    if (world.options.rate_limits && !world.Allow(bucket, 10, 2, nullptr, nullptr)) {
      reply = Error(429, "too many requests");
    } else if (account->inactive) {
      reply = Error(403, "the account is not active");
    } else {
      reply = Dispatch(world, call, *account);
    }
    reply.account = account->name;
    return reply;
  }

  // An item is CLOUD/TYPE; with "spot" the number is that of spot machines.
  std::string SetStock(const Json& change) override {
    Json* type = FindType(StringAt(change, "item"));
    if (type == nullptr) return "no such type";
    const std::string region = StringAt(change, "region");
    for (const auto& place : (*type)["regions"].items()) {
      if (!region.empty() && place.key() != region) continue;
      place.value()[BoolAt(change, "spot") ? "spots" : "count"] = IntegerAt(change, "count");
    }
    return "";
  }
  std::string AddStock(const Json& item) override {
    const Json* like = FindType(StringAt(item, "like"));
    if (like == nullptr) return "no such type";
    Json type = *like;
    type["gpu"] = StringAt(item, "gpu", StringAt(type, "gpu"));
    type["driver"] = StringAt(item, "driver_gpu", StringAt(type, "driver"));
    type["mib"] = IntegerAt(item, "memory_mib", IntegerAt(type, "mib"));
    type["vram"] = (IntegerAt(type, "mib") + 1023) / 1024;
    type["cents"] = Cents(item, IntegerAt(type, "cents"));
    types_[StringAt(item, "item")] = type;
    return "";
  }
  std::string SetPrice(const Json& change) override {
    Json* type = FindType(StringAt(change, "item"));
    if (type == nullptr) return "no such type";
    (*type)["cents"] = Cents(change, 0);
    return "";
  }
  Json StockJson() const override {
    Json all = Json::object();
    for (const auto& type : types_.items()) all[type.key()] = type.value()["regions"];
    return all;
  }
  void ReturnStock(const Instance& instance) override { Move(instance, 1); }

  // Ends what is due by its date, and what has cost what it may cost.
  void Due(World& world, Instance* instance, int64_t now_ms) override {
    if (instance->phase == Phase::kEnding || !instance->extra.contains("auto_delete")) return;
    const Json& end = instance->extra["auto_delete"];
    double most_usd = 0;
    const int64_t at_ms = ParseRfc3339(StringAt(end, "date_threshold"));
    const bool dated = !StringAt(end, "date_threshold").empty() && at_ms <= now_ms;
    const bool spent = absl::SimpleAtod(StringAt(end, "spend_threshold"), &most_usd) &&
                       most_usd > 0 && instance->Billed(now_ms) >= most_usd;
    if (!dated && !spent) return;
    // Its bill ends at that time, whenever somebody looks.
    const int64_t ended_ms = dated ? std::max(at_ms, instance->created_ms) : now_ms;
    instance->StopCharges("", ended_ms);
    world.End(instance, "simulator: auto_delete");
    instance->ended_ms = ended_ms;
  }

 private:
  static int64_t Cents(const Json& change, int64_t otherwise) {
    const double usd = NumberAt(change, "usd_per_hour", static_cast<double>(otherwise) / 100);
    return static_cast<int64_t>(usd * 100 + 0.5);
  }
  Json* FindType(const std::string& item) {
    return types_.contains(item) ? &types_[item] : nullptr;
  }
  void Move(const Instance& instance, int64_t count) {
    Json& place = types_[instance.product]["regions"][instance.region];
    place[instance.spot ? "spots" : "count"] = ShadeCount(place, instance.spot) + count;
  }

  Reply Types(bool available_only) const {
    Json rows = Json::array();
    for (const auto& type : types_.items()) {
      Json row = TypeRow(type.key(), type.value(), available_only);
      if (!row["availability"].empty()) rows.push_back(std::move(row));
    }
    return JsonReply(200, {{"instance_types", rows}});
  }

  // Returns what is wrong with an auto_delete; "" when it is good.
  static std::string WrongEnd(const Json& body) {
    if (!body.contains("auto_delete") || body["auto_delete"].is_null()) return "";
    const std::string date = StringAt(body["auto_delete"], "date_threshold");
    return date.empty() || ParseRfc3339(date) > 0 ? "" : "date_threshold is no RFC3339 date";
  }

  Reply Create(World& world, const Call& call, const Account& account) {
    std::string wrong = WrongBody(call.json, Json::parse(kShadeCreate));
    if (wrong.empty()) wrong = WrongEnd(call.json);
    if (!wrong.empty()) return Error(400, wrong);
    std::string key;
    const std::string key_id = StringAt(call.json, "ssh_key_id");
    for (const Json& row : account.ssh_keys) {
      if (row["id"] == key_id) key = StringAt(row, "public_key");
    }
    if (!key_id.empty() && key.empty()) return Error(400, "ssh key not found");
    const std::string item =
        absl::StrCat(StringAt(call.json, "cloud"), "/", StringAt(call.json, "shade_instance_type"));
    const std::string region = StringAt(call.json, "region");
    const bool spot = StringAt(call.json, "rental_type") == "spot";
    const Json* type = FindType(item);
    if (type == nullptr || !(*type)["regions"].contains(region)) {
      return Error(400, "no such instance type in that region");
    }
    if (world.Balance(account) < kLeastBalanceUsd ||
        world.faults.Take(kShade, "create", "no_funds")) {
      return ShadeError(409, "INSUFFICIENT_FUNDS",
                        absl::StrFormat("Balance must be a minimum of $5 to launch an instance. "
                                        "Current balance [$%.2f].",
                                        world.Balance(account)));
    }
    if (world.QuotaReached(account)) {
      return ShadeError(409, "QUOTA_EXCEEDED", "the cloud's quota is reached");
    }
    const Json place = (*type)["regions"][region];
    if (ShadeCount(place, spot) < 1 || world.TakeSoldOut(kShade)) {
      return ShadeError(409, "OUT_OF_STOCK", "the instance type is out of stock");
    }
    auto instance = std::make_unique<Instance>();
    const std::string hex = RandomHex(16);
    instance->service = kShade;
    instance->id = absl::StrCat(hex.substr(0, 8), "-", hex.substr(8, 4), "-", hex.substr(12, 4),
                                "-", hex.substr(16, 4), "-", hex.substr(20));
    instance->account = account.name;
    instance->label = StringAt(call.json, "name");
    instance->product = item;
    instance->region = region;
    instance->spot = spot;
    instance->HasGpus(*type, StringAt(*type, "gpu"));
    instance->usd_per_hour = NumberAt(*type, "cents") / 100;
    if (spot) (void)absl::SimpleAtod(StringAt(place, "spot"), &instance->usd_per_hour);
    instance->request = call.json;
    instance->extra = {{"type", *type}, {"tags", call.json.value("tags", Json::array())}};
    if (call.json.contains("auto_delete") && !world.faults.Take(kShade, "create", "end_ignored")) {
      instance->extra["auto_delete"] = call.json["auto_delete"];
    }
    Move(*instance, -1);
    instance->holds_stock = true;
    instance->spec.user = "shadeform";
    instance->spec.host = world.NewAddress();
    if (!key.empty()) instance->spec.authorized_keys = {key};
    instance->spec.environment["GPUCTL_SIM_API"] = absl::StrCat(world.url, "/", kShade);
    const Json launch = call.json.value("launch_configuration", Json::object());
    const Json script = launch.value("script_configuration", Json::object());
    (void)absl::Base64Unescape(StringAt(script, "base64_script"), &instance->spec.script);
    Instance* made = world.Add(std::move(instance));
    made->StartCharge("gpu", made->usd_per_hour, kShadeHourMs, made->created_ms);
    Reply reply = JsonReply(200, {{"id", made->id}});
    if (world.faults.Take(kShade, "create", "refused_but_made")) reply = Error(503, "try later");
    reply.instance = made->id;
    return reply;
  }

  Reply One(World& world, const Call& call, const Account& account) {
    Instance* instance = world.FindOf(account, call.parts[2]);
    if (instance == nullptr) return ShadeError(404, "NOT_FOUND", "instance not found");
    Reply reply;
    reply.type = "text/plain";  // and empty
    if (call.route == "describe") {
      reply = JsonReply(200, ShadeJson(*instance, world.Now(), true));
      if (instance->trouble.ended_lag > 0) --instance->trouble.ended_lag;
    } else if (!instance->alive()) {
      return ShadeError(404, "NOT_FOUND", "instance not found");
    } else if (call.route == "terminate") {
      if (!world.faults.Take(kShade, "terminate", "terminate_ignored")) {
        world.End(instance, account.name, world.options.boot_s / 2);
      }
    } else {
      const std::string end = WrongEnd(call.json);
      if (!call.json.is_object() || !end.empty()) return Error(400, end);
      instance->label = StringAt(call.json, "name", instance->label);
      if (call.json.contains("tags")) instance->extra["tags"] = call.json["tags"];
      // Null takes the end away, and an update without it leaves it.
      if (call.json.contains("auto_delete") &&
          !world.faults.Take(kShade, "update", "end_ignored")) {
        instance->extra.erase("auto_delete");
        if (call.json["auto_delete"].is_object()) {
          instance->extra["auto_delete"] = call.json["auto_delete"];
        }
      }
    }
    reply.instance = instance->id;
    return reply;
  }

  Reply AddKey(World& world, const Call& call, Account& account) {
    const std::string label = StringAt(call.json, "name");
    if (label.empty() || StringAt(call.json, "public_key").empty()) {
      return Error(400, "name and public_key are required");
    }
    for (const Json& row : account.ssh_keys) {
      if (row["name"] == label) return ShadeError(409, "CONFLICT", "name must be unique");
    }
    const std::string id = absl::StrCat("key-", world.NextNumber());
    account.ssh_keys.push_back({{"id", id},
                                {"name", label},
                                {"public_key", call.json["public_key"]},
                                {"is_default", account.ssh_keys.empty()}});
    return JsonReply(200, {{"id", id}});
  }

  Reply Dispatch(World& world, const Call& call, Account& account) {
    if (call.route == "create") return Create(world, call, account);
    if (call.route == "list") {
      Json rows = Json::array();
      for (const Instance* instance : world.Listed(kShade, account.name)) {
        rows.push_back(ShadeJson(*instance, world.Now(), false));
      }
      return JsonReply(200, {{"instances", rows}});
    }
    if (call.route == "describe" || call.route == "terminate" || call.route == "update") {
      return One(world, call, account);
    }
    if (call.Is("GET", "/v1/sshkeys")) return JsonReply(200, {{"ssh_keys", account.ssh_keys}});
    if (call.Is("POST", "/v1/sshkeys/add")) return AddKey(world, call, account);
    return Error(404, "no such route");
  }

  Json types_ = Json::parse(kTypes);
};

}  // namespace

std::unique_ptr<Service> MakeShadeformService() { return std::make_unique<ShadeformService>(); }

}  // namespace gpuctl::cloudsim
