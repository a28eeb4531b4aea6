#include <algorithm>
#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "tests/cloudsim/cloud_init.h"
#include "tests/cloudsim/service.h"

namespace gpuctl::cloudsim {
namespace {

constexpr char kDroplets[] = "digitalocean";
constexpr int64_t kHourMs = 3'600'000;
constexpr size_t kMostUserData = 64 * 1024;

// The sizes by their slugs: vram of all GPUs in GiB, the name and memory of one as nvidia-smi shows
// them, and the available numbers.
constexpr char kSizes[] = R"({
  "s-1vcpu-1gb": {"gpus": 0, "usd": 0.00893, "disk": 25, "regions": {"nyc1": 99, "ams3": 99}},
  "gpu-4000adax1-20gb": {"gpu": "nvidia_rtx4000_ada", "gpus": 1, "vram": 20, "usd": 0.76, "disk": 500,
    "driver": "NVIDIA RTX 4000 Ada Generation", "mib": 20475, "regions": {"tor1": 4, "nyc2": 2}},
  "gpu-l40sx1-48gb": {"gpu": "nvidia_l40s", "gpus": 1, "vram": 48, "usd": 1.57, "disk": 500,
    "driver": "NVIDIA L40S", "mib": 46068, "regions": {"tor1": 2}},
  "gpu-h100x1-80gb": {"gpu": "nvidia_h100", "gpus": 1, "vram": 80, "usd": 3.39, "disk": 720,
    "driver": "NVIDIA H100 80GB HBM3", "mib": 81559, "regions": {"nyc2": 4, "ams3": 2}},
  "gpu-h100x8-640gb": {"gpu": "nvidia_h100", "gpus": 8, "vram": 640, "usd": 23.92, "disk": 2046,
    "driver": "NVIDIA H100 80GB HBM3", "mib": 81559, "regions": {"nyc2": 1}},
  "gpu-mi300x1-192gb": {"gpu": "amd_mi300x", "gpus": 1, "vram": 192, "usd": 1.99, "disk": 720,
    "driver": "", "mib": 0, "regions": {"atl1": 2}}
})";

Reply DropletError(int status, const std::string& message) {
  const char* id = status == 401   ? "Unauthorized"
                   : status == 403 ? "forbidden"
                   : status == 404 ? "not_found"
                   : status == 422 ? "unprocessable_entity"
                   : status == 429 ? "too_many_requests"
                   : status >= 500 ? "server_error"
                                   : "bad_request";
  return JsonReply(status, {{"id", id}, {"message", message}, {"request_id", RandomHex(16)}});
}

Json SizeJson(const std::string& slug, const Json& size) {
  Json regions = Json::array();
  for (const auto& place : size["regions"].items()) {
    if (place.value() > 0) regions.push_back(place.key());
  }
  const double usd = NumberAt(size, "usd");
  Json json = {{"slug", slug},        {"memory", 16384},
               {"vcpus", 8},          {"disk", size["disk"]},
               {"transfer", 10.0},    {"price_monthly", usd * 672},
               {"price_hourly", usd}, {"regions", regions},
               {"available", true},   {"description", "simulated"}};
  if (IntegerAt(size, "gpus") > 0) {
    json["gpu_info"] = {{"count", size["gpus"]},
                        {"model", size["gpu"]},
                        {"vram", {{"amount", size["vram"]}, {"unit", "gib"}}}};
  }
  return json;
}

const char* DropletStatus(const Instance& instance) {
  if (instance.phase == Phase::kBooting) return "new";
  if (instance.phase == Phase::kRunning || instance.phase == Phase::kEnding) return "active";
  return "off";
}

Json DropletJson(const Instance& instance) {
  Json networks = {{"v4", Json::array()}, {"v6", Json::array()}};
  if (instance.reachable()) {
    networks["v4"] = {{{"ip_address", "10.100.0.2"}, {"type", "private"}},
                      {{"ip_address", instance.node->host()}, {"type", "public"}}};
  }
  Json size = instance.extra["size"];
  size["price_hourly"] = instance.usd_per_hour;
  Json json = {{"id", std::atoll(instance.id.c_str())},
               {"name", instance.label},
               {"memory", size["memory"]},
               {"vcpus", size["vcpus"]},
               {"disk", size["disk"]},
               {"locked", instance.phase == Phase::kBooting},
               {"status", DropletStatus(instance)},
               {"created_at", Rfc3339(instance.created_ms)},
               {"features", Json::array()},
               {"backup_ids", Json::array()},
               {"next_backup_window", nullptr},
               {"snapshot_ids", Json::array()},
               {"image", {{"slug", instance.request["image"]}, {"distribution", "Ubuntu"}}},
               {"volume_ids", Json::array()},
               {"size", size},
               {"size_slug", size["slug"]},
               {"networks", networks},
               {"region",
                {{"name", instance.region},
                 {"slug", instance.region},
                 {"features", Json::array()},
                 {"available", true},
                 {"sizes", Json::array()}}},
               {"tags", instance.request.value("tags", Json::array())}};
  if (size.contains("gpu_info")) json["gpu_info"] = size["gpu_info"];
  return json;
}

