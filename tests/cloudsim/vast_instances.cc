// The routes for contracts: made from an offer, read, changed, ended.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/ids.h"
#include "common/files/files.h"
#include "tests/cloudsim/registries.h"
#include "tests/cloudsim/vast.h"

namespace gpuctl::cloudsim {
namespace {

Reply Success() { return JsonReply(200, {{"success", true}}); }

int64_t Number(const std::string& text) {
  int64_t number = 0;
  return absl::SimpleAtoi(text, &number) ? number : 0;
}

Json ActualStatus(const Instance& instance) {
  if (instance.trouble.offline && instance.phase == Phase::kRunning) return "offline";
  switch (instance.phase) {
    case Phase::kBooting:
      return "loading";
    case Phase::kRunning:
      return "running";
    case Phase::kStopped:
      return "exited";
    case Phase::kFailed:
      return "created";
    default:
      return nullptr;
  }
}

// Returns the ports that the keys "-p 8000:8000" of an environment open, as Docker names them.
std::vector<std::string> AskedPorts(const Json& environment) {
  std::vector<std::string> ports;
  for (const auto& entry : environment.items()) {
    absl::string_view key = entry.key();
    if (!absl::ConsumePrefix(&key, "-p ")) continue;
    const size_t colon = key.rfind(':');
    if (colon != absl::string_view::npos) key.remove_prefix(colon + 1);
    ports.push_back(absl::StrCat(key, absl::StrContains(key, "/") ? "" : "/tcp"));
  }
  return ports;
}

// Returns the open ports of a machine with its own address. Only ssh has a listener; a program in
// the instance would make the others.
Json PortsJson(const Instance& instance, const Json& environment) {
  const auto mapped = [](int64_t port) {
    return Json::array({{{"HostIp", "0.0.0.0"}, {"HostPort", absl::StrCat(port)}}});
  };
  Json ports = {{"22/tcp", mapped(instance.node->port())}};
  int64_t next = 20'000 + Number(instance.id) % 2000 * 16;
  for (const std::string& port : AskedPorts(environment)) ports[port] = mapped(next++);
  return ports;
}

Json ContractJson(World& world, const Instance& instance) {
  const Json& offer = instance.extra["offer"];
  const bool stopped = instance.phase == Phase::kStopped;
  const int64_t now = world.Now();
  const double disk = NumberAt(instance.extra, "disk_usd");
  Json ports = nullptr;
  const Json asked = instance.request.value("env", Json::object());
  const bool direct = NumberAt(offer, "direct_port_count") > 0 && !instance.trouble.no_direct_ports;
  if (instance.reachable() && direct) ports = PortsJson(instance, asked);
  Json environment = Json::array();
  for (const auto& entry : asked.items()) {
    environment.push_back(Json::array({entry.key(), entry.value()}));
  }
  const bool failed = instance.phase == Phase::kFailed;
  Json json = {
      {"id", Number(instance.id)},
      {"label", instance.label.empty() ? Json() : Json(instance.label)},
      {"actual_status", ActualStatus(instance)},
      {"cur_state", stopped ? "stopped" : "running"},
      {"next_state", stopped ? "stopped" : "running"},
      {"intended_status", stopped ? "stopped" : "running"},
      {"status_msg", failed ? Json("Error response from daemon: OCI runtime create failed")
                     : !instance.trouble.image_error.empty() ? Json(instance.trouble.image_error)
                     : instance.trouble.image_missing
                         ? Json("Error response from daemon: manifest for org/image:tag not found: "
                                "manifest unknown")
                         : Json(instance.message)},
      {"image_uuid", StringAt(instance.request, "image")},
      {"image_runtype", StringAt(instance.request, "runtype", "ssh")},
      {"image_args", instance.request.value("args", Json::array())},
      {"extra_env", environment},
      {"onstart", StringAt(instance.request, "onstart")},
      {"machine_id", offer["machine_id"]},
      {"host_id", offer["host_id"]},
      {"gpu_name", offer["gpu_name"]},
      {"num_gpus", offer["num_gpus"]},
      {"gpu_ram", offer["gpu_ram"]},
      {"geolocation", offer["geolocation"]},
      {"reliability2", offer["reliability2"]},
      {"cuda_max_good", offer["cuda_max_good"]},
      {"storage_cost", offer["storage_cost"]},
      {"inet_up_cost", offer["inet_up_cost"]},
      {"inet_down_cost", offer["inet_down_cost"]},
      {"direct_port_count", offer["direct_port_count"]},
      {"disk_space", NumberAt(instance.request, "disk", 8)},
      {"dph_base", instance.usd_per_hour},
      {"dph_total", instance.usd_per_hour + disk},
      {"storage_total_cost", disk},
      {"min_bid", offer["min_bid"]},
      {"is_bid", instance.spot},
      {"start_date", static_cast<double>(instance.created_ms) / 1000},
      {"end_date", NumberAt(instance.extra, "end_ms") / 1000},
      {"duration", static_cast<double>(now - instance.created_ms) / 1000},
      {"uptime_mins", instance.started_ms > 0
                          ? Json(static_cast<double>(now - instance.started_ms) / 60'000)
                          : Json()},
      {"verification", offer["verification"]},
      {"rentable", false},
      {"external", false},
      {"static_ip", true},
      {"ports", ports}};
  if (instance.reachable()) {
    json["public_ipaddr"] = absl::StrCat(instance.node->host(), "\n");
    json["ssh_host"] = instance.node->host();
    json["ssh_port"] = instance.node->port();
  }
  return json;
}

const Json& CreateSchema() {
  static const auto* const schema = new Json(Json::parse(R"({"type": "object", "properties": {
    "client_id": {"type": "string"}, "image": {"type": "string"},
    "template_hash_id": {"type": "string"}, "label": {"type": "string", "maxLength": 256},
    "extra": {"type": "string"}, "image_login": {"type": "string"}, "user": {"type": "string"},
    "python_utf8": {"type": "boolean"}, "lang_utf8": {"type": "boolean"},
    "use_jupyter_lab": {"type": "boolean"}, "jupyter_dir": {"type": "string"},
    "disk": {"type": "number", "minimum": 8},
    "runtype": {"type": "string", "enum": ["ssh", "jupyter", "args", "ssh_proxy", "ssh_direct",
      "jupyter_proxy", "jupyter_direct", "ssh_direc", "ssh_direc ssh_proxy",
      "jupyter_direc ssh_direc ssh_proxy"]},
    "target_state": {"type": "string", "enum": ["running", "stopped"]},
    "price": {"type": "number", "minimum": 0.001, "maximum": 128},
    "env": {"type": "object", "additionalProperties": {"type": "string"}},
    "cancel_unavail": {"type": "boolean"}, "vm": {"type": "boolean"},
    "onstart": {"type": "string"}, "args": {"type": "array"},
    "args_str": {"type": "string"}, "force": {"type": "boolean"},
    "volume_info": {"type": "object"}}})"));
  return *schema;
}

std::optional<std::string> BadCreate(const Json& body) {
  if (body.is_discarded()) return "Invalid json body";
  const std::vector<std::string> wrong = CheckJson(body, CreateSchema());
  if (!wrong.empty()) return wrong[0];
  const std::string login = StringAt(body, "image_login");
  if (!login.empty() && !ParseVastLogin(login).has_value()) {
    return "image_login: not the arguments of docker login";
  }
  if (!body.contains("image") && !body.contains("template_hash_id")) return "image is required";
  if (StringAt(body, "onstart").size() + StringAt(body, "args_str").size() > 4096) {
    return "onstart and args are longer than 4096 characters";
  }
  size_t size = 0;
  const Json environment = body.value("env", Json::object());
  for (const auto& entry : environment.items()) {
    size += entry.key().size() + entry.value().get_ref<const std::string&>().size();
  }
  if (size > 32'768) return "env is too large";
  return std::nullopt;
}

Reply AskError(int status, const char* code, const std::string& message, int64_t ask) {
  return JsonReply(status,
                   {{"success", false}, {"error", code}, {"msg", message}, {"ask_id", ask}});
}

// Returns the volume that a create asks for; nullptr when none.
const StoredVolume* VolumeOf(World& world, const Json& body) {
  const Json about = body.value("volume_info", Json());
  if (!about.is_object()) return nullptr;
  return world.FindVolume("vast", absl::StrCat(IntegerAt(about, "volume_id")));
}

Instance* Book(World& world, const Call& call, const Caller& caller, VastOffer* offer) {
  Account& account = *caller.account;
  auto instance = std::make_unique<Instance>();
  instance->service = "vast";
  // The tags of processes contain the id, so two simulators must not share one.
  instance->id = absl::StrCat(20'000'000 + world.NextNumber());
  instance->account = account.name;
  instance->label = StringAt(call.json, "label");
  instance->product = absl::StrCat(offer->id);
  instance->region = offer->geolocation;
  instance->gpu_name = offer->gpu_name;
  instance->gpu_count = offer->gpus;
  instance->spot = call.json.contains("price") && call.json["price"].is_number();
  instance->usd_per_hour = instance->spot ? NumberAt(call.json, "price") : offer->dph_base;
  instance->request = call.json;
  instance->key = world.ServiceOf("vast").NewKey();
  Call search = call;
  search.method = "GET";
  search.query = {{"q", Json({{"id", {{"eq", offer->id}}},
                              {"verified", {{"in", {true, false}}}},
                              {"allocated_storage", 0}})
                            .dump()}};
  search.parts = {"api", "v0", "bundles"};
  instance->extra["offer"] = Json::parse(VastSearch(world, search).body)["offers"][0];
  instance->extra["disk_usd"] = VastDiskRate(offer->storage_cost) * NumberAt(call.json, "disk", 8);
  offer->rented = true;
  instance->holds_stock = true;
  NodeSpec& spec = instance->spec;
  for (const auto& entry : VastSecrets(world, account).items()) {
    spec.environment[entry.key()] = entry.value().get<std::string>();
  }
  const Json asked = call.json.value("env", Json::object());
  for (const auto& entry : asked.items()) {
    if (absl::StartsWith(entry.key(), "-")) continue;  // an option of the container
    spec.environment[entry.key()] = entry.value().get<std::string>();
  }
  spec.environment["CONTAINER_ID"] = instance->id;
  spec.environment["CONTAINER_API_KEY"] = instance->key;
  spec.environment["VAST_CONTAINERLABEL"] = absl::StrCat("C.", instance->id);
  spec.environment["PUBLIC_IPADDR"] = "127.0.0.1";
  spec.environment["GPUCTL_SIM_API"] = absl::StrCat(world.url, "/vast");
  spec.user = "root";
  spec.script = StringAt(call.json, "onstart");
  if (const StoredVolume* volume = VolumeOf(world, call.json)) {
    spec.mounts[StringAt(call.json["volume_info"], "mount_path", "/workspace")] = volume->dir;
  }
  if (!world.faults.Take("vast", "create", "key_not_applied")) {
    for (const Json& key : account.ssh_keys) {
      spec.authorized_keys.push_back(StringAt(key, "key"));
    }
  }
  spec.gpu_name = offer->driver_name;
  if (spec.gpu_name.empty()) {
    const char* brand = absl::StrContains(offer->gpu_name, "RTX") ? "GeForce " : "";
    spec.gpu_name = absl::StrCat("NVIDIA ", brand, offer->gpu_name);
  }
  spec.gpu_count = offer->gpus;
  spec.gpu_memory_mib = offer->gpu_ram_mb;
  Instance* made = world.Add(std::move(instance));
  PullImage(world, made, StringAt(call.json, "image"),
            ParseVastLogin(StringAt(call.json, "image_login")));
  made->extra["end_ms"] = made->created_ms + static_cast<int64_t>(offer->duration_s * 1000);
  made->StartCharge("disk", NumberAt(made->extra, "disk_usd"), 1000, made->created_ms);
  return made;
}

// Returns the call without the members of its body that are null: clients send each of their
// options.
Call WithoutNulls(Call call) {
  for (auto member = call.json.begin(); call.json.is_object() && member != call.json.end();) {
    member = member->is_null() ? call.json.erase(member) : std::next(member);
  }
  return call;
}

Reply Create(World& world, const Call& sent, const Caller& caller) {
  const Call call = WithoutNulls(sent);
  const int64_t ask = Number(call.parts[3]);
  if (const auto wrong = BadCreate(call.json)) return AskError(400, "invalid_args", *wrong, ask);
  Account& account = *caller.account;
  VastOffer* offer = VastStockOf(world).Find(ask);
  if (offer == nullptr) return AskError(404, "no_such_ask", "no such ask", ask);
  if (offer->gone || offer->rented || world.faults.Take("vast", "create", "offer_gone") ||
      world.faults.Take("vast", "create", "out_of_stock")) {
    return AskError(410, "no_such_ask", "the ask is no longer available", ask);
  }
  if (call.json.value("volume_info", Json()).is_object()) {
    const StoredVolume* volume = VolumeOf(world, call.json);
    if (volume == nullptr || volume->account != account.name ||
        volume->place != absl::StrCat(offer->machine_id)) {
      return AskError(400, "invalid_args", "the machine has no such volume", ask);
    }
  }
  if (world.Balance(account) < offer->dph_base || world.faults.Take("vast", "create", "no_funds")) {
    return JsonReply(400, {{"error", "insufficient_credit"},
                           {"msg", "Your account lacks credit; see the billing page."}});
  }
  if (call.json.contains("price") && call.json["price"].is_number() &&
      NumberAt(call.json, "price") < offer->min_bid) {
    if (BoolAt(call.json, "cancel_unavail")) {
      return AskError(400, "invalid_price", "bid is below the minimum", ask);
    }
    // The contract is made nevertheless: stopped, with a disk that bills.
    Instance* made = Book(world, call, caller, offer);
    world.ReleaseStock(made);
    made->Enter(Phase::kStopped, world.Now(), "simulator: outbid");
    return JsonReply(400, {{"success", false},
                           {"error", "invalid_price"},
                           {"msg", "bid is below the minimum"},
                           {"new_contract", Number(made->id)}});
  }
  const bool refused = world.faults.Take("vast", "create", "refused_but_made").has_value();
  Instance* made = Book(world, call, caller, offer);
  if (refused || StringAt(call.json, "target_state") == "stopped") {
    world.ReleaseStock(made);
    made->Enter(Phase::kStopped, world.Now(), refused ? "simulator: refused" : caller.name);
  } else {
    made->StartCharge("gpu", made->usd_per_hour, 1000, made->created_ms);
  }
  Reply reply = JsonReply(
      refused ? 400 : 200,
      {{"success", !refused}, {"new_contract", Number(made->id)}, {"instance_api_key", made->key}});
  reply.instance = made->id;
  return reply;
}

Reply List(World& world, const Call& call, const Caller& caller) {
  size_t limit = 25;
  int64_t asked = 25;
  if (!call.Query("limit").empty() &&
      (!absl::SimpleAtoi(call.Query("limit"), &asked) || asked < 1)) {
    return VastError(400, "invalid_request", "limit");
  }
  limit = static_cast<size_t>(std::min<int64_t>(asked, 25));
  const std::string token = call.Query("after_token");
  if (!token.empty() && !absl::StartsWith(token, "t")) {
    return VastError(400, "invalid_token", "Invalid token");
  }
  const int64_t after = token.empty() ? 0 : Number(token.substr(1));
  const Json filters = Json::parse(call.Query("select_filters", "{}"), nullptr, false);
  if (!filters.is_object()) return VastError(400, "invalid_request", "select_filters");
  Json page = Json::array();
  Json labels = Json::object();
  size_t total = 0;
  Json next = nullptr;
  for (const Instance* instance : world.Listed("vast", caller.account->name)) {
    const Json row = ContractJson(world, *instance);
    if (!VastMatches(row, filters, false)) continue;
    ++total;
    labels[instance->label] = IntegerAt(labels, instance->label.c_str()) + 1;
    if (Number(instance->id) <= after) continue;
    if (page.size() == limit) {
      next = absl::StrCat("t", page.back()["id"].get<int64_t>());
      continue;
    }
    if (page.size() < limit) page.push_back(row);
  }
  return JsonReply(200, {{"success", true},
                         {"instances", page},
                         {"instances_found", page.size()},
                         {"total_instances", total},
                         {"label_counts", labels},
                         {"next_token", next}});
}

Reply Manage(World& world, const Call& call, const Caller& caller, Instance* instance) {
  const std::vector<std::string> wrong = CheckJson(call.json, Json::parse(R"({"type": "object",
    "properties": {"state": {"type": "string", "enum": ["stopped", "running"]},
      "label": {"type": "string", "maxLength": 1024}}})"));
  if (call.json.is_discarded() || !wrong.empty()) {
    return VastError(400, "invalid_args", wrong.empty() ? "Invalid json body" : wrong[0]);
  }
  instance->label = StringAt(call.json, "label", instance->label);
  const std::string state = StringAt(call.json, "state");
  if (state == "stopped" && instance->phase != Phase::kStopped) {
    world.Stop(instance, caller.name, "", "disk");
  }
  if (state == "running" && BoolAt(instance->extra, "expired")) {
    return VastError(400, "invalid_args", "The contract has ended.");
  }
  if (state == "running" && instance->phase == Phase::kStopped) {
    VastOffer* offer = VastStockOf(world).Find(Number(instance->product));
    // When the GPU was given to somebody else, the instance waits for ever.
    if (offer != nullptr && !offer->rented) {
      offer->rented = true;
      instance->holds_stock = true;
      instance->StartCharge("gpu", instance->usd_per_hour, 1000, world.Now());
      world.Start(instance, caller.name);
    } else {
      instance->message = "scheduling";
    }
  }
  return Success();
}

Reply InstanceKeys(World& world, const Call& call, Instance* instance) {
  Json& keys = instance->extra["keys"];
  if (keys.is_null()) keys = Json::array();
  if (call.method == "GET") return JsonReply(200, {{"success", true}, {"ssh_keys", keys.dump()}});
  if (call.method == "DELETE") {
    const int64_t id = Number(call.parts.back());
    for (size_t i = 0; i < keys.size(); ++i) {
      if (IntegerAt(keys[i], "id") != id) continue;
      keys.erase(i);
      return JsonReply(200, {{"success", true}, {"msg", "SSH key removed from instance."}});
    }
    return VastError(404, "no_such_ssh_key", "no such key");
  }
  const std::string key = StringAt(call.json, "ssh_key");
  if (key.empty()) return VastError(400, "invalid_request", "no ssh_key");
  keys.push_back({{"id", world.NextNumber()}, {"public_key", key}});
  instance->spec.authorized_keys.push_back(key);
  if (instance->node != nullptr) (void)instance->node->Authorize(key);
  return JsonReply(200, {{"success", true}, {"msg", "SSH key added to instance."}});
}

// Stores a command's output, or the log, in a file; the reply has its address.
Reply Output(World& world, const Call& call, Instance* instance, bool command) {
  const std::string name = RandomHex(12);
  const std::string path = JoinPath(world.options.dir, absl::StrCat("files/", name));
  if (command) {
    const std::string text = StringAt(call.json, "command");
    if (text.empty() || text.size() > 512) return VastError(400, "invalid_args", "command");
    if (instance->node == nullptr || instance->phase != Phase::kRunning) {
      return VastError(400, "invalid_container", "the container does not run");
    }
    (void)instance->node->Run(text, path);
  } else {
    const std::string log = instance->node != nullptr ? instance->node->log_path() : "";
    (void)WriteFileAtomic(path, ReadFileToString(log).value_or(""));
  }
  return JsonReply(200, {{"success", true},
                         {"writeable_path", ""},
                         {"result_url", absl::StrCat(world.url, "/_sim/files/", name)},
                         {"msg", "The result will be at result_url soon."}});
}

Reply Bid(World& world, const Call& call, Instance* instance) {
  const std::vector<std::string> wrong = CheckJson(call.json, Json::parse(R"({"type": "object",
    "required": ["price"], "properties": {"client_id": {"type": "string"},
      "price": {"type": "number", "minimum": 0.001, "maximum": 128}}})"));
  if (call.json.is_discarded() || !wrong.empty() || !instance->spot) {
    return VastError(400, "invalid_args", wrong.empty() ? "not a bid" : wrong[0]);
  }
  instance->usd_per_hour = NumberAt(call.json, "price");
  const int64_t now = world.Now();
  const bool billed = instance->phase == Phase::kRunning || instance->phase == Phase::kBooting;
  instance->StopCharges("gpu", now);
  if (billed) instance->StartCharge("gpu", instance->usd_per_hour, 1000, now);
  return Success();
}

Reply Restart(World& world, const Caller& caller, Instance* instance) {
  if (instance->phase != Phase::kRunning) return VastError(400, "invalid_args", "not running");
  if (instance->node != nullptr) instance->node->Stop();
  world.Start(instance, caller.name);
  return Success();
}

}  // namespace

std::optional<Reply> VastCreate(World& world, const Call& call, const Caller& caller) {
  if (!call.Is("PUT", "/api/v0/asks/{}")) return std::nullopt;
  return Create(world, call, caller);
}

namespace {

// Starts, stops or ends several instances at once; all of them, or none.
Reply Several(World& world, const Call& call, const Caller& caller, const char* list) {
  const Json ids = call.json.is_object() ? call.json.value(list, Json()) : Json();
  if (!ids.is_array() || ids.empty()) return VastError(400, "missing_input", "no ids");
  std::vector<Instance*> instances;
  for (const Json& id : ids) {
    Instance* instance =
        world.Find("vast", id.is_string() ? id.get<std::string>() : absl::StrCat(id.dump()));
    if (instance == nullptr || !instance->alive() || instance->account != caller.account->name) {
      return VastError(404, "no_such_instance", "no such instance");
    }
    instances.push_back(instance);
  }
  Call one = call;
  one.json.erase(list);
  if (call.method == "POST") one.json["state"] = "running";
  for (Instance* instance : instances) {
    if (call.method == "DELETE") {
      world.End(instance, caller.name);
      continue;
    }
    Reply reply = Manage(world, one, caller, instance);
    if (reply.status != 200) return reply;
  }
  return Success();
}

}  // namespace

std::optional<Reply> VastInstances(World& world, const Call& call, const Caller& caller) {
  if (call.parts.size() < 3 || call.parts[2] != "instances") return std::nullopt;
  if (call.Is("GET", "/api/v1/instances")) return List(world, call, caller);
  if (call.Is("GET", "/api/v0/instances")) {
    return VastError(410, "deprecated_endpoint", "Use /api/v1/instances/ instead.");
  }
  if (call.Is("PUT", "/api/v0/instances")) return Several(world, call, caller, "ids");
  if (call.Is("DELETE", "/api/v0/instances")) return Several(world, call, caller, "instance_ids");
  if (call.Is("POST", "/api/v0/instances/start")) return Several(world, call, caller, "IDs");
  const bool first = call.parts.size() >= 4 && Number(call.parts[3]) > 0;
  const std::string id = first ? call.parts[3] : call.parts.size() > 4 ? call.parts[4] : "";
  Instance* instance = world.Find("vast", id);
  if (instance != nullptr && instance->account != caller.account->name) instance = nullptr;
  const bool gone = instance == nullptr || (!instance->alive() && instance->trouble.ended_lag <= 0);
  if (call.Is("GET", "/api/v0/instances/{}")) {
    if (gone) return JsonReply(200, {{"instances", nullptr}});
    if (!instance->alive()) --instance->trouble.ended_lag;
    // The documentation says that the entries of extra_env are strings here. The service's own
    // command line reads pairs, as in listings.
    Reply reply = JsonReply(200, {{"instances", ContractJson(world, *instance)}});
    reply.instance = id;
    return reply;
  }
  if (gone) return VastError(404, "no_such_instance", "no such instance");
  Reply reply;
  if (call.Is("DELETE", "/api/v0/instances/{}")) {
    reply = Success();
    if (!world.faults.Take("vast", "terminate", "terminate_ignored")) {
      world.End(instance, caller.name);
    }
  } else if (call.Is("PUT", "/api/v0/instances/{}")) {
    reply = Manage(world, call, caller, instance);
  } else if (call.Is("PUT", "/api/v0/instances/bid_price/{}")) {
    reply = Bid(world, call, instance);
  } else if (call.Is("PUT", "/api/v0/instances/reboot/{}") ||
             call.Is("PUT", "/api/v0/instances/recycle/{}")) {
    reply = Restart(world, caller, instance);
  } else if (call.Is("PUT", "/api/v0/instances/command/{}")) {
    reply = Output(world, call, instance, true);
  } else if (call.Is("PUT", "/api/v0/instances/request_logs/{}")) {
    reply = Output(world, call, instance, false);
  } else if (call.Is("GET", "/api/v0/instances/balance/{}")) {
    reply = JsonReply(200, {{"success", true},
                            {"refundable_deposit", 0.0},
                            {"total_discount", 0.0},
                            {"discount_months", 0}});
  } else if (call.parts.size() >= 5 && call.parts[4] == "ssh") {
    reply = InstanceKeys(world, call, instance);
  } else {
    return std::nullopt;
  }
  reply.instance = id;
  return reply;
}

}  // namespace gpuctl::cloudsim
