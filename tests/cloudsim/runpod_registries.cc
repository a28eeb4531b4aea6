// Runpod's store of logins at container registries.
#include "common/base/ids.h"
#include "tests/cloudsim/registries.h"
#include "tests/cloudsim/runpod.h"

namespace gpuctl::cloudsim {
namespace {

constexpr char kEntries[] = "registries";

Json Entry(const Json& entry) { return {{"id", entry["id"]}, {"name", entry["name"]}}; }

// Returns the account's entry; null when it has none of this id.
Json FindEntry(const World& world, const Account& account, const std::string& id) {
  const Json entries = RunpodStockOf(world).tables.value(kEntries, Json::object());
  const Json entry = entries.value(id, Json());
  return StringAt(entry, "account") == account.name ? entry : Json();
}

Reply MakeEntry(World& world, const Call& call, const Account& account) {
  static const auto* const schema = new Json(Json::parse(R"({
    "type": "object", "additionalProperties": false,
    "required": ["name", "username", "password"], "properties": {
      "name": {"type": "string", "minLength": 1}, "username": {"type": "string", "minLength": 1},
      "password": {"type": "string", "minLength": 1}}})"));
  if (auto bad = RunpodBadBody(call, *schema)) return *std::move(bad);
  Json entry = call.json;
  entry["id"] = RandomHex(4);
  entry["account"] = account.name;
  RunpodStockOf(world).tables[kEntries][StringAt(entry, "id")] = entry;
  return JsonReply(201, Entry(entry));
}

Reply RemoveEntry(World& world, const Account& account, const std::string& id) {
  for (const auto& pod : world.instances) {
    if (pod->service == "runpod" && pod->account == account.name && pod->alive() &&
        StringAt(pod->request, "registry") == id) {
      return RunpodError(400, "registry credential is in use by a pod and cannot be deleted");
    }
  }
  RunpodStockOf(world).tables[kEntries].erase(id);
  Reply reply;
  reply.status = 204;
  return reply;
}

}  // namespace

std::optional<Reply> RunpodRegistries(World& world, const Call& call, const Caller& caller) {
  const Account& account = *caller.account;
  if (call.Is("GET", "/v2/registries")) {
    return JsonReply(200, {{"registries", RunpodRegistriesOf(world, account)}});
  }
  if (call.Is("POST", "/v2/registries")) return MakeEntry(world, call, account);
  const bool get = call.Is("GET", "/v2/registries/{}");
  if (!get && !call.Is("DELETE", "/v2/registries/{}")) return std::nullopt;
  const Json entry = FindEntry(world, account, call.parts[2]);
  if (entry.is_null()) return RunpodError(404, "registry credential not found");
  return get ? JsonReply(200, Entry(entry)) : RemoveEntry(world, account, call.parts[2]);
}

Json RunpodRegistriesOf(const World& world, const Account& account) {
  Json own = Json::array();
  const Json entries = RunpodStockOf(world).tables.value(kEntries, Json::object());
  for (const auto& entry : entries.items()) {
    if (StringAt(entry.value(), "account") == account.name) own.push_back(Entry(entry.value()));
  }
  return own;
}

std::optional<ImageLogin> RunpodLoginOf(const World& world, const Account& account,
                                        const std::string& id) {
  const Json entry = FindEntry(world, account, id);
  if (entry.is_null()) return std::nullopt;
  return ImageLogin{"", StringAt(entry, "username"), StringAt(entry, "password")};
}

Json RunpodRegistryBooks(const RunpodStock& stock) {
  Json books = Json::array();
  const Json entries = stock.tables.value(kEntries, Json::object());
  for (const auto& entry : entries.items()) {
    Json shown = Entry(entry.value());
    shown["service"] = "runpod";
    shown["account"] = entry.value()["account"];
    books.push_back(std::move(shown));
  }
  return books;
}

}  // namespace gpuctl::cloudsim
