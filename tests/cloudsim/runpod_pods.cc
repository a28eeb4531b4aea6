// The routes /v2/pods: the rented machines.
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/ids.h"
#include "common/files/files.h"
#include "tests/cloudsim/registries.h"
#include "tests/cloudsim/runpod.h"

namespace gpuctl::cloudsim {
namespace {

// Prices in USD per GB and hour; a month has 720 hours.
constexpr double kDiskRunning = 0.10 / 720;
constexpr double kDiskStopped = 0.20 / 720;

const Json& MountsSchema() {
  static const auto* const schema = new Json(Json::parse(R"({
    "type": "object", "additionalProperties": false, "properties": {
      "persistent": {"type": "object", "required": ["size", "path"], "additionalProperties": false,
        "properties": {"size": {"type": "integer", "minimum": 10}, "path": {"type": "string"}}},
      "network": {"type": "array", "maxItems": 1, "items": {"type": "object",
        "required": ["volumeId", "path"], "additionalProperties": false,
        "properties": {"volumeId": {"type": "string"}, "path": {"type": "string"}}}}}})"));
  return *schema;
}

// Returns the part of the schema that create and update share.
Json ContainerSchema() {
  Json schema = Json::parse(R"({
    "type": "object", "additionalProperties": false, "properties": {
      "args": {"type": "string"}, "disk": {"type": "integer", "minimum": 1},
      "env": {"type": "object", "additionalProperties": {"type": "string"}},
      "image": {"type": "string"}, "ports": {"type": "array", "items": {"type": "string"}},
      "registry": {"type": ["string", "null"]}, "name": {"type": "string", "minLength": 1},
      "globalNetworking": {"type": "boolean"}}})");
  schema["properties"]["mounts"] = MountsSchema();
  return schema;
}

Json CreateSchema(const Json& body) {
  Json schema = ContainerSchema();
  schema["required"] = {"name"};
  if (!body.is_object() || !body.contains("templateId")) schema["required"].push_back("image");
  Json& properties = schema["properties"];
  properties["cloud"] = {{"type", "string"}, {"enum", {"SECURE", "COMMUNITY"}}};
  properties["dataCenterIds"] = {{"type", "array"}, {"items", {{"type", "string"}}}};
  properties["startJupyter"] = properties["startSsh"] = {{"type", "boolean"}};
  properties["templateId"] = {{"type", "string"}, {"minLength", 1}};
  properties["gpu"] = Json::parse(R"({
    "type": "object", "required": ["id"], "additionalProperties": false, "properties": {
      "id": {"type": "string"}, "count": {"type": "integer", "minimum": 1},
      "minVcpuCountPerGpu": {"type": "integer", "minimum": 1},
      "minRamPerGpu": {"type": "integer", "minimum": 1},
      "minCudaVersion": {"type": "string", "pattern": "^\\d+\\.\\d+$"},
      "allowedCudaVersions": {"type": "array",
        "items": {"type": "string", "pattern": "^\\d+\\.\\d+$"}}}})");
  properties["cpu"] = Json::parse(R"({
    "type": "object", "required": ["id", "vcpuCount"], "additionalProperties": false,
    "properties": {"id": {"type": "string", "minLength": 1},
      "vcpuCount": {"type": "integer", "minimum": 2}}})");
  return schema;
}

Json UpdateSchema() {
  Json schema = ContainerSchema();
  schema["properties"]["locked"] = {{"type", "boolean"}};
  schema["properties"]["templateId"] = {{"type", "string"}};
  return schema;
}

const char* PodStatus(const Instance& pod) {
  switch (pod.phase) {
    case Phase::kBooting:
      return "PROVISIONING";
    case Phase::kRunning:
      return "RUNNING";
    case Phase::kStopped:
      return "EXITED";
    case Phase::kFailed:
      return "ERROR";
    case Phase::kEnding:
    case Phase::kEnded:
      return "TERMINATED";
  }
  return "ERROR";
}

Json ActionsOf(const Instance& pod) {
  switch (pod.phase) {
    case Phase::kBooting:
    case Phase::kRunning:
      return {"stop", "restart", "terminate"};
    case Phase::kStopped:
      return {"start", "terminate"};
    case Phase::kFailed:
      return {"terminate"};
    default:
      return Json::array();
  }
}

bool AsksForSshPort(const Instance& pod) {
  for (const Json& port : pod.request.value("ports", Json::array())) {
    if (port == "22/tcp") return true;
  }
  return false;
}

