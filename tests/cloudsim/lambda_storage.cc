#include "tests/cloudsim/lambda_parts.h"

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/files/files.h"
#include "tests/cloudsim/children.h"

namespace gpuctl::cloudsim {
namespace {

// Price of data in a file system, in USD per GB and month.
constexpr double kFileSystemUsd = 0.20;
constexpr int64_t kFileSystemQuantumMs = 60'000;

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
  if (call.json.is_discarded() || !wrong.empty()) return LambdaInvalid(wrong);
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
  if (call.json.is_discarded() || !wrong.empty()) return LambdaInvalid(wrong);
  const std::string name = StringAt(call.json, "name");
  Json& table = LambdaTable(world, account, "file_systems");
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
  MeasureFileSystems(world);
  return LambdaData(table[id]);
}

bool InUse(const World& world, const std::string& id) {
  for (const auto& instance : world.instances) {
    if (instance->service != "lambda" || !instance->alive()) continue;
    for (const Json& mount : instance->extra.value("mounts", Json::array())) {
      if (StringAt(mount, "file_system_id") == id) return true;
    }
  }
  return false;
}

}  // namespace

Json LambdaImages(const World& world) {
  Json images = Json::array();
  for (const auto& region : LambdaStockOf(world).regions) {
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
  return images;
}

Json& LambdaTable(World& world, const Account& account, const char* name) {
  Json& own = LambdaStockOf(world).tables[account.name];
  if (!own.contains(name)) own[name] = Json::object();
  return own[name];
}

Reply LambdaInvalid(const std::vector<std::string>& wrong) {
  return LambdaError(400, "global/invalid-parameters",
                     wrong.empty() ? "Invalid request data." : wrong[0]);
}

Reply LambdaData(const Json& data) { return JsonReply(200, {{"data", data}}); }

std::string LambdaSshKey(const Account& account, const std::string& name) {
  for (const Json& key : account.ssh_keys) {
    if (StringAt(key, "name") == name) return StringAt(key, "public_key");
  }
  return "";
}

namespace {

// Returns the id of the account's file system of that name, or "".
std::string FileSystemNamed(World& world, const Account& account, const std::string& name) {
  for (const auto& entry : LambdaTable(world, account, "file_systems").items()) {
    if (StringAt(entry.value(), "name") == name) return entry.key();
  }
  return "";
}

bool HasImage(const World& world, const Json& image, const std::string& region) {
  for (const Json& one : LambdaImages(world)) {
    const bool named = image.contains("id") ? one["id"] == image["id"]
                                            : one["family"] == image.value("family", Json());
    if (named && StringAt(one["region"], "name") == region) return true;
  }
  return false;
}

}  // namespace

void MeasureFileSystems(World& world) {
  for (const auto& volume : world.volumes) {
    if (volume->gone || volume->service != "lambda") continue;
    volume->used_bytes = BytesBelow(volume->dir);
    world.SetVolumeRate(volume.get(),
                        static_cast<double>(volume->used_bytes) / 1e9 * kFileSystemUsd / 720,
                        kFileSystemQuantumMs);
  }
}

Json LambdaMounts(World& world, const Account& account, const Json& launch) {
  Json mounts = launch.value("file_system_mounts", Json::array());
  for (const Json& name : launch.value("file_system_names", Json::array())) {
    const std::string id = FileSystemNamed(world, account, name.get<std::string>());
    bool there = false;
    for (const Json& mount : mounts) there = there || StringAt(mount, "file_system_id") == id;
    if (there) continue;
    const Json& own = LambdaTable(world, account, "file_systems")[id];
    mounts.push_back({{"mount_point", own["mount_point"]}, {"file_system_id", id}});
  }
  return mounts;
}

std::optional<Reply> LambdaBadParts(World& world, const Account& account, const Json& launch) {
  const auto unknown = [](const char* message) {
    return LambdaError(400, "global/object-does-not-exist", message);
  };
  const std::string region = StringAt(launch, "region_name");
  const Json& table = LambdaTable(world, account, "file_systems");
  std::vector<std::string> ids;
  for (const Json& mount : launch.value("file_system_mounts", Json::array())) {
    ids.push_back(StringAt(mount, "file_system_id"));
  }
  for (const Json& name : launch.value("file_system_names", Json::array())) {
    ids.push_back(FileSystemNamed(world, account, name.get<std::string>()));
  }
  for (const std::string& id : ids) {
    if (!table.contains(id)) return unknown("Filesystem was not found.");
    if (StringAt(table[id]["region"], "name") != region) {
      return LambdaError(400, "instance-operations/launch/file-system-in-wrong-region",
                         "The filesystem is in another region.");
    }
  }
  if (launch.contains("image") && !HasImage(world, launch["image"], region)) {
    return unknown("Image does not exist.");
  }
  const Json& rulesets = LambdaTable(world, account, "rulesets");
  for (const Json& entry : launch.value("firewall_rulesets", Json::array())) {
    const std::string id = StringAt(entry, "id");
    if (!rulesets.contains(id) || StringAt(rulesets[id]["region"], "name") != region) {
      return unknown("Firewall ruleset does not exist.");
    }
  }
  return std::nullopt;
}

std::optional<Reply> LambdaStorage(World& world, const Call& call, Account& account) {
  if (call.Is("GET", "/api/v1/ssh-keys")) return LambdaData(account.ssh_keys);
  if (call.Is("POST", "/api/v1/ssh-keys")) return AddKey(world, call, account);
  if (call.Is("DELETE", "/api/v1/ssh-keys/{}")) return DropKey(call.parts[3], account);
  if (call.Is("GET", "/api/v1/file-systems")) {
    Json all = Values(LambdaTable(world, account, "file_systems"));
    MeasureFileSystems(world);
    for (Json& one : all) {
      const StoredVolume* stored = world.FindVolume("lambda", StringAt(one, "id"));
      one["is_in_use"] = InUse(world, StringAt(one, "id"));
      if (stored != nullptr) one["bytes_used"] = stored->used_bytes;
    }
    return LambdaData(all);
  }
  if (call.Is("POST", "/api/v1/filesystems")) return AddFileSystem(world, call, account);
  if (call.Is("DELETE", "/api/v1/filesystems/{}")) {
    Json& table = LambdaTable(world, account, "file_systems");
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
  if (call.Is("GET", "/api/v1/images")) return LambdaData(LambdaImages(world));
  if (call.Is("GET", "/api/v1/regions")) {
    Json regions = Json::array();
    for (const auto& region : LambdaStockOf(world).regions) {
      regions.push_back(LambdaRegion(world, region.first));
    }
    return LambdaData(regions);
  }
  return std::nullopt;
}

}  // namespace gpuctl::cloudsim
