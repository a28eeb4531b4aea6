#include "tests/cloudsim/lambda_storage.h"

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/files/files.h"
#include "tests/cloudsim/children.h"

namespace gpuctl::cloudsim {
namespace {

Reply Invalid(const std::vector<std::string>& wrong) {
  return LambdaError(400, "global/invalid-parameters",
                     wrong.empty() ? "Invalid request data." : wrong[0]);
}

Json& Table(World& world, const char* name) {
  if (!world.lambda.contains(name)) world.lambda[name] = Json::object();
  return world.lambda[name];
}

Json Values(const Json& table) {
  Json values = Json::array();
  for (const auto& entry : table.items()) values.push_back(entry.value());
  return values;
}

Reply AddKey(World& world, const Call& call, Account& account) {
  const std::vector<std::string> wrong = CheckJson(call.json, Json::parse(R"({"type": "object",
    "required": ["name"], "properties": {
      "name": {"type": "string", "minLength": 1, "maxLength": 64},
      "public_key": {"type": "string", "minLength": 1, "maxLength": 4096}}})"));
  if (call.json.is_discarded() || !wrong.empty()) return Invalid(wrong);
  const std::string name = StringAt(call.json, "name");
  if (!LambdaSshKey(account, name).empty()) {
    return LambdaError(400, "global/duplicate", "An SSH key of this name exists.");
  }
  Json key = {
      {"id", RandomHex(16)}, {"name", name}, {"public_key", StringAt(call.json, "public_key")}};
  Json answer = key;
  if (!call.json.contains("public_key")) {
    // Make a key pair. Only this reply has the private key.
    const std::string path = JoinPath(world.options.dir, absl::StrCat("key-", RandomHex(6)));
    (void)RunProgram(
        {"/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", path});
    key["public_key"] = ReadFileToString(absl::StrCat(path, ".pub")).value_or("");
    answer = key;
    answer["private_key"] = ReadFileToString(path).value_or("");
    (void)file_ops::Unlink(path);
    (void)file_ops::Unlink(absl::StrCat(path, ".pub"));
  }
  account.ssh_keys.push_back(key);
  return LambdaData(answer);
}

Reply DropKey(const std::string& id, Account& account) {
  for (size_t i = 0; i < account.ssh_keys.size(); ++i) {
    if (StringAt(account.ssh_keys[i], "id") != id) continue;
    account.ssh_keys.erase(i);
    return LambdaData(Json::object());
  }
  return LambdaError(404, "global/object-does-not-exist", "SSH key does not exist.");
}

Reply AddFileSystem(World& world, const Call& call, const Account& account) {
  const std::vector<std::string> wrong = CheckJson(call.json, Json::parse(R"({"type": "object",
    "required": ["name", "region"], "properties": {
      "name": {"type": "string", "minLength": 1, "maxLength": 60,
        "pattern": "^[a-zA-Z]+[0-9a-zA-Z-]*$"},
      "region": {"type": "string"}}})"));
  if (call.json.is_discarded() || !wrong.empty()) return Invalid(wrong);
  const std::string name = StringAt(call.json, "name");
  Json& table = Table(world, "file_systems");
  for (const auto& entry : table.items()) {
    if (StringAt(entry.value(), "name") == name) {
      return LambdaError(400, "global/duplicate", "A filesystem of this name exists.");
    }
  }
  const std::string id = RandomHex(16);
  table[id] = {{"id", id},
               {"name", name},
               {"mount_point", absl::StrCat("/lambda/nfs/", name)},
               {"created", Rfc3339(world.Now())},
               {"created_by",
                {{"id", absl::StrCat(account.user_id)},
                 {"email", "owner@example.invalid"},
                 {"status", "active"}}},
               {"is_in_use", false},
               {"region", LambdaRegion(world, StringAt(call.json, "region"))},
               {"bytes_used", 0}};
  StoredVolume stored;
  stored.service = "lambda";
  stored.id = id;
  stored.account = account.name;
  stored.name = name;
  stored.place = StringAt(call.json, "region");
  world.AddVolume(stored);
  world.MeasureFileSystems();
  return LambdaData(table[id]);
}

bool InUse(const World& world, const std::string& id) {
  for (const auto& instance : world.instances) {
    if (instance->service != "lambda" || !instance->alive()) continue;
    for (const Json& mount : instance->request.value("file_system_mounts", Json::array())) {
      if (StringAt(mount, "file_system_id") == id) return true;
    }
  }
  return false;
}

Reply Images(const World& world) {
  Json images = Json::array();
  for (const auto& region : world.stock.lambda_regions) {
    for (const char* family : {"lambda-stack-22-04", "lambda-stack-24-04"}) {
      images.push_back({{"id", absl::StrCat(family, "-", region.first)},
                        {"created_time", "2026-01-01T00:00:00Z"},
                        {"updated_time", "2026-01-01T00:00:00Z"},
                        {"name", family},
                        {"description", "Lambda Stack"},
                        {"family", family},
                        {"version", "1.0.0"},
                        {"architecture", region.first == "us-east-3" ? "arm64" : "x86_64"},
                        {"region", LambdaRegion(world, region.first)}});
    }
  }
  return LambdaData(images);
}

Json DefaultRules() {
  return Json::array({{{"protocol", "tcp"},
                       {"port_range", {22, 22}},
                       {"source_network", "0.0.0.0/0"},
                       {"description", "SSH"}}});
}

std::optional<Reply> Firewall(World& world, const Call& call) {
  if (!world.lambda.contains("rules")) world.lambda["rules"] = DefaultRules();
  Json& rules = world.lambda["rules"];
  if (call.Is("GET", "/api/v1/firewall-rules")) return LambdaData(rules);
  if (call.Is("PUT", "/api/v1/firewall-rules")) {
    if (!call.json.is_object() || !call.json.contains("data")) return Invalid({});
    rules = call.json["data"];
    return LambdaData(rules);
  }
  const bool change = call.Is("PATCH", "/api/v1/firewall-rulesets/global");
  if (change || call.Is("GET", "/api/v1/firewall-rulesets/global")) {
    if (change && !call.json.is_object()) return Invalid({});
    if (change && call.json.contains("rules")) rules = call.json["rules"];
    return LambdaData({{"id", "global"}, {"name", "Global"}, {"rules", rules}});
  }
  Json& table = Table(world, "rulesets");
  if (call.Is("GET", "/api/v1/firewall-rulesets")) return LambdaData(Values(table));
  if (call.Is("POST", "/api/v1/firewall-rulesets")) {
    const std::vector<std::string> wrong = CheckJson(call.json, Json::parse(R"({"type": "object",
      "required": ["name", "region", "rules"], "properties": {
        "name": {"type": "string", "maxLength": 64}, "region": {"type": "string"},
        "rules": {"type": "array"}}})"));
    if (call.json.is_discarded() || !wrong.empty()) return Invalid(wrong);
    const std::string id = RandomHex(16);
    table[id] = {{"id", id},
                 {"name", call.json["name"]},
                 {"region", LambdaRegion(world, StringAt(call.json, "region"))},
                 {"rules", call.json["rules"]},
                 {"created", Rfc3339(world.Now())},
                 {"instance_ids", Json::array()}};
    return LambdaData(table[id]);
  }
  if (call.parts.size() != 4 || call.parts[2] != "firewall-rulesets") return std::nullopt;
  const std::string& id = call.parts[3];
  if (!table.contains(id)) {
    return LambdaError(
        404, "global/object-does-not-exist",
        "Firewall ruleset does not exist or you do not have permission to access it.");
  }
  if (call.method == "GET") return LambdaData(table[id]);
  if (call.method == "PATCH" && call.json.is_object()) {
    for (const char* name : {"name", "rules"}) {
      if (call.json.contains(name)) table[id][name] = call.json[name];
    }
    return LambdaData(table[id]);
  }
  if (call.method == "DELETE") {
    table.erase(id);
    return LambdaData(Json::object());
  }
  return std::nullopt;
}

}  // namespace

Reply LambdaData(const Json& data) { return JsonReply(200, {{"data", data}}); }

std::string LambdaSshKey(const Account& account, const std::string& name) {
  for (const Json& key : account.ssh_keys) {
    if (StringAt(key, "name") == name) return StringAt(key, "public_key");
  }
  return "";
}

std::optional<Reply> LambdaBadMounts(World& world, const Json& launch) {
  const Json& table = Table(world, "file_systems");
  for (const Json& mount : launch.value("file_system_mounts", Json::array())) {
    const std::string id = StringAt(mount, "file_system_id");
    if (!table.contains(id)) {
      return LambdaError(400, "global/object-does-not-exist", "Filesystem was not found.");
    }
    if (StringAt(table[id]["region"], "name") != StringAt(launch, "region_name")) {
      return LambdaError(400, "instance-operations/launch/file-system-in-wrong-region",
                         "The filesystem is in another region.");
    }
  }
  return std::nullopt;
}

std::optional<Reply> LambdaStorage(World& world, const Call& call, Account& account) {
  if (call.Is("GET", "/api/v1/ssh-keys")) return LambdaData(account.ssh_keys);
  if (call.Is("POST", "/api/v1/ssh-keys")) return AddKey(world, call, account);
  if (call.Is("DELETE", "/api/v1/ssh-keys/{}")) return DropKey(call.parts[3], account);
  if (call.Is("GET", "/api/v1/file-systems")) {
    Json all = Values(Table(world, "file_systems"));
    world.MeasureFileSystems();
    for (Json& one : all) {
      const StoredVolume* stored = world.FindVolume("lambda", StringAt(one, "id"));
      one["is_in_use"] = InUse(world, StringAt(one, "id"));
      if (stored != nullptr) one["bytes_used"] = stored->used_bytes;
    }
    return LambdaData(all);
  }
  if (call.Is("POST", "/api/v1/filesystems")) return AddFileSystem(world, call, account);
  if (call.Is("DELETE", "/api/v1/filesystems/{}")) {
    Json& table = Table(world, "file_systems");
    const std::string& id = call.parts[3];
    if (!table.contains(id)) {
      return LambdaError(404, "global/object-does-not-exist", "Filesystem was not found.");
    }
    if (InUse(world, id)) {
      return LambdaError(400, "filesystems/filesystem-in-use", "The filesystem is in use.");
    }
    table.erase(id);
    world.EndVolume("lambda", id);
    return LambdaData({{"deleted_ids", {id}}});
  }
  if (call.Is("GET", "/api/v1/images")) return Images(world);
  if (call.Is("GET", "/api/v1/regions")) {
    Json regions = Json::array();
    for (const auto& region : world.stock.lambda_regions) {
      regions.push_back(LambdaRegion(world, region.first));
    }
    return LambdaData(regions);
  }
  return Firewall(world, call);
}

}  // namespace gpuctl::cloudsim