int QueryNumber(const Call& call, const char* name, int otherwise) {
  int number = otherwise;
  if (!absl::SimpleAtoi(call.Query(name, absl::StrCat(otherwise)), &number)) return otherwise;
  return std::max(1, number);
}

// Returns one page of `rows`, as the query asks for it.
Reply PageOf(const World& world, const Call& call, const char* name, const Json& rows) {
  const size_t size = static_cast<size_t>(std::min(200, QueryNumber(call, "per_page", 20)));
  const size_t page = static_cast<size_t>(QueryNumber(call, "page", 1));
  Json shown = Json::array();
  for (size_t i = (page - 1) * size; i < rows.size() && shown.size() < size; ++i) {
    shown.push_back(rows[i]);
  }
  Json pages = Json::object();
  if (page * size < rows.size()) {
    std::string url = absl::StrCat(world.url, "/", kDroplets, call.path, "?page=", page + 1);
    for (const auto& [key, value] : call.query) {
      if (key != "page") absl::StrAppend(&url, "&", key, "=", value);
    }
    pages = {{"next", url}};
  }
  return JsonReply(
      200, {{name, shown}, {"links", {{"pages", pages}}}, {"meta", {{"total", rows.size()}}}});
}

const Json& DropletSchema() {
  static const auto* const schema = new Json(Json::parse(R"({"type": "object",
    "required": ["name", "size", "image"], "properties": {
      "name": {"type": "string", "maxLength": 255, "pattern": "^[a-zA-Z0-9]?[a-z0-9A-Z.\\-]*[a-z0-9A-Z]$"},
      "region": {"type": "string"}, "size": {"type": "string"}, "image": {"type": "string"},
      "ssh_keys": {"type": "array"}, "backups": {"type": "boolean"},
      "monitoring": {"type": "boolean"}, "user_data": {"type": "string"},
      "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-zA-Z0-9:_-]+$"}}}})"));
  return *schema;
}

class DigitaloceanService : public Service {
 public:
  const char* name() const override { return kDroplets; }

  std::string Route(const Call& call) const override {
    if (call.Is("POST", "/v2/droplets")) return "create";
    if (call.Is("GET", "/v2/droplets")) return "list";
    if (call.Is("GET", "/v2/droplets/{}")) return "describe";
    if (call.Is("DELETE", "/v2/droplets/{}")) return "terminate";
    if (call.Is("GET", "/v2/sizes")) return "offers";
    if (call.parts.size() == 3 && call.parts[2] == "keys") return "keys";
    return call.Is("GET", "/v2/account") ? "account" : "other";
  }

  Reply Error(int status, const std::string& message) const override {
    return DropletError(status, message);
  }

  Reply Handle(World& world, const Call& call) override {
    Account* account = world.FindAccount(kDroplets, call.Key());
    if (account == nullptr) return DropletError(401, "Unable to authenticate you");
    Reply reply;
    const std::string bucket = absl::StrCat(kDroplets, "/", account->key);
    if (world.options.rate_limits && !world.Allow(bucket, 250, 250.0 / 60, nullptr, nullptr)) {
      reply = DropletError(429, "API rate limit exceeded.");
    } else if (account->inactive) {
      reply = DropletError(403, "You are not authorized to perform this operation");
    } else {
      reply = Dispatch(world, call, *account);
    }
    reply.account = account->name;
    return reply;
  }