// Returns the entries of runtime.ports for the open TCP ports that the pod asked for. Only ssh has
// a listener; a program in the pod would make the others.
Json OpenPorts(const Instance& pod) {
  Json open = Json::array();
  int64_t next = 20'000 + pod.created_ms % 20'000;
  for (const Json& asked : pod.request.value("ports", Json::array())) {
    const std::vector<std::string> parts = absl::StrSplit(asked.get<std::string>(), '/');
    int64_t number = 0;
    if (!absl::SimpleAtoi(parts[0], &number) || parts.back() != "tcp") continue;
    open.push_back({{"ip", pod.node->host()},
                    {"private", number},
                    {"public", number == 22 ? pod.node->port() : ++next},
                    {"type", "tcp"}});
  }
  return open;
}

}  // namespace

Json RunpodPodJson(World& world, const Instance& pod) {
  const Json& request = pod.request;
  const bool reachable = pod.reachable() && AsksForSshPort(pod);
  const std::string proxy_user = absl::StrCat(pod.id, "-", StringAt(pod.extra, "host_id"));
  Json direct = nullptr;
  Json runtime = nullptr;
  if (pod.phase == Phase::kRunning && !pod.trouble.no_endpoint) {
    runtime = {{"uptime", (world.Now() - pod.started_ms) / 1000},
               {"gpus", Json::array()},
               {"cpu", {{"util", 0}}},
               {"memory", {{"util", 0}}},
               {"ports", Json::array({{{"ip", "100.65.14.155"},
                                       {"private", 19123},
                                       {"public", 60821},
                                       {"type", "http"}}})}};
    for (int i = 0; i < pod.gpu_count; ++i) {
      runtime["gpus"].push_back({{"memoryUtil", 0}, {"util", 0}});
    }
  }
  if (reachable) {
    const int port = pod.node->port();
    direct = {{"host", pod.node->host()},
              {"port", port},
              {"username", "root"},
              {"command", absl::StrCat("ssh root@", pod.node->host(), " -p ", port)}};
  }
  if (pod.reachable()) {
    for (const Json& port : OpenPorts(pod)) runtime["ports"].push_back(port);
  }
  Json json = {{"id", pod.id},
               {"name", pod.label},
               {"status", PodStatus(pod)},
               {"actions", ActionsOf(pod)},
               {"image", StringAt(request, "image")},
               {"args", StringAt(request, "args")},
               {"disk", IntegerAt(request, "disk", 20)},
               {"mounts", request.value("mounts", Json::object())},
               {"ports", request.value("ports", Json::array())},
               {"env", request.value("env", Json::object())},
               {"registry", request.value("registry", Json())},
               {"cloud", StringAt(pod.extra, "cloud")},
               {"dataCenterId", pod.region},
               {"cudaVersion", pod.extra.value("cuda", Json())},
               {"ssh",
                {{"direct", direct},
                 {"proxy",
                  {{"host", "ssh.runpod.io"},
                   {"port", 22},
                   {"username", proxy_user},
                   {"command", absl::StrCat("ssh ", proxy_user, "@ssh.runpod.io")}}}}},
               {"template", request.value("templateId", Json())},
               {"cost", pod.usd_per_hour},
               {"locked", BoolAt(request, "locked")},
               {"globalNetworking", {{"enabled", BoolAt(request, "globalNetworking")}}},
               {"runtime", runtime},
               {"createdAt", Rfc3339(pod.created_ms)},
               {"startedAt", pod.started_ms > 0 ? Json(Rfc3339(pod.started_ms)) : Json()}};
  if (pod.gpu_count > 0) {
    json["gpu"] = {{"id", pod.product}, {"count", pod.gpu_count}};
    if (const RunpodGpu* gpu = RunpodStockOf(world).Find(pod.product)) {
      json["gpu"]["vcpuCount"] = kRunpodVcpusPerGpu * pod.gpu_count;
      json["gpu"]["memory"] = RunpodRamPerGpu(*gpu) * pod.gpu_count;
    }
  }
  if (request.contains("cpu")) {
    json["cpu"] = request["cpu"];
    json["cpu"]["memory"] = 4 * IntegerAt(request["cpu"], "vcpuCount", 2);
  }
  return json;
}

