// The routes for the user, their SSH and API keys, and volumes.
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/cloudsim/vast.h"

namespace gpuctl::cloudsim {
namespace {

bool LooksLikeKey(const std::string& key) {
  return absl::StartsWith(key, "ssh-") || absl::StartsWith(key, "ecdsa-") ||
         absl::StartsWith(key, "sk-");
}

Reply SshKeys(World& world, const Call& call, Account& account) {
  if (call.Is("GET", "/api/v0/ssh")) return JsonReply(200, account.ssh_keys);
  const std::string text = StringAt(call.json, "ssh_key");
  if (call.Is("POST", "/api/v0/ssh")) {
    if (!LooksLikeKey(text)) return VastError(400, "no_ssh_key", "no valid ssh_key");
    const Json key = {
        {"id", world.NextNumber()}, {"user_id", account.user_id},         {"key", text},
        {"public_key", text},       {"created_at", Rfc3339(world.Now())}, {"deleted_at", nullptr}};
    account.ssh_keys.push_back(key);
    return JsonReply(200, {{"success", true}, {"key", key}});
  }
  int64_t id = 0;
  if (call.parts.size() != 4 || !absl::SimpleAtoi(call.parts[3], &id)) {
    return VastError(404, "not_found", "no such route");
  }
  for (size_t i = 0; i < account.ssh_keys.size(); ++i) {
    Json& key = account.ssh_keys[i];
    if (IntegerAt(key, "id") != id) continue;
    if (call.method == "DELETE") {
      account.ssh_keys.erase(i);
      return JsonReply(200, {{"success", true}});
    }
    if (call.method == "PUT") {
      if (!LooksLikeKey(text)) return VastError(400, "no_ssh_key", "no valid ssh_key");
      key["key"] = key["public_key"] = text;
      return JsonReply(200, {{"success", true}, {"key", key}});
    }
  }
  return VastError(400, "invalid_args", "no such key");
}

Reply ApiKeys(World& world, const Call& call, const Caller& caller) {
  if (!VastStockOf(world).tables.contains("keys"))
    VastStockOf(world).tables["keys"] = Json::object();
  Json& keys = VastStockOf(world).tables["keys"];
  const Account& account = *caller.account;
  if (call.Is("GET", "/api/v0/auth/apikeys")) {
    Json list = Json::array();
    for (const auto& entry : keys.items()) {
      if (StringAt(entry.value(), "account") != account.name) continue;
      list.push_back({{"id", entry.value()["id"]},
                      {"user_id", account.user_id},
                      {"rights", entry.value()["permissions"].dump()}});
    }
    return JsonReply(200, {{"apikeys", list}});
  }
  if (call.Is("POST", "/api/v0/auth/apikeys")) {
    if (StringAt(call.json, "name").empty() || !call.json.contains("permissions")) {
      return VastError(400, "missing_permissions", "name and permissions are required");
    }
    if (!call.json["permissions"].is_object() || !call.json["permissions"].contains("api")) {
      return VastError(400, "invalid_permissions", "permissions.api is required");
    }
    const int64_t id = world.NextNumber();
    const std::string key = world.ServiceOf("vast").NewKey();
    keys[absl::StrCat(id)] = {{"id", id},
                              {"key", key},
                              {"account", account.name},
                              {"permissions", call.json["permissions"]}};
    return JsonReply(200, {{"id", id}, {"key", key}, {"permissions", call.json["permissions"]}});
  }
  if (call.Is("GET", "/api/v0/auth/apikeys/{}")) {
    if (!keys.contains(call.parts[4])) return JsonReply(404, {{"msg", "no such key"}});
    Json key = keys[call.parts[4]];
    key.erase("account");
    key.erase("key");
    return JsonReply(200, key);
  }
  if (call.Is("DELETE", "/api/v0/auth/apikeys/{}")) {
    if (!keys.contains(call.parts[4])) return JsonReply(404, {{"msg", "no such key"}});
    keys.erase(call.parts[4]);
    return JsonReply(200, "API key deleted.");
  }
  return VastError(404, "not_found", "no such route");
}

// Returns the offers for volumes: the disk of each machine.
Json VolumeOffers(const World& world) {
  Json offers = Json::array();
  for (const VastOffer& machine : VastStockOf(world).offers) {
    if (machine.gone) continue;
    offers.push_back({{"id", machine.machine_id},
                      {"ask_contract_id", machine.machine_id},
                      {"machine_id", machine.machine_id},
                      {"host_id", machine.machine_id % 1000},
                      {"disk_space", machine.disk_gb},
                      {"storage_cost", machine.storage_cost},
                      {"geolocation", machine.geolocation}});
  }
  return offers;
}

// Returns the volumes of `account`, each with the instances that have it.
Json VolumeList(const World& world, const Account& account) {
  Json list = Json::array();
  for (const auto& entry : VastStockOf(world).tables["volumes"].items()) {
    Json volume = entry.value();
    if (StringAt(volume, "account") != account.name) continue;
    volume.erase("account");
    volume["instances"] = Json::array();
    for (const auto& instance : world.instances) {
      if (instance->service != "vast" || !instance->alive()) continue;
      const Json about = instance->request.value("volume_info", Json());
      if (about.is_object() && IntegerAt(about, "volume_id") == IntegerAt(volume, "id")) {
        volume["instances"].push_back({{"id", instance->id}});
      }
    }
    list.push_back(std::move(volume));
  }
  return list;
}

Reply RentVolume(World& world, const Call& call, const Account& account) {
  const int64_t ask = IntegerAt(call.json, "id");
  const VastOffer* machine = nullptr;
  for (const VastOffer& offer : VastStockOf(world).offers) {
    if (offer.machine_id == ask && !offer.gone) machine = &offer;
  }
  if (machine == nullptr) return VastError(404, "no_such_ask", "no such ask");
  const double size = NumberAt(call.json, "size", 15);
  if (size < 1 || size > machine->disk_gb) return VastError(400, "invalid_args", "size");
  const int64_t made = world.NextNumber();
  const double rate = size * VastDiskRate(machine->storage_cost);
  VastStockOf(world).tables["volumes"][absl::StrCat(made)] = {
      {"id", made},
      {"account", account.name},
      {"machine_id", machine->machine_id},
      {"host_id", machine->machine_id % 1000},
      {"geolocation", machine->geolocation},
      {"disk_space", size},
      {"storage_total_cost", rate},
      {"start_date", static_cast<double>(world.Now()) / 1000},
      {"status", "active"}};
  StoredVolume stored;
  stored.service = "vast";
  stored.id = absl::StrCat(made);
  stored.account = account.name;
  stored.name = absl::StrCat("V.", made);
  stored.place = absl::StrCat(machine->machine_id);
  world.SetVolumeRate(world.AddVolume(stored), rate);
  return JsonReply(200, {{"success", true}, {"volume_name", stored.name}});
}

Reply Volumes(World& world, const Call& call, const Account& account) {
  if (!VastStockOf(world).tables.contains("volumes"))
    VastStockOf(world).tables["volumes"] = Json::object();
  Json& volumes = VastStockOf(world).tables["volumes"];
  if (call.Is("GET", "/api/v0/volumes")) {
    return JsonReply(200, {{"volumes", VolumeList(world, account)}});
  }
  if (call.Is("POST", "/api/v0/volumes/search")) {
    return JsonReply(200, {{"offers", VolumeOffers(world)}});
  }
  int64_t id = IntegerAt(call.json, "id");
  if (call.method == "DELETE") (void)absl::SimpleAtoi(call.Query("id", absl::StrCat(id)), &id);
  if (id == 0) return VastError(400, "invalid_args", "id is required");
  if (call.Is("PUT", "/api/v0/volumes")) return RentVolume(world, call, account);
  if (call.Is("DELETE", "/api/v0/volumes")) {
    const std::string name = absl::StrCat(id);
    if (!volumes.contains(name) || StringAt(volumes[name], "account") != account.name) {
      return VastError(404, "no_such_volume", "no such volume");
    }
    volumes.erase(name);
    world.EndVolume("vast", name);
    return JsonReply(200, {{"success", true}});
  }
  return VastError(404, "not_found", "no such route");
}

}  // namespace

std::optional<Reply> VastAccount(World& world, const Call& call, const Caller& caller) {
  if (call.parts.size() < 3) return std::nullopt;
  Account& account = *caller.account;
  if (call.Is("GET", "/api/v0/users/current")) {
    const double credit = world.Balance(account);
    return JsonReply(
        200, {{"id", account.user_id},
              {"key_id", account.user_id},
              {"email", "owner@example.invalid"},
              {"balance", credit},
              {"credit", credit},
              {"ssh_key", account.ssh_keys.empty() ? "" : StringAt(account.ssh_keys[0], "key")},
              {"sid", "sim"}});
  }
  if (call.parts[2] == "ssh") return SshKeys(world, call, account);
  if (call.parts[2] == "auth") return ApiKeys(world, call, caller);
  if (call.parts[2] == "volumes") return Volumes(world, call, account);
  return std::nullopt;
}

std::optional<ImageLogin> ParseVastLogin(const std::string& text) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ', absl::SkipEmpty());
  ImageLogin login;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const bool user = word == "-u" || word == "--username";
    if (user || word == "-p" || word == "--password") {
      if (++i == words.size()) return std::nullopt;
      (user ? login.username : login.password) = words[i];
    } else if (absl::StartsWith(word, "-") || !login.server.empty()) {
      return std::nullopt;
    } else {
      login.server = word;
    }
  }
  if (login.username.empty() || login.password.empty()) return std::nullopt;
  if (login.server.empty()) login.server = "docker.io";
  return login;
}

}  // namespace gpuctl::cloudsim
