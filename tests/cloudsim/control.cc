// The routes /_sim/…, by which tests read and change the simulator.
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "tests/cloudsim/registries.h"
#include "tests/cloudsim/service.h"

namespace gpuctl::cloudsim {
namespace {

Reply Refused(const std::string& why) { return JsonReply(400, {{"error", why}}); }

Reply SetClock(World& world, const Json& request) {
  if (request.contains("speed")) world.clock.SetSpeed(NumberAt(request, "speed", 1));
  world.clock.Advance(NumberAt(request, "advance_s"));
  world.Tick();
  world.changed.NotifyAll();
  return JsonReply(200, {{"now_ms", world.Now()}, {"speed", world.clock.speed()}});
}

Reply AddFault(World& world, const Json& request) {
  int id = 0;
  const std::string wrong = world.faults.Add(request, &id);
  if (!wrong.empty()) return Refused(wrong);
  return JsonReply(200, {{"fault", id}});
}

Reply AddHold(World& world, const Json& request) {
  Hold hold;
  hold.id = static_cast<int>(world.holds.size()) + 1;
  hold.service = StringAt(request, "service", "*");
  hold.route = StringAt(request, "route", "*");
  hold.phase = StringAt(request, "phase", "before");
  hold.nth = static_cast<int>(IntegerAt(request, "nth_request", 1));
  if (hold.phase != "before" && hold.phase != "after") return Refused("phase is before or after");
  world.holds.push_back(hold);
  return JsonReply(200, {{"hold", hold.id}});
}

Reply Release(World& world, const Json& request) {
  const int64_t id = IntegerAt(request, "hold", 0);
  for (Hold& hold : world.holds) {
    if (id != 0 && hold.id != id) continue;
    hold.released = true;
    hold.drop = BoolAt(request, "drop");
  }
  world.changed.NotifyAll();
  return JsonReply(200, {{"released", true}});
}

// Charges {"usd"}, or {"sent_gb", "received_gb"}, which the machine's own counters then show too
// and which Vast's offers have prices for.
absl::Status MoveTraffic(Instance& instance, const Json& request) {
  constexpr double kGb = 1e9;
  const double sent_gb = NumberAt(request, "sent_gb");
  const double received_gb = NumberAt(request, "received_gb");
  instance.traffic_usd += NumberAt(request, "usd");
  if (sent_gb == 0 && received_gb == 0) return absl::OkStatus();
  const Json offer = instance.extra.value("offer", Json::object());
  instance.traffic_usd +=
      sent_gb * NumberAt(offer, "inet_up_cost") + received_gb * NumberAt(offer, "inet_down_cost");
  instance.sent_bytes += static_cast<int64_t>(sent_gb * kGb);
  instance.received_bytes += static_cast<int64_t>(received_gb * kGb);
  if (instance.node == nullptr) return absl::OkStatus();
  return instance.node->SetTraffic(instance.sent_bytes, instance.received_bytes);
}

// Handles {"service", "id", "do": preempt | fail | stop | offline | end | price | announce_price |
// …}.
Reply ChangeInstance(World& world, const Json& request) {
  Instance* instance = world.FindAny(StringAt(request, "service"), StringAt(request, "id"));
  if (instance == nullptr) return JsonReply(404, {{"error", "no such instance"}});
  const std::string what = StringAt(request, "do");
  const int64_t now = world.Now();
  if (what == "preempt") {
    world.Preempt(instance, now);
  } else if (what == "fail") {
    instance->message = StringAt(request, "message", "failed");
    instance->Enter(Phase::kFailed, now, "simulator: failed");
    if (instance->node != nullptr) instance->node->Stop();
  } else if (what == "stop") {
    world.Stop(instance, "simulator", "stopped", "disk");
  } else if (what == "offline" || what == "online") {
    instance->trouble.offline = what == "offline";
  } else if (what == "hide" || what == "show") {
    instance->trouble.hidden = what == "hide";
  } else if (what == "end") {
    world.End(instance, "simulator");
  } else if (what == "price") {
    instance->trouble.price_factor = NumberAt(request, "factor", 2);
    instance->trouble.price_after_s = static_cast<double>(now - instance->created_ms) / 1000;
  } else if (what == "open_ssh") {
    instance->trouble.ssh_never = false;
    instance->ssh_at_ms = now;
  } else if (what == "gpu" && instance->node != nullptr) {
    (void)instance->node->SetGpu(StringAt(request, "gpu"),
                                 static_cast<int>(IntegerAt(request, "count", 1)),
                                 IntegerAt(request, "memory_mib", 8192));
  } else if (what == "traffic") {
    const absl::Status moved = MoveTraffic(*instance, request);
    if (!moved.ok()) return Refused(std::string(moved.message()));
  } else if (!world.ServiceOf(instance->service).Change(world, instance, what, request)) {
    return Refused(
        "do: preempt, fail, stop, offline, online, hide, show, end, price, announce_price, "
        "contract, open_ssh, gpu or traffic");
  }
  world.Tick();
  return JsonReply(200, {{"phase", PhaseName(instance->phase)}});
}

Reply SetAccount(World& world, const Json& request) {
  const std::string service = StringAt(request, "service");
  const std::string key = StringAt(request, "key");
  if (world.FindService(service) == nullptr) return Refused(absl::StrCat("no service ", service));
  Account* account = world.FindAccount(service, key);
  if (account == nullptr) account = world.AddAccount(service, key, 100);
  if (request.contains("balance_usd")) {
    // The value is the balance from now on, whatever was spent before.
    account->balance_usd += NumberAt(request, "balance_usd") - world.Balance(*account);
  }
  account->spend_limit_usd_per_hour =
      NumberAt(request, "spend_limit_usd_per_hour", account->spend_limit_usd_per_hour);
  account->quota = static_cast<int>(IntegerAt(request, "quota", account->quota));
  account->inactive = BoolAt(request, "inactive", account->inactive);
  world.Tick();
  return JsonReply(200, {{"balance_usd", world.Balance(*account)}});
}

Reply Requests(World& world, const Call& call) {
  int64_t after = 0;
  (void)absl::SimpleAtoi(call.Query("after", "0"), &after);
  Json all = Json::array();
  for (const LoggedRequest& request : world.requests) {
    if (request.number <= after) continue;
    if (!call.Query("service").empty() && call.Query("service") != request.service) continue;
    all.push_back(RequestJson(request));
  }
  return JsonReply(200, {{"requests", all}, {"count", world.requests.size()}});
}

}  // namespace

Reply HandleControl(World& world, const Call& call) {
  if (call.method != "GET" && call.method != "DELETE" && !call.json.is_object()) {
    return Refused("the body is no JSON object");
  }
  if (call.Is("GET", "/_sim/books")) return JsonReply(200, world.Books());
  if (call.Is("GET", "/_sim/state")) return JsonReply(200, world.State());
  if (call.Is("GET", "/_sim/requests")) return Requests(world, call);
  if (call.Is("GET", "/_sim/clock")) {
    return JsonReply(200, {{"now_ms", world.Now()}, {"speed", world.clock.speed()}});
  }
  if (call.Is("POST", "/_sim/clock")) return SetClock(world, call.json);
  if (call.Is("GET", "/_sim/faults")) return JsonReply(200, {{"faults", world.faults.ToJson()}});
  if (call.Is("POST", "/_sim/faults")) return AddFault(world, call.json);
  if (call.Is("DELETE", "/_sim/faults")) {
    world.faults.Clear();
    world.changed.NotifyAll();
    return JsonReply(200, {{"faults", Json::array()}});
  }
  if (call.Is("POST", "/_sim/hold")) return AddHold(world, call.json);
  if (call.Is("POST", "/_sim/release")) return Release(world, call.json);
  if (call.Is("POST", "/_sim/instance")) return ChangeInstance(world, call.json);
  if (call.Is("POST", "/_sim/account")) return SetAccount(world, call.json);
  if (call.Is("POST", "/_sim/registry")) {
    const std::string wrong = AddRegistryUser(world, call.json);
    return wrong.empty() ? JsonReply(200, {{"added", true}}) : Refused(wrong);
  }
  struct {
    const char* path;
    std::string (Service::*change)(const Json&);
  } constexpr kChanges[] = {{"/_sim/stock", &Service::SetStock},
                            {"/_sim/offer", &Service::AddStock},
                            {"/_sim/price", &Service::SetPrice}};
  for (const auto& [path, change] : kChanges) {
    if (!call.Is("POST", path)) continue;
    const std::string name = StringAt(call.json, "service");
    Service* service = world.FindService(name);
    if (service == nullptr) return Refused(absl::StrCat("no service ", name));
    const std::string wrong = (service->*change)(call.json);
    return wrong.empty() ? JsonReply(200, world.Stock()) : Refused(wrong);
  }
  // The files that replies point to.
  if (call.Is("GET", "/_sim/files/{}")) {
    const std::string& name = call.parts[2];
    const std::string path = JoinPath(world.options.dir, absl::StrCat("files/", name));
    if (name.find('.') != std::string::npos || !PathExists(path)) {
      return JsonReply(404, {{"error", "no such file"}});
    }
    Reply reply;
    reply.type = "text/plain";
    reply.body = ReadFileToString(path).value_or("");
    return reply;
  }
  return JsonReply(404, {{"error", "no such route"}});
}

}  // namespace gpuctl::cloudsim