namespace {

// Returns the script of the command `args`: a line for a shell, or {"cmd": [], "entrypoint": []},
// which a few clients use.
std::string CommandOf(const std::string& args) {
  if (args.empty()) return "exec /start.sh";
  const Json json = Json::parse(args, nullptr, false);
  if (!json.is_object()) return absl::StrCat("exec ", args);
  std::string command = "exec";
  for (const char* part : {"entrypoint", "cmd"}) {
    for (const Json& word : json.value(part, Json::array())) {
      if (!word.is_string()) continue;
      absl::StrAppend(&command, " '",
                      absl::StrReplaceAll(word.get<std::string>(), {{"'", "'\\''"}}), "'");
    }
  }
  return command;
}

void Mount(World& world, Instance* pod) {
  const Json mounts = pod->request.value("mounts", Json::object());
  for (const Json& mount : mounts.value("network", Json::array())) {
    const StoredVolume* volume = world.FindVolume("runpod", StringAt(mount, "volumeId"));
    if (volume == nullptr) continue;
    pod->spec.mounts[StringAt(mount, "path")] = volume->dir;
    pod->spec.environment["RUNPOD_VOLUME_ID"] = volume->id;
  }
}

// Returns a data centre where the pod can be rented now; "" when there is none.
std::string FindPlace(World& world, const RunpodGpu& gpu, const Json& body, int count) {
  const auto& places =
      StringAt(body, "cloud", "SECURE") == "COMMUNITY" ? gpu.community : gpu.secure;
  std::vector<std::string> wanted;
  for (const Json& id : body.value("dataCenterIds", Json::array())) {
    wanted.push_back(id.get<std::string>());
  }
  if (body.contains("mounts") && body["mounts"].contains("network")) {
    for (const Json& mount : body["mounts"]["network"]) {
      const StoredVolume* volume = world.FindVolume("runpod", StringAt(mount, "volumeId"));
      const std::string place = volume != nullptr ? volume->place : "";
      if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), place) == wanted.end()) {
        return "";
      }
      wanted = {place};
    }
  }
  if (wanted.empty()) {
    for (const auto& place : places) wanted.push_back(place.first);
  }
  for (const std::string& place : wanted) {
    const auto found = places.find(place);
    if (found != places.end() && found->second >= count) return place;
  }
  return "";
}

// Returns the size of the pod's own mount, which a stop keeps, in GB; 0 when it has none.
int64_t PersistentGb(const Instance& pod) {
  return IntegerAt(pod.request.value("mounts", Json::object()).value("persistent", Json::object()),
                   "size");
}

void StartCharges(Instance* pod, int64_t now_ms) {
  pod->StartCharge("gpu", pod->usd_per_hour, 1000, now_ms);
  const auto gigabytes =
      static_cast<double>(IntegerAt(pod->request, "disk", 20) + PersistentGb(*pod));
  pod->StartCharge("disk", gigabytes * kDiskRunning, 1000, now_ms);
}

void SetEnvironment(World& world, Instance* pod, const Account& account) {
  auto& environment = pod->spec.environment;
  const Json asked = pod->request.value("env", Json::object());
  for (const auto& entry : asked.items()) {
    environment[entry.key()] = entry.value().get<std::string>();
  }
  if (BoolAt(pod->request, "startSsh") && environment.count("PUBLIC_KEY") == 0) {
    std::string keys;
    for (const Json& key : account.ssh_keys) {
      absl::StrAppend(&keys, keys.empty() ? "" : "\n", key.get<std::string>());
    }
    environment["PUBLIC_KEY"] = keys;
  }
  environment["RUNPOD_POD_ID"] = pod->id;
  environment["RUNPOD_API_KEY"] = pod->key;
  environment["RUNPOD_PUBLIC_IP"] = "127.0.0.1";
  environment["RUNPOD_DC_ID"] = pod->region;
  environment["RUNPOD_GPU_COUNT"] = absl::StrCat(pod->gpu_count);
  environment["RUNPOD_CPU_COUNT"] = "12";
  // Not a variable of the real service: the address of its simulated API.
  environment["GPUCTL_SIM_API"] = absl::StrCat(world.url, "/runpod");
}

}  // namespace

void RunpodKeepDisk(Instance* pod, int64_t now_ms) {
  pod->StopCharges("", now_ms);
  const auto kept = static_cast<double>(PersistentGb(*pod));
  if (kept > 0) pod->StartCharge("disk", kept * kDiskStopped, 1000, now_ms);
}