  std::string SetStock(const Json& change) override {
    Json* size = Find(StringAt(change, "item"));
    if (size == nullptr) return "no such size";
    const std::string region = StringAt(change, "region");
    if (!region.empty()) (*size)["regions"][region] = IntegerAt(change, "count");
    for (auto& place : (*size)["regions"]) {
      if (region.empty()) place = IntegerAt(change, "count");
    }
    return "";
  }
  std::string AddStock(const Json& item) override {
    const Json* like = Find(StringAt(item, "like"));
    if (like == nullptr) return "no such size";
    Json size = *like;
    size["gpu"] = StringAt(item, "gpu", StringAt(size, "gpu"));
    size["driver"] = StringAt(item, "driver_gpu", StringAt(size, "driver"));
    size["mib"] = IntegerAt(item, "memory_mib", IntegerAt(size, "mib"));
    size["vram"] = IntegerAt(size, "gpus") * ((IntegerAt(size, "mib") + 1023) / 1024);
    size["usd"] = NumberAt(item, "usd_per_hour", NumberAt(size, "usd"));
    sizes_[StringAt(item, "item")] = size;
    return "";
  }
  std::string SetPrice(const Json& change) override {
    Json* size = Find(StringAt(change, "item"));
    if (size == nullptr) return "no such size";
    (*size)["usd"] = NumberAt(change, "usd_per_hour");
    return "";
  }
  Json StockJson() const override {
    Json all = Json::object();
    for (const auto& size : sizes_.items()) all[size.key()] = size.value()["regions"];
    return all;
  }
  void ReturnStock(const Instance& instance) override { Move(instance, 1); }
  // The account pays afterwards, and a droplet that is off is billed as one that is on.
  bool prepaid() const override { return false; }
  void Stopped(Instance* instance, int64_t now_ms) override {
    instance->StartCharge("gpu", instance->usd_per_hour, kHourMs, now_ms);
  }

 private:
  Json* Find(const std::string& slug) { return sizes_.contains(slug) ? &sizes_[slug] : nullptr; }
  void Move(const Instance& instance, int64_t count) {
    Json& places = sizes_[instance.product]["regions"];
    places[instance.region] = IntegerAt(places, instance.region.c_str()) + count;
  }

  static std::string KeyOf(const Account& account, const Json& wanted) {
    for (const Json& key : account.ssh_keys) {
      if (key["id"] == wanted || key["fingerprint"] == wanted) return StringAt(key, "public_key");
    }
    return "";
  }

  // Returns the error of a create; absent when there is none.
  std::optional<Reply> Refused(World& world, const Call& call, const Account& account) {
    const std::string wrong = WrongBody(call.json, DropletSchema());
    if (!wrong.empty()) return DropletError(422, wrong);
    if (StringAt(call.json, "user_data").size() > kMostUserData) {
      return DropletError(422, "User data is too long (maximum is 64 KiB)");
    }
    for (const Json& key : call.json.value("ssh_keys", Json::array())) {
      if (KeyOf(account, key).empty()) {
        return DropletError(422, absl::StrCat(key.dump(), " are invalid key identifiers"));
      }
    }
    const Json* size = Find(StringAt(call.json, "size"));
    if (size == nullptr) return DropletError(422, "You specified an invalid size for Droplet.");
    const int64_t gpus = IntegerAt(*size, "gpus");
    const char* const image = gpus > 1 ? "gpu-h100x8-base" : "gpu-h100x1-base";
    if (gpus > 0 && StringAt(call.json, "image") != image) {
      return DropletError(422, "You specified an invalid image for Droplet creation.");
    }
    if (world.QuotaReached(account)) {
      return DropletError(422, "creating this/these droplet(s) will exceed your droplet limit");
    }
    if (world.faults.Take(kDroplets, "create", "no_funds")) {
      return DropletError(402, "Please add a payment method to create droplets.");
    }
    const std::string region = StringAt(call.json, "region");
    if (IntegerAt((*size)["regions"], region.c_str()) < 1 || world.TakeSoldOut(kDroplets)) {
      return DropletError(422, "Size is not available in this region.");
    }
    return std::nullopt;
  }

