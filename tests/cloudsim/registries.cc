#include "tests/cloudsim/registries.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/ids.h"
#include "tests/cloudsim/runpod.h"

namespace gpuctl::cloudsim {
namespace {

constexpr char kEntries[] = "registries";

std::string ServerOf(const std::string& image) {
  const size_t slash = image.find('/');
  const std::string first = image.substr(0, slash);
  const bool server =
      slash != std::string::npos &&
      (first == "localhost" || absl::StrContains(first, '.') || absl::StrContains(first, ':'));
  return server ? first : "docker.io";
}

bool IsPrivate(const std::string& image) {
  for (const absl::string_view part : absl::StrSplit(image, '/')) {
    if (absl::StartsWith(part, "private")) return true;
  }
  return false;
}

Json Entry(const Json& entry) { return {{"id", entry["id"]}, {"name", entry["name"]}}; }

// Returns the account's entry; null when it has none of this id.
Json FindEntry(const World& world, const Account& account, const std::string& id) {
  const Json entries = world.runpod.value(kEntries, Json::object());
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
  world.runpod[kEntries][StringAt(entry, "id")] = entry;
  return JsonReply(201, Entry(entry));
}

Reply RemoveEntry(World& world, const Account& account, const std::string& id) {
  for (const auto& pod : world.instances) {
    if (pod->service == "runpod" && pod->account == account.name && pod->alive() &&
        StringAt(pod->request, "registry") == id) {
      return RunpodError(400, "registry credential is in use by a pod and cannot be deleted");
    }
  }
  world.runpod[kEntries].erase(id);
  Reply reply;
  reply.status = 204;
  return reply;
}

}  // namespace

std::string AddRegistryUser(World& world, const Json& request) {
  const std::string server = StringAt(request, "server");
  const std::string user = StringAt(request, "username");
  const std::string password = StringAt(request, "password");
  if (server.empty() || user.empty() || password.empty()) return "server, username, password";
  world.registries[server][user] = password;
  return "";
}

void PullImage(World& world, Instance* instance, const std::string& image,
               const std::optional<ImageLogin>& login) {
  const bool fault = world.faults.Take(instance->service, "create", "image_private").has_value();
  if (!fault && !IsPrivate(image)) return;
  const std::string server = ServerOf(image);
  const Json users = world.registries.value(server, Json::object());
  const bool here = login.has_value() && (login->server.empty() || login->server == server);
  if (here && StringAt(users, login->username.c_str()) == login->password &&
      !login->password.empty()) {
    return;
  }
  instance->trouble.boot_never = true;
  instance->trouble.image_error =
      here ? absl::StrCat("Error response from daemon: Get \"https://", server,
                          "/v2/\": unauthorized: incorrect username or password")
           : absl::StrCat("Error response from daemon: pull access denied for ", image,
                          ", repository does not exist or may require 'docker login'");
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
  const Json entries = world.runpod.value(kEntries, Json::object());
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

Json RegistryBooks(const World& world) {
  Json books = Json::array();
  const Json entries = world.runpod.value(kEntries, Json::object());
  for (const auto& entry : entries.items()) {
    Json shown = Entry(entry.value());
    shown["service"] = "runpod";
    shown["account"] = entry.value()["account"];
    books.push_back(std::move(shown));
  }
  return books;
}

}  // namespace gpuctl::cloudsim