Reply RunpodMakePod(World& world, const Caller& caller, Json body, double bid_usd_per_gpu_hour) {
  Account& account = *caller.account;
  const std::string registry = StringAt(body, "registry");
  const auto login = RunpodLoginOf(world, account, registry);
  if (!registry.empty() && !login.has_value()) {
    return RunpodError(404, "registry credential not found");
  }
  auto pod = std::make_unique<Instance>();
  pod->service = "runpod";
  pod->id = absl::StrCat("p", RandomHex(6), "q");
  pod->account = account.name;
  pod->label = StringAt(body, "name");
  pod->extra = {{"cloud", StringAt(body, "cloud", "SECURE")}, {"host_id", RandomHex(4)}};
  double rate = 0;
  if (body.contains("gpu")) {
    RunpodGpu* gpu = RunpodStockOf(world).Find(StringAt(body["gpu"], "id"));
    const int count = static_cast<int>(IntegerAt(body["gpu"], "count", 0));
    if (gpu == nullptr) {
      return RunpodError(400, absl::StrCat("unknown GPU type ", StringAt(body["gpu"], "id")));
    }
    // The real service is known for this: without a count every create fails as if nothing were
    // left.
    const bool large = IntegerAt(body["gpu"], "minVcpuCountPerGpu") > kRunpodVcpusPerGpu ||
                       IntegerAt(body["gpu"], "minRamPerGpu") > RunpodRamPerGpu(*gpu);
    const std::string place = count > 0 && !large ? FindPlace(world, *gpu, body, count) : "";
    if (place.empty() || world.faults.Take("runpod", "create", "out_of_stock")) {
      return RunpodError(400, kRunpodNoCapacity);
    }
    const bool community = StringAt(body, "cloud") == "COMMUNITY";
    rate = (community ? gpu->community_usd : gpu->secure_usd) * count;
    if (bid_usd_per_gpu_hour > 0) {
      rate = bid_usd_per_gpu_hour * count;
      pod->spot = true;
    }
    pod->product = gpu->id;
    pod->gpu_name = gpu->id;
    pod->gpu_count = count;
    pod->region = place;
    pod->spec.gpu_name = gpu->driver_name.empty() ? gpu->id : gpu->driver_name;
    pod->spec.gpu_count = count;
    pod->spec.gpu_memory_mib = int64_t{gpu->memory_gb} * 1024;
    if (!gpu->cuda.empty()) pod->extra["cuda"] = gpu->cuda.back();
  } else {
    rate = 0.03 * static_cast<double>(IntegerAt(body["cpu"], "vcpuCount", 2));
    pod->product = StringAt(body["cpu"], "id");
    pod->region = "EU-RO-1";
  }
  if (world.Balance(account) < rate || world.faults.Take("runpod", "create", "no_funds")) {
    return RunpodError(402, "Your account balance is too low to rent a pod");
  }
  // A spend limit that is reached looks like an empty market.
  if (world.SpendRate(account) + rate > account.spend_limit_usd_per_hour) {
    return RunpodError(400, kRunpodNoCapacity);
  }
  if (pod->gpu_count > 0) {
    RunpodGpu* gpu = RunpodStockOf(world).Find(pod->product);
    auto& places = StringAt(pod->extra, "cloud") == "COMMUNITY" ? gpu->community : gpu->secure;
    places[pod->region] -= pod->gpu_count;
    pod->holds_stock = true;
  }
  pod->usd_per_hour = rate;
  pod->key = world.ServiceOf("runpod").NewKey();
  pod->request = std::move(body);
  SetEnvironment(world, pod.get(), account);
  Mount(world, pod.get());
  pod->spec.user = "root";
  pod->spec.container_command = true;
  pod->spec.script = CommandOf(StringAt(pod->request, "args"));
  Instance* made = world.Add(std::move(pod));
  PullImage(world, made, StringAt(made->request, "image"), login);
  StartCharges(made, made->created_ms);
  Reply reply = JsonReply(201, RunpodPodJson(world, *made));
  reply.instance = made->id;
  return reply;
}