  Reply Create(World& world, const Call& call, const Account& account) {
    if (auto refused = Refused(world, call, account)) return *std::move(refused);
    const Json size = *Find(StringAt(call.json, "size"));
    const std::string data = StringAt(call.json, "user_data");
    auto instance = std::make_unique<Instance>();
    instance->service = kDroplets;
    instance->id = absl::StrCat(400'000'000 + world.NextNumber());
    instance->account = account.name;
    instance->label = StringAt(call.json, "name");
    instance->product = StringAt(call.json, "size");
    instance->region = StringAt(call.json, "region");
    instance->HasGpus(size, StringAt(size, "gpu"));
    instance->usd_per_hour = NumberAt(size, "usd");
    instance->request = call.json;
    instance->extra = {{"size", SizeJson(instance->product, size)}};
    Move(*instance, -1);
    instance->holds_stock = true;
    instance->spec.user = "root";
    instance->spec.host = world.NewAddress();
    instance->spec.port_22 = true;
    for (const Json& key : call.json.value("ssh_keys", Json::array())) {
      instance->spec.authorized_keys.push_back(KeyOf(account, key));
    }
    instance->spec.environment["GPUCTL_SIM_API"] = absl::StrCat(world.url, "/", kDroplets);
    instance->spec.script = CloudInitScript(data);
    if (!world.faults.Take(kDroplets, "create", "host_key_not_applied")) {
      instance->spec.host_key = CloudInitHostKey(data);
    }
    Instance* made = world.Add(std::move(instance));
    made->StartCharge("gpu", made->usd_per_hour, kHourMs, made->created_ms);
    Reply reply = JsonReply(202, {{"droplet", DropletJson(*made)}, {"links", Json::object()}});
    if (world.faults.Take(kDroplets, "create", "refused_but_made")) {
      reply = DropletError(503, "Server Error");
    }
    reply.instance = made->id;
    return reply;
  }

  Reply List(World& world, const Call& call, const Account& account) {
    const std::string type = call.Query("type", "droplets");
    if (type != "droplets" && type != "gpus") return DropletError(422, "invalid type");
    Json rows = Json::array();
    for (const Instance* instance : world.Listed(kDroplets, account.name)) {
      if ((instance->gpu_count > 0) == (type == "gpus")) rows.push_back(DropletJson(*instance));
    }
    return PageOf(world, call, "droplets", rows);
  }

  Reply AddKey(World& world, const Call& call, Account& account) {
    const std::string key = StringAt(call.json, "public_key");
    if (key.empty() || StringAt(call.json, "name").empty()) {
      return DropletError(422, "Key invalid, key should be of the format `type key [comment]`");
    }
    for (const Json& other : account.ssh_keys) {
      if (StringAt(other, "public_key") == key) {
        return DropletError(422, "SSH Key is already in use on your account");
      }
    }
    const Json made = {{"id", world.NextNumber() + 100'000},
                       {"fingerprint", RandomHex(16)},
                       {"public_key", key},
                       {"name", call.json["name"]}};
    account.ssh_keys.push_back(made);
    return JsonReply(201, {{"ssh_key", made}});
  }

  Reply One(World& world, const Call& call, const Account& account) {
    Instance* instance = world.Find(kDroplets, call.parts[2]);
    if (instance == nullptr || instance->account != account.name ||
        (!instance->alive() && instance->trouble.ended_lag <= 0)) {
      return DropletError(404, "The resource you were accessing could not be found.");
    }
    Reply reply;
    if (call.method == "DELETE") {
      reply.status = 204;
      if (!world.faults.Take(kDroplets, "terminate", "terminate_ignored")) {
        world.End(instance, account.name);
      }
    } else {
      if (!instance->alive()) --instance->trouble.ended_lag;
      reply = JsonReply(200, {{"droplet", DropletJson(*instance)}});
    }
    reply.instance = instance->id;
    return reply;
  }

  Reply Dispatch(World& world, const Call& call, Account& account) {
    if (call.Is("GET", "/v2/sizes")) {
      Json rows = Json::array();
      for (const auto& size : sizes_.items()) rows.push_back(SizeJson(size.key(), size.value()));
      return PageOf(world, call, "sizes", rows);
    }
    if (call.Is("GET", "/v2/account")) {
      return JsonReply(200, {{"account",
                              {{"droplet_limit", account.quota},
                               {"floating_ip_limit", 3},
                               {"email", "sim@market.invalid"},
                               {"uuid", absl::StrCat("account-", account.user_id)},
                               {"email_verified", true},
                               {"status", "active"},
                               {"status_message", ""}}}});
    }
    if (call.Is("GET", "/v2/account/keys")) {
      return PageOf(world, call, "ssh_keys", account.ssh_keys);
    }
    if (call.Is("POST", "/v2/account/keys")) return AddKey(world, call, account);
    if (call.Is("POST", "/v2/droplets")) return Create(world, call, account);
    if (call.Is("GET", "/v2/droplets")) return List(world, call, account);
    if (call.Is("GET", "/v2/droplets/{}") || call.Is("DELETE", "/v2/droplets/{}")) {
      return One(world, call, account);
    }
    return DropletError(404, "The resource you were accessing could not be found.");
  }

  Json sizes_ = Json::parse(kSizes);
};

}  // namespace

std::unique_ptr<Service> MakeDigitaloceanService() {
  return std::make_unique<DigitaloceanService>();
}

}  // namespace gpuctl::cloudsim
