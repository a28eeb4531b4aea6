// SSH keys of the account, network volumes, templates and bills.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "tests/cloudsim/runpod.h"

namespace gpuctl::cloudsim {
namespace {

const Json& Schema(const char* which) {
  static const auto* const schemas = new Json(Json::parse(R"({
    "keys": {"type": "object", "additionalProperties": false, "required": ["keys"], "properties": {
      "keys": {"type": "array", "items": {"type": "string",
        "pattern": "^(ssh|ecdsa|sk)-[^\\s]+ [^\\s]+([ \\t][^\\n\\r]*)?$"}}}},
    "volume": {"type": "object", "additionalProperties": false,
      "required": ["name", "size", "dataCenter"], "properties": {
        "dataCenter": {"type": "string", "minLength": 1},
        "name": {"type": "string", "minLength": 1},
        "size": {"type": "integer", "minimum": 10, "maximum": 4096},
        "type": {"type": "string", "enum": ["STANDARD", "HIGH_PERFORMANCE"]}}},
    "volume_update": {"type": "object", "additionalProperties": false, "minProperties": 1,
      "properties": {"name": {"type": "string", "minLength": 1},
        "size": {"type": "integer", "minimum": 10, "maximum": 4096}}},
    "template": {"type": "object", "additionalProperties": false, "properties": {
      "args": {"type": "string"}, "disk": {"type": "integer", "minimum": 1},
      "env": {"type": "object", "additionalProperties": {"type": "string"}},
      "image": {"type": "string"}, "ports": {"type": "array", "items": {"type": "string"}},
      "registry": {"type": ["string", "null"]}, "name": {"type": "string", "minLength": 1},
      "allowedCudaVersions": {"type": "array",
        "items": {"type": "string", "pattern": "^\\d+\\.\\d+$"}},
      "category": {"type": "string", "enum": ["CPU", "NVIDIA", "AMD"]},
      "mounts": {"type": "object", "additionalProperties": false, "properties": {
        "persistent": {"type": "object", "required": ["size", "path"],
          "additionalProperties": false, "properties": {
            "size": {"type": "integer", "minimum": 10}, "path": {"type": "string"}}}}},
      "public": {"type": "boolean"}, "serverless": {"type": "boolean"},
      "startJupyter": {"type": "boolean"}, "startSsh": {"type": "boolean"}}}})"));
  return (*schemas)[which];
}

Json Entries(const Json& table) {
  Json values = Json::array();
  for (const auto& entry : table.items()) values.push_back(entry.value());
  return values;
}

Reply NoContent() {
  Reply reply;
  reply.status = 204;
  return reply;
}

// Returns the price in USD per hour; a month has 720 hours. The price of high performance is an
// assumption.
double VolumeRate(const Json& volume) {
  const auto size = static_cast<double>(IntegerAt(volume, "size"));
  if (StringAt(volume, "type") != "STANDARD") return size * 0.14 / 720;
  return (std::min(size, 1000.0) * 0.07 + std::max(size - 1000, 0.0) * 0.05) / 720;
}

Reply MakeVolume(World& world, const Call& call, const Account& account) {
  if (auto bad = RunpodBadBody(call, Schema("volume"))) return *std::move(bad);
  const std::string place = StringAt(call.json, "dataCenter");
  const std::string type = StringAt(call.json, "type", "STANDARD");
  bool offered = false;
  for (const RunpodDataCenter& center : RunpodStockOf(world).centers) {
    if (center.id != place) continue;
    const auto& types = center.volume_types;
    offered = std::find(types.begin(), types.end(), type) != types.end();
  }
  if (!offered) return RunpodError(400, "volume type is not offered in this data center");
  const std::string id = RandomHex(5);
  Json volume = call.json;
  volume["id"] = id;
  volume["type"] = type;
  RunpodTable(world, account, "volumes")[id] = volume;
  StoredVolume stored;
  stored.service = "runpod";
  stored.id = id;
  stored.account = account.name;
  stored.name = StringAt(volume, "name");
  stored.place = place;
  world.SetVolumeRate(world.AddVolume(stored), VolumeRate(volume));
  return JsonReply(201, volume);
}

Reply MakeTemplate(World& world, const Call& call, const Account& account) {
  Json schema = Schema("template");
  schema["required"] = {"name", "image"};
  if (auto bad = RunpodBadBody(call, schema)) return *std::move(bad);
  Json made = {{"args", ""},
               {"disk", 20},
               {"mounts", Json::object()},
               {"ports", Json::array()},
               {"env", Json::object()},
               {"registry", nullptr},
               {"serverless", false},
               {"public", false},
               {"category", "NVIDIA"},
               {"startSsh", true},
               {"startJupyter", true},
               {"allowedCudaVersions", Json::array()}};
  made.update(call.json);
  const std::string id = RandomHex(5);
  made["id"] = id;
  RunpodTable(world, account, "templates")[id] = made;
  return JsonReply(201, made);
}

// Handles a route for one volume or one template.
Reply OneOf(World& world, const Call& call, const Account& account, const char* table_name,
            const char* update_schema) {
  Json& table = RunpodTable(world, account, table_name);
  const std::string& id = call.parts[2];
  if (!table.contains(id)) return RunpodError(404, "not found");
  if (call.method == "GET") return JsonReply(200, table[id]);
  if (call.method == "DELETE") {
    table.erase(id);
    if (absl::string_view(table_name) == "volumes") world.EndVolume("runpod", id);
    return NoContent();
  }
  if (call.method == "PATCH") {
    if (auto bad = RunpodBadBody(call, Schema(update_schema))) return *std::move(bad);
    if (call.json.contains("size") && table[id].contains("dataCenter") &&
        IntegerAt(call.json, "size") < IntegerAt(table[id], "size")) {
      return RunpodError(400, "a volume cannot shrink");
    }
    table[id].update(call.json);
    if (StoredVolume* stored = world.FindVolume("runpod", id)) {
      stored->name = StringAt(table[id], "name");
      world.SetVolumeRate(stored, VolumeRate(table[id]));
    }
    return JsonReply(200, table[id]);
  }
  return RunpodError(405, "method not allowed");
}

int64_t BucketMs(const std::string& size) {
  constexpr int64_t kHour = 3'600'000;
  if (size == "hour") return kHour;
  if (size == "week") return 7 * 24 * kHour;
  if (size == "month") return 30 * 24 * kHour;
  if (size == "year") return 365 * 24 * kHour;
  return 24 * kHour;
}

// Returns the cost of a charge between two moments, in USD.
double CostBetween(const Charge& charge, int64_t from_ms, int64_t to_ms, int64_t now_ms) {
  Charge part = charge;
  const int64_t end = std::min(charge.to_ms != 0 ? charge.to_ms : now_ms, to_ms);
  part.from_ms = std::max(charge.from_ms, from_ms);
  if (end <= part.from_ms) return 0;
  part.to_ms = end;
  return Cost(part, now_ms);
}

Reply PodBills(World& world, const Call& call, const Caller& caller) {
  const int64_t now = world.Now();
  const std::string size = call.Query("bucketSize", "day");
  const int64_t bucket = BucketMs(size);
  int64_t last = 0;
  if (!call.Query("lastN").empty() && (!absl::SimpleAtoi(call.Query("lastN"), &last) || last < 1)) {
    return RunpodError(400, "lastN: must be a positive integer");
  }
  int64_t from = call.Query("startTime").empty() ? 0 : ParseRfc3339(call.Query("startTime"));
  const int64_t to = call.Query("endTime").empty() ? now : ParseRfc3339(call.Query("endTime"));
  if (from < 0 || to < 0) return RunpodError(400, "startTime, endTime: not a date-time");
  if (from == 0) from = last > 0 ? (now / bucket - last + 1) * bucket : now - 30 * bucket;
  Json records = Json::array();
  double totals[3] = {0, 0, 0};
  Json pods = Json::object();
  for (const auto& pod : world.instances) {
    if (pod->service != "runpod" || pod->account != caller.account->name) continue;
    if (!call.Query("podId").empty() && call.Query("podId") != pod->id) continue;
    for (int64_t at = from / bucket * bucket; at < to; at += bucket) {
      double amounts[2] = {0, 0};
      for (const Charge& charge : pod->charges) {
        amounts[charge.kind == "disk" ? 1 : 0] +=
            CostBetween(charge, std::max(at, from), std::min(at + bucket, to), now);
      }
      if (amounts[0] + amounts[1] <= 0) continue;
      pods[pod->id] = true;
      totals[0] += amounts[0] + amounts[1];
      totals[1] += amounts[0];
      totals[2] += amounts[1];
      records.push_back({{"podId", pod->id},
                         {"startTime", Rfc3339(at)},
                         {"endTime", Rfc3339(at + bucket)},
                         {"totalAmount", amounts[0] + amounts[1]},
                         {"gpuAmount", amounts[0]},
                         {"cpuAmount", 0.0},
                         {"diskAmount", amounts[1]}});
    }
  }
  const Json query = {{"startTime", Rfc3339(from)},
                      {"endTime", Rfc3339(to)},
                      {"bucketSize", size},
                      {"podId", call.Query("podId").empty() ? Json() : Json(call.Query("podId"))}};
  return JsonReply(200, {{"records", records},
                         {"metadata",
                          {{"query", query},
                           {"recordCount", records.size()},
                           {"uniquePodCount", pods.size()},
                           {"totals",
                            {{"totalAmount", totals[0]},
                             {"gpuAmount", totals[1]},
                             {"cpuAmount", 0.0},
                             {"diskAmount", totals[2]}}}}}});
}

}  // namespace

Json& RunpodTable(World& world, const Account& account, const char* name) {
  Json& own = RunpodStockOf(world).tables[account.name];
  if (!own.contains(name)) own[name] = Json::object();
  return own[name];
}

std::optional<Reply> RunpodStorage(World& world, const Call& call, const Caller& caller) {
  Account& account = *caller.account;
  if (call.Is("GET", "/v2/account/ssh-keys")) return JsonReply(200, {{"keys", account.ssh_keys}});
  if (call.Is("PUT", "/v2/account/ssh-keys")) {
    if (auto bad = RunpodBadBody(call, Schema("keys"))) return bad;
    account.ssh_keys = call.json["keys"];
    return JsonReply(200, {{"keys", account.ssh_keys}});
  }
  if (call.Is("GET", "/v2/network-volumes")) {
    return JsonReply(200, {{"networkVolumes", Entries(RunpodTable(world, account, "volumes"))}});
  }
  if (call.Is("POST", "/v2/network-volumes")) return MakeVolume(world, call, account);
  if (call.Is("GET", "/v2/templates")) {
    return JsonReply(200, {{"templates", Entries(RunpodTable(world, account, "templates"))}});
  }
  if (call.Is("POST", "/v2/templates")) return MakeTemplate(world, call, account);
  if (call.Is("GET", "/v2/billing/pods")) return PodBills(world, call, caller);
  if (call.parts.size() == 3 && call.parts[1] == "network-volumes") {
    return OneOf(world, call, account, "volumes", "volume_update");
  }
  if (call.parts.size() == 3 && call.parts[1] == "templates") {
    return OneOf(world, call, account, "templates", "template");
  }
  // Nobody has any of these here.
  if (call.Is("GET", "/v2/clusters")) return JsonReply(200, {{"clusters", Json::array()}});
  if (call.Is("GET", "/v2/serverless")) return JsonReply(200, {{"endpoints", Json::array()}});
  return std::nullopt;
}

}  // namespace gpuctl::cloudsim