namespace {

Reply CreatePod(World& world, const Call& call, const Caller& caller) {
  if (auto bad = RunpodBadBody(call, CreateSchema(call.json))) return *std::move(bad);
  Json body = call.json;
  if (body.contains("templateId")) {
    const Json& templates = RunpodTable(world, *caller.account, "templates");
    const std::string id = StringAt(body, "templateId");
    if (!templates.contains(id)) return RunpodError(404, "template not found");
    for (const char* name :
         {"image", "args", "disk", "env", "ports", "mounts", "registry", "startSsh"}) {
      if (!body.contains(name) && templates[id].contains(name)) body[name] = templates[id][name];
    }
  }
  if (body.contains("gpu") == body.contains("cpu")) {
    return RunpodError(400, "exactly one of gpu and cpu is required");
  }
  if (body.contains("gpu") && body["gpu"].contains("minCudaVersion") &&
      body["gpu"].contains("allowedCudaVersions")) {
    return RunpodError(400, "minCudaVersion and allowedCudaVersions exclude each other");
  }
  if (body.value("env", Json::object()).size() > 50) {
    return RunpodError(400, "too many environment variables");
  }
  const Json mounts = body.value("mounts", Json::object());
  if (mounts.contains("network") && mounts.contains("persistent")) {
    return RunpodError(400, "mounts.persistent and mounts.network exclude each other");
  }
  if (mounts.contains("network") && StringAt(body, "cloud") == "COMMUNITY") {
    return RunpodError(400, "network volumes are for the secure cloud only");
  }
  for (const Json& mount : mounts.value("network", Json::array())) {
    if (!RunpodTable(world, *caller.account, "volumes").contains(StringAt(mount, "volumeId"))) {
      return RunpodError(404, "network volume not found");
    }
  }
  return RunpodMakePod(world, caller, std::move(body), 0);
}

}  // namespace

Reply RunpodAct(World& world, const Caller& caller, Instance* pod, const std::string& action) {
  const Json actions = ActionsOf(*pod);
  if (std::find(actions.begin(), actions.end(), action) == actions.end()) {
    return RunpodError(409,
                       absl::StrCat("action ", action, " is not valid in state ", PodStatus(*pod)));
  }
  if (action == "terminate") {
    if (world.faults.Take("runpod", "terminate", "terminate_ignored")) {
      return RunpodError(409, "pod is busy");
    }
    world.End(pod, caller.name);
    Reply reply;
    reply.status = 204;
    reply.instance = pod->id;
    return reply;
  }
  if (action == "stop") {
    world.Stop(pod, caller.name, "", "");
  } else if (action == "restart") {
    if (pod->node != nullptr) pod->node->Stop();
    world.Start(pod, caller.name);
  } else {
    RunpodGpu* gpu = RunpodStockOf(world).Find(pod->product);
    if (gpu != nullptr) {
      auto& places = StringAt(pod->extra, "cloud") == "COMMUNITY" ? gpu->community : gpu->secure;
      if (places[pod->region] < pod->gpu_count) return RunpodError(400, kRunpodNoCapacity);
      places[pod->region] -= pod->gpu_count;
      pod->holds_stock = true;
    }
    pod->StopCharges("", world.Now());
    StartCharges(pod, world.Now());
    world.Start(pod, caller.name);
  }
  Reply reply = JsonReply(200, RunpodPodJson(world, *pod));
  reply.instance = pod->id;
  return reply;
}

