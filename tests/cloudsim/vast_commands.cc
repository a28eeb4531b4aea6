// The routes for the account's environment variables and for copies between machines. A copy is
// accepted and not made; a client that copies to its own machine gets the address for it.
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tests/cloudsim/vast.h"

namespace gpuctl::cloudsim {
namespace {

Json& SecretsOf(World& world, const Account& account) {
  return VastStockOf(world).tables["secrets"][account.name];
}

Reply Secrets(World& world, const Call& call, const Account& account) {
  (void)VastSecrets(world, account);
  Json& secrets = SecretsOf(world, account);
  if (call.method == "GET") return JsonReply(200, {{"success", true}, {"secrets", secrets}});
  const std::string key = absl::AsciiStrToUpper(StringAt(call.json, "key"));
  const std::string value = StringAt(call.json, "value");
  if (key.empty() || (call.method != "DELETE" && value.empty())) {
    return VastError(400, "missing_input", "key and value are required");
  }
  const bool there = secrets.contains(key);
  if (call.method == "POST" && there) return VastError(400, "existing_key", "the key exists");
  if (call.method != "POST" && !there) return VastError(400, "nonexistent_key", "no such key");
  if (call.method == "DELETE") {
    secrets.erase(key);
  } else {
    secrets[key] = value;
  }
  return JsonReply(200, {{"success", true}, {"msg", absl::StrCat(key, " is changed.")}});
}

// Returns the id in 123, "123" or "C.123"; "" for null and "local", and for a volume or a cloud.
std::string InstanceIn(const Json& location) {
  if (location.is_number_integer()) return location.dump();
  if (!location.is_string()) return "";
  absl::string_view text = location.get_ref<const std::string&>();
  (void)absl::ConsumePrefix(&text, "C.");
  if (text.empty() || text.find_first_not_of("0123456789") != absl::string_view::npos) return "";
  return std::string(text);
}

// Puts the address of one end of a copy into `answer`. Returns the error, if any.
std::optional<Reply> AddEnd(World& world, const Account& account, const Json& location,
                            const std::string& name, Json* answer) {
  const std::string id = InstanceIn(location);
  if (id.empty()) return std::nullopt;
  const Instance* instance = world.Find("vast", id);
  if (instance == nullptr || !instance->alive() || instance->account != account.name) {
    return VastError(404, "no_such_instance", "no such instance");
  }
  if (instance->reachable()) {
    (*answer)[name + "_addr"] = instance->node->host();
    (*answer)[name + "_port"] = instance->node->port();
  }
  return std::nullopt;
}

Reply Copy(World& world, const Call& call, const Account& account) {
  if (!call.json.is_object()) return VastError(400, "invalid_args", "Invalid json body");
  for (const char* path : {"src_path", "dst_path"}) {
    if (StringAt(call.json, path).empty()) {
      return VastError(400, "invalid_args", absl::StrCat("Invalid ", path, "."));
    }
  }
  Json answer = {{"success", true}, {"msg", "The copy has begun."}};
  for (const char* end : {"src", "dst"}) {
    const Json location = call.json.value(absl::StrCat(end, "_id"), Json());
    if (auto wrong = AddEnd(world, account, location, end, &answer)) return *std::move(wrong);
  }
  return JsonReply(200, answer);
}

}  // namespace

const Json& VastSecrets(World& world, const Account& account) {
  Json& secrets = SecretsOf(world, account);
  if (secrets.is_null()) secrets = Json::object();
  return secrets;
}

std::optional<Reply> VastCommands(World& world, const Call& call, const Caller& caller) {
  const Account& account = *caller.account;
  if (call.parts.size() == 3 && call.parts[2] == "secrets") return Secrets(world, call, account);
  if (call.Is("PUT", "/api/v0/commands/rsync") || call.Is("PUT", "/api/v0/commands/copy_direct")) {
    return Copy(world, call, account);
  }
  if (call.Is("DELETE", "/api/v0/commands/rsync") ||
      call.Is("DELETE", "/api/v0/commands/copy_direct")) {
    if (!call.json.is_object() || InstanceIn(call.json.value("dst_id", Json())).empty()) {
      return VastError(400, "invalid_args", "Invalid dst_id.");
    }
    return JsonReply(200, {{"success", true}});
  }
  return std::nullopt;
}

}  // namespace gpuctl::cloudsim
