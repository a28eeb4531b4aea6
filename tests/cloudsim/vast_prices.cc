// The routes for prices that hosts raise. A rise is announced, and the client accepts or refuses
// it; it takes effect when the contract ends. A contract that was not extended ends with its
// instance stopped: Vast says that an expired instance cannot start and pays for its storage. When
// a running one stops is an assumption: at once.
#include "absl/strings/str_cat.h"
#include "tests/cloudsim/vast.h"

namespace gpuctl::cloudsim {
namespace {

constexpr char kRise[] = "rise";
constexpr int64_t kExtensionMs = 2'500'000'000;  // of a contract whose new price was accepted

Json* WaitingRise(Instance& instance) {
  if (!instance.alive() || !instance.extra.contains(kRise)) return nullptr;
  Json& rise = instance.extra[kRise];
  return StringAt(rise, "answer").empty() ? &rise : nullptr;
}

// Returns the raised price; null when it does not change.
Json Raised(double old_price, double factor) {
  return factor == 1 ? Json() : Json(old_price * factor);
}

Json RowOf(const Instance& instance, const Json& rise) {
  const Json& offer = instance.extra["offer"];
  const double gpu = instance.usd_per_hour / 3600;
  const double disk = NumberAt(instance.extra, "disk_usd") / 3600;
  const double traffic = NumberAt(rise, "traffic_factor", 1);
  return {{"pending_price_increase_id", rise["id"]},
          {"contract_id", std::atoll(instance.id.c_str())},
          {"host_id", offer["host_id"]},
          {"new_gpu_costpersec", Raised(gpu, NumberAt(rise, "factor", 1))},
          {"old_gpu_costpersec", gpu},
          {"new_disk_ram_costpersec", Raised(disk, NumberAt(rise, "disk_factor", 1))},
          {"old_disk_ram_costpersec", disk},
          {"new_bwu_cost", Raised(NumberAt(offer, "inet_up_cost"), traffic)},
          {"old_bwu_cost", offer["inet_up_cost"]},
          {"new_bwd_cost", Raised(NumberAt(offer, "inet_down_cost"), traffic)},
          {"old_bwd_cost", offer["inet_down_cost"]},
          {"new_platform_fee", nullptr},
          {"old_platform_fee", nullptr},
          {"contract_end_date", NumberAt(rise, "end_ms") / 1000},
          {"ask_end_date", (NumberAt(rise, "end_ms") + kExtensionMs) / 1000},
          {"created_at", NumberAt(rise, "created_ms") / 1000}};
}

Reply Answer(World& world, const Call& call, const Caller& caller, const std::string& answer) {
  const std::vector<std::string> wrong = CheckJson(call.json, Json::parse(R"({"type": "object",
    "required": ["pending_price_increase_id"], "additionalProperties": false,
    "properties": {"pending_price_increase_id": {"type": "integer"}}})"));
  if (call.json.is_discarded() || !wrong.empty()) {
    return VastError(400, "invalid_args", wrong.empty() ? "Invalid json body" : wrong[0]);
  }
  for (const auto& instance : world.instances) {
    if (instance->service != "vast" || instance->account != caller.account->name) continue;
    Json* rise = WaitingRise(*instance);
    if (rise == nullptr || (*rise)["id"] != call.json["pending_price_increase_id"]) continue;
    (*rise)["answer"] = answer;
    Reply reply = JsonReply(200, {{"success", true},
                                  {"pending_price_increase_id", (*rise)["id"]},
                                  {"contract_id", std::atoll(instance->id.c_str())}});
    reply.instance = instance->id;
    return reply;
  }
  return VastError(404, "no_pending_price_increase", "no such price increase is pending");
}

}  // namespace

void AnnounceVastPrice(World& world, Instance* instance, const Json& request) {
  const int64_t now = world.Now();
  instance->extra[kRise] = {
      {"id", world.NextNumber()},
      {"factor", NumberAt(request, "factor", 2)},
      {"disk_factor", NumberAt(request, "disk_factor", 1)},
      {"traffic_factor", NumberAt(request, "traffic_factor", 1)},
      {"created_ms", now},
      {"end_ms", now + static_cast<int64_t>(NumberAt(request, "in_s", 86'400) * 1000)},
      {"answer", ""}};
  instance->extra["end_ms"] = instance->extra[kRise]["end_ms"];
}

void VastContractDue(World& world, Instance* instance, int64_t now_ms) {
  if (BoolAt(instance->extra, "expired")) return;
  const int64_t end_ms = IntegerAt(instance->extra, "end_ms");
  if (end_ms == 0 || now_ms < end_ms) return;
  const Json rise = instance->extra.value(kRise, Json::object());
  instance->extra.erase(kRise);
  if (StringAt(rise, "answer") != "accepted") {
    instance->extra["expired"] = true;
    if (instance->phase == Phase::kStopped) return;
    instance->StopCharges("gpu", end_ms);
    world.Stop(instance, "simulator: contract ended", "contract ended", "disk");
    return;
  }
  instance->extra["end_ms"] = end_ms + kExtensionMs;
  instance->usd_per_hour *= NumberAt(rise, "factor", 1);
  const double disk = NumberAt(instance->extra, "disk_usd") * NumberAt(rise, "disk_factor", 1);
  instance->extra["disk_usd"] = disk;
  for (const char* kind : {"gpu", "disk"}) {
    bool billed = false;
    for (const Charge& charge : instance->charges) {
      billed = billed || (charge.kind == kind && charge.to_ms == 0);
    }
    if (!billed) continue;
    instance->StopCharges(kind, end_ms);
    const bool gpu = std::string(kind) == "gpu";
    instance->StartCharge(kind, gpu ? instance->usd_per_hour : disk, 1000, end_ms);
  }
}

std::optional<Reply> VastPrices(World& world, const Call& call, const Caller& caller) {
  if (call.Is("PUT", "/api/v0/instances/accept-price-increase")) {
    return Answer(world, call, caller, "accepted");
  }
  if (call.Is("PUT", "/api/v0/instances/reject-price-increase")) {
    return Answer(world, call, caller, "rejected");
  }
  if (!call.Is("GET", "/api/v0/instances/pending-price-increases")) return std::nullopt;
  Json rows = Json::array();
  for (const auto& instance : world.instances) {
    if (instance->service != "vast" || instance->account != caller.account->name) continue;
    const Json* rise = WaitingRise(*instance);
    if (rise != nullptr) rows.push_back(RowOf(*instance, *rise));
  }
  return JsonReply(200, {{"success", true},
                         {"count", rows.size()},
                         {"truncated", false},
                         {"pending_price_increases", rows}});
}

}  // namespace gpuctl::cloudsim