namespace {

Reply Update(World& world, const Call& call, const Caller& caller, Instance* pod) {
  if (auto bad = RunpodBadBody(call, UpdateSchema())) return *std::move(bad);
  const std::string registry = StringAt(call.json, "registry");
  if (!registry.empty() && !RunpodLoginOf(world, *caller.account, registry).has_value()) {
    return RunpodError(404, "registry credential not found");
  }
  for (const auto& member : call.json.items()) pod->request[member.key()] = member.value();
  pod->label = StringAt(call.json, "name", pod->label);
  // A change of the container restarts it.
  const bool renamed_only = call.json.size() == (call.json.contains("name") ? 1u : 0u) +
                                                    (call.json.contains("locked") ? 1u : 0u);
  if (!renamed_only && pod->phase == Phase::kRunning) {
    if (pod->node != nullptr) pod->node->Stop();
    world.Start(pod, caller.name);
  }
  return JsonReply(200, RunpodPodJson(world, *pod));
}

// Returns one page of `pods`. No description has pages; clients of the second version read them so.
Json PodPage(const Call& call, const Json& pods, const Json& fault) {
  const size_t size = static_cast<size_t>(std::max<int64_t>(1, IntegerAt(fault, "size", 1)));
  uint32_t from = 0;
  (void)absl::SimpleAtoi(call.Query("cursor", "0"), &from);
  Json page = Json::array();
  for (size_t i = from; i < pods.size() && page.size() < size; ++i) page.push_back(pods[i]);
  const size_t end = from + page.size();
  const bool more = end < pods.size();
  return {{"pods", page},
          {"pagination",
           {{"hasNextPage", more}, {"nextCursor", more ? Json(absl::StrCat(end)) : Json()}}}};
}

// Adds what the pod's host does before the container starts.
void AddHostLog(World& world, const Instance& pod, std::string* body) {
  const std::string at = Rfc3339(world.Now());
  const auto add = [&](const std::string& line) {
    const Json data = {{"source", "system"}, {"line", line}, {"ts", at}};
    absl::StrAppend(body, "id: ", at, "\ndata: ", data.dump(), "\n\n");
  };
  add(absl::StrCat("create container ", StringAt(pod.request, "image")));
  if (!pod.trouble.image_error.empty()) add(absl::StrCat("error: ", pod.trouble.image_error));
  if (pod.started_ms > 0) add("start container");
}

Reply Logs(World& world, const Call& call, const Instance& pod) {
  Reply reply;
  reply.type = "text/event-stream";
  reply.headers.emplace_back("Cache-Control", "no-cache");
  reply.stream = true;
  if (call.Query("source") == "system") {
    AddHostLog(world, pod, &reply.body);
    return reply;
  }
  if (pod.node == nullptr) return reply;
  const std::string at = Rfc3339(world.Now());
  const std::string log = ReadFileToString(pod.node->log_path()).value_or("");
  for (const absl::string_view line : absl::StrSplit(log, '\n', absl::SkipEmpty())) {
    const Json data = {{"source", "container"}, {"line", std::string(line)}, {"timestamp", at}};
    absl::StrAppend(&reply.body, "id: ", at, "\nevent: log\ndata: ",
                    data.dump(-1, ' ', false, Json::error_handler_t::replace), "\n\n");
  }
  return reply;
}

}  // namespace

Instance* RunpodPod(World& world, const Caller& caller, const std::string& id) {
  Instance* pod = world.Find("runpod", id);
  return pod != nullptr && pod->account == caller.account->name ? pod : nullptr;
}

std::optional<Reply> RunpodPods(World& world, const Call& call, const Caller& caller) {
  if (call.Is("POST", "/v2/pods")) return CreatePod(world, call, caller);
  if (call.Is("GET", "/v2/pods")) {
    Json pods = Json::array();
    for (const Instance* pod : world.Listed("runpod", caller.account->name)) {
      pods.push_back(RunpodPodJson(world, *pod));
    }
    const auto paged = world.faults.Take("runpod", "list", "pages");
    return JsonReply(200, paged.has_value() ? PodPage(call, pods, *paged) : Json{{"pods", pods}});
  }
  if (call.parts.size() < 3 || call.parts[1] != "pods") return std::nullopt;
  Instance* pod = RunpodPod(world, caller, call.parts[2]);
  if (pod == nullptr || (!pod->alive() && pod->trouble.ended_lag <= 0)) {
    return RunpodError(404, "pod not found");
  }
  Reply reply;
  if (call.Is("GET", "/v2/pods/{}")) {
    if (!pod->alive()) --pod->trouble.ended_lag;
    reply = JsonReply(200, RunpodPodJson(world, *pod));
  } else if (call.Is("DELETE", "/v2/pods/{}")) {
    reply = RunpodAct(world, caller, pod, "terminate");
  } else if (call.Is("PATCH", "/v2/pods/{}")) {
    reply = Update(world, call, caller, pod);
  } else if (call.Is("GET", "/v2/pods/{}/logs")) {
    reply = Logs(world, call, *pod);
  } else if (call.Is("POST", "/v2/pods/{}/action")) {
    const Json schema = Json::parse(R"({"type": "object", "additionalProperties": false,
      "required": ["action"], "properties": {"action": {"type": "string",
        "enum": ["start", "stop", "restart", "terminate"]}}})");
    if (auto bad = RunpodBadBody(call, schema)) return bad;
    reply = RunpodAct(world, caller, pod, StringAt(call.json, "action"));
  } else {
    return std::nullopt;
  }
  reply.instance = pod->id;
  return reply;
}

}  // namespace gpuctl::cloudsim
