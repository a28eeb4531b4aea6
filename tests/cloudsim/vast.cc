#include "tests/cloudsim/vast.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"

namespace gpuctl::cloudsim {
namespace {

// Returns the least seconds between two calls, by the little that the documentation says.
double Threshold(const Call& call) {
  if (call.route == "create") return 4.5;
  if (call.route == "terminate") return 3.0;
  if (call.route == "describe") return 2.0;
  if (call.route == "bid") return 5.5;
  if (call.route == "volumes") return 5.5;
  if (call.route == "command") return 1.5;
  if (call.route == "offers") return 0.5;
  return 1.0;
}

struct Permission {
  const char* group;
  const char* name;
};

Permission Needed(const Call& call) {
  const std::string& route = call.route;
  if (route == "describe") return {"instance_read", "api.instance.show"};
  if (route == "list") return {"instance_read", "api.instances.show"};
  if (route == "prices") {
    return {call.method == "GET" ? "instance_read" : "instance_write", "api.instance.prices"};
  }
  if (route == "logs") return {"instance_read", "api.instance.request_logs"};
  if (route == "terminate") return {"instance_write", "api.instance.destroy"};
  if (route == "reboot") return {"instance_write", "api.instance.reboot"};
  if (route == "action") return {"instance_write", "api.instance.manage"};
  if (route == "create") return {"instance_write", "api.asks.create"};
  if (route == "keys" || route == "account") {
    return {call.method == "GET" ? "user_read" : "user_write", "api.user"};
  }
  if (route == "offers") return {"misc", "api.bundles"};
  return {"instance_write", "api.instance.other"};
}

bool Allowed(const Call& call, const Json& permissions) {
  if (permissions.is_null()) return true;
  const Permission needed = Needed(call);
  const Json api = permissions.value("api", Json::object());
  if (!api.is_object() || !api.contains(needed.group)) return false;
  const Json& group = api[needed.group];
  if (!group.is_object() || group.empty()) return true;
  if (!group.contains(needed.name)) return false;
  const Json constraints = group[needed.name].value("constraints", Json::object());
  int64_t id = 0;
  if (!constraints.contains("id")) return true;
  for (const std::string& part : call.parts) {
    if (absl::SimpleAtoi(part, &id)) return VastMatches({{"id", id}}, constraints, false);
  }
  return false;
}

// Returns what an instance may do with its key: read, start, stop and end itself.
Json OwnPermissions(const Instance& instance) {
  int64_t id = 0;
  (void)absl::SimpleAtoi(instance.id, &id);
  const Json here = {{"constraints", {{"id", {{"eq", id}}}}}};
  return {{"api",
           {{"instance_read", {{"api.instance.show", here}}},
            {"instance_write",
             {{"api.instance.destroy", here},
              {"api.instance.manage", here},
              {"api.instance.reboot", here}}}}}};
}

std::optional<Caller> FindCaller(World& world, const Call& call) {
  std::string key = call.Key();
  if (key.empty()) key = call.Query("api_key");
  Caller caller;
  caller.name = key;
  caller.account = world.FindAccount("vast", key);
  if (caller.account != nullptr) return caller;
  if (Instance* instance = world.ByOwnKey("vast", key)) {
    caller.instance = instance;
    caller.account = world.AccountNamed("vast", instance->account);
    caller.name = absl::StrCat("instance ", instance->id);
    caller.permissions = OwnPermissions(*instance);
    return caller;
  }
  const Json keys = VastStockOf(world).tables.value("keys", Json::object());
  for (const auto& entry : keys.items()) {
    if (key.empty() || StringAt(entry.value(), "key") != key) continue;
    caller.account = world.AccountNamed("vast", StringAt(entry.value(), "account"));
    caller.name = absl::StrCat("key ", entry.key());
    caller.permissions = entry.value()["permissions"];
    return caller;
  }
  return std::nullopt;
}

// Returns `wanted` in the type of `value`. The service takes numbers and truth values also as text,
// as its own command line sends them.
Json InTypeOf(const Json& value, const Json& wanted) {
  if (wanted.is_array()) {
    Json converted = Json::array();
    for (const Json& one : wanted) converted.push_back(InTypeOf(value, one));
    return converted;
  }
  if (!wanted.is_string()) return wanted;
  const std::string& text = wanted.get_ref<const std::string&>();
  double number = 0;
  if (value.is_number() && absl::SimpleAtod(text, &number)) return number;
  bool truth = false;
  if (value.is_boolean() && absl::SimpleAtob(text, &truth)) return truth;
  return wanted;
}

bool Compare(const Json& value, const std::string& operation, const Json& asked) {
  const Json wanted = InTypeOf(value, asked);
  if (operation == "in" || operation == "notin" || operation == "not in") {
    const bool inside =
        wanted.is_array() && std::find(wanted.begin(), wanted.end(), value) != wanted.end();
    return inside == (operation == "in");
  }
  if (operation == "eq") return value == wanted;
  if (operation == "neq") return value != wanted;
  if (value.is_number() != wanted.is_number()) return false;
  if (operation == "gt") return value > wanted;
  if (operation == "gte") return value >= wanted;
  if (operation == "lt") return value < wanted;
  if (operation == "lte") return value <= wanted;
  return false;
}

// True when the place, or the code of the country at its end, meets the filter: "US" is also for
// "Texas, US".
bool ComparePlace(const Json& place, const std::string& operation, const Json& wanted) {
  const bool whole = Compare(place, operation, wanted);
  if (!place.is_string()) return whole;
  const std::string& text = place.get_ref<const std::string&>();
  const size_t comma = text.rfind(", ");
  if (comma == std::string::npos) return whole;
  const bool country = Compare(text.substr(comma + 2), operation, wanted);
  const bool negative = operation == "neq" || operation == "notin" || operation == "not in";
  return negative ? whole && country : whole || country;
}

Json OfferJson(const VastOffer& offer, double allocated_gb, int64_t now_ms) {
  const double disk = VastDiskRate(offer.storage_cost) * allocated_gb;
  const double total = offer.dph_base + disk;
  return {{"id", offer.id},
          {"ask_contract_id", offer.id},
          {"bundle_id", offer.id},
          {"machine_id", offer.machine_id},
          {"host_id", offer.machine_id % 1000},
          {"gpu_name", offer.gpu_name},
          {"num_gpus", offer.gpus},
          {"gpu_ram", offer.gpu_ram_mb},
          {"gpu_total_ram", offer.gpu_ram_mb * offer.gpus},
          {"gpu_arch", "nvidia"},
          {"gpu_frac", 1.0},
          {"compute_cap", std::atoi(offer.compute_cap.c_str())},
          {"dph_base", offer.dph_base},
          {"dph_total", total},
          {"discounted_dph_total", total},
          {"min_bid", offer.min_bid},
          {"storage_cost", offer.storage_cost},
          {"storage_total_cost", disk},
          {"inet_up_cost", offer.up_cost},
          {"inet_down_cost", offer.down_cost},
          {"inet_up", offer.inet_mbps},
          {"inet_down", offer.inet_mbps},
          {"reliability", offer.reliability},
          {"reliability2", offer.reliability},
          {"geolocation", offer.geolocation},
          {"direct_port_count", offer.direct_ports},
          {"cuda_max_good", offer.cuda},
          {"driver_version", "570.86.15"},
          {"disk_space", offer.disk_gb},
          {"disk_bw", 2000.0},
          {"cpu_cores", nullptr},
          {"cpu_cores_effective", 16.0},
          {"cpu_ram", 65536},
          {"cpu_arch", "amd64"},
          {"verified", offer.verified},
          {"verification", offer.verified ? "verified" : "unverified"},
          {"rentable", !offer.rented},
          {"rented", offer.rented},
          {"external", false},
          {"static_ip", true},
          {"datacenter", false},
          {"dlperf", 100.0},
          {"dlperf_per_dphtotal", 100.0 / total},
          {"duration", offer.duration_s},
          {"end_date", static_cast<double>(now_ms) / 1000 + offer.duration_s},
          {"is_bid", false},
          {"search",
           {{"gpuCostPerHour", offer.dph_base},
            {"diskHour", disk},
            {"totalHour", total},
            {"discountTotalHour", 0.0},
            {"discountedTotalPerHour", total}}}};
}

Reply DispatchVast(World& world, const Call& call, const Caller& caller) {
  if (auto reply = VastCreate(world, call, caller)) return *std::move(reply);
  if (auto reply = VastPrices(world, call, caller)) return *std::move(reply);
  if (auto reply = VastInstances(world, call, caller)) return *std::move(reply);
  if (auto reply = VastAccount(world, call, caller)) return *std::move(reply);
  if (auto reply = VastBilling(world, call, caller)) return *std::move(reply);
  if (auto reply = VastCommands(world, call, caller)) return *std::move(reply);
  return VastError(404, "not_found", "no such route");
}

}  // namespace

Reply VastError(int status, const std::string& code, const std::string& message) {
  return JsonReply(status, {{"success", false}, {"error", code}, {"msg", message}});
}

bool VastMatches(const Json& row, const Json& filters, bool lenient) {
  for (const auto& filter : filters.items()) {
    if (!filter.value().is_object()) continue;
    if (!row.contains(filter.key())) {
      if (lenient) continue;
      return false;
    }
    for (const auto& operation : filter.value().items()) {
      const auto compare = filter.key() == "geolocation" ? ComparePlace : Compare;
      if (!compare(row[filter.key()], operation.key(), operation.value())) return false;
    }
  }
  return true;
}

Reply VastSearch(World& world, const Call& call) {
  Json query = call.json;
  if (call.method == "GET") query = Json::parse(call.Query("q", "{}"), nullptr, false);
  if (call.parts[2] == "search" && query.is_object()) query = query.value("q", query);
  if (!query.is_object()) return VastError(400, "invalid_request", "Invalid json body");
  const Json type = query.value("type", Json("on-demand"));
  if (type != "ondemand" && type != "on-demand" && type != "bid" && type != "reserved" &&
      type != "interruptible") {
    return VastError(400, "invalid_args", "invalid type");
  }
  for (const auto& defaulted :
       {std::pair{"verified", true}, {"rentable", true}, {"rented", false}}) {
    if (!query.contains(defaulted.first)) query[defaulted.first] = {{"eq", defaulted.second}};
  }
  const double allocated = NumberAt(query, "allocated_storage", 5);
  std::vector<Json> offers;
  for (const VastOffer& offer : VastStockOf(world).offers) {
    if (offer.gone) continue;
    Json row = OfferJson(offer, allocated, world.Now());
    row["is_bid"] = type == "bid";
    if (VastMatches(row, query, true)) offers.push_back(std::move(row));
  }
  const Json order = query.value("order", Json::array());
  for (size_t i = order.size(); i-- > 0;) {
    if (!order[i].is_array() || order[i].size() < 2) continue;
    const std::string field = order[i][0].get<std::string>();
    const bool descending = order[i][1] == "desc";
    std::stable_sort(offers.begin(), offers.end(), [&](const Json& a, const Json& b) {
      const Json left = a.value(field, Json());
      const Json right = b.value(field, Json());
      return descending ? right < left : left < right;
    });
  }
  const size_t limit = static_cast<size_t>(IntegerAt(query, "limit", 64));
  if (offers.size() > limit) offers.resize(limit);
  return JsonReply(200, {{"offers", offers}});
}

namespace {

std::string VastRoute(const Call& call) {
  if (call.parts.size() < 3) return "other";
  const std::string& first = call.parts[2];
  if (first == "bundles" || first == "search") return "offers";
  if (call.Is("PUT", "/api/v0/asks/{}")) return "create";
  if (first == "ssh") return "keys";
  if (first == "charges") return "charges";
  if (first == "users" || first == "auth") return "account";
  if (first == "volumes") return "volumes";
  if (first != "instances") return "other";
  if (call.parts.size() == 3) {
    return call.method == "GET" ? "list" : call.method == "DELETE" ? "terminate" : "action";
  }
  if (call.parts[3] == "start") return "action";
  if (call.parts[3] == "bid_price") return "bid";
  if (absl::EndsWith(call.parts[3], "price-increases") ||
      absl::EndsWith(call.parts[3], "price-increase")) {
    return "prices";
  }
  if (call.parts[3] == "reboot" || call.parts[3] == "recycle") return "reboot";
  if (call.parts[3] == "request_logs") return "logs";
  if (call.parts[3] == "command") return "command";
  if (call.parts.size() > 4) return "keys";
  if (call.method == "GET") return "describe";
  return call.method == "DELETE" ? "terminate" : "action";
}

Reply HandleVast(World& world, const Call& call) {
  if (world.options.rate_limits) {
    const double threshold = Threshold(call);
    if (!world.Allow(absl::StrCat("vast/", call.route, "/", call.method, "/", call.Key()), 1,
                     1 / threshold, nullptr, nullptr)) {
      return JsonReply(429,
                       {{"detail", absl::StrCat("API requests too frequent endpoint threshold=",
                                                Json(threshold).dump())}});
    }
  }
  // The offers need no key.
  if (call.route == "offers" && (call.method == "GET" || call.method == "POST" ||
                                 (call.method == "PUT" && call.parts[2] == "search"))) {
    Reply reply = VastSearch(world, call);
    reply.account = call.Key();
    return reply;
  }
  const std::optional<Caller> caller = FindCaller(world, call);
  if (!caller.has_value()) return VastError(401, "auth_error", "Invalid user key");
  Reply reply;
  if (caller->account->inactive || !Allowed(call, caller->permissions)) {
    reply = VastError(403, "forbidden", "The key may not do this.");
  } else {
    reply = DispatchVast(world, call, *caller);
  }
  reply.account = caller->name;
  return reply;
}

class VastService : public Service {
 public:
  const char* name() const override { return "vast"; }
  std::string Route(const Call& call) const override { return VastRoute(call); }
  Reply Handle(World& world, const Call& call) override { return HandleVast(world, call); }
  Reply Error(int status, const std::string& message) const override {
    if (status == 429) {
      return JsonReply(429, {{"detail", "API requests too frequent endpoint threshold=1.0"}});
    }
    return VastError(status, status == 410 ? "deprecated_endpoint" : "error", message);
  }
  std::string SetStock(const Json& change) override { return stock.Set(change); }
  std::string AddStock(const Json& item) override { return stock.Add(item); }
  std::string SetPrice(const Json& change) override { return stock.SetPrice(change); }
  Json StockJson() const override { return stock.ToJson(); }
  void ReturnStock(const Instance& instance) override { stock.Return(instance); }
  bool keeps_preempted() const override { return true; }
  void Due(World& world, Instance* instance, int64_t now_ms) override {
    VastContractDue(world, instance, now_ms);
  }
  bool Change(World& world, Instance* instance, const std::string& what,
              const Json& request) override {
    if (what == "announce_price") {
      AnnounceVastPrice(world, instance, request);
      return true;
    }
    if (what != "contract") return false;
    instance->extra["end_ms"] =
        world.Now() + static_cast<int64_t>(NumberAt(request, "in_s") * 1000);
    return true;
  }

  VastStock stock;
};

}  // namespace

VastStock& VastStockOf(const World& world) {
  return static_cast<VastService&>(world.ServiceOf("vast")).stock;
}

std::unique_ptr<Service> MakeVastService() { return std::make_unique<VastService>(); }

}  // namespace gpuctl::cloudsim
