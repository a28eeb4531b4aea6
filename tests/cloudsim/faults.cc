#include "tests/cloudsim/faults.h"

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace gpuctl::cloudsim {
namespace {

// Faults of the connection or reply. The value is true when the request is executed, unless the
// fault says otherwise.
const std::map<std::string, bool>& WireNames() {
  static const auto* const names = new std::map<std::string, bool>{
      {"400", false},      {"401", false},        {"403", false},        {"404", false},
      {"409", false},      {"410", false},        {"429", false},        {"500", false},
      {"502", false},      {"503", false},        {"504", false},        {"reset", false},
      {"hang", false},     {"timeout", true},     {"torn", true},        {"empty", true},
      {"html", true},      {"wrong_types", true}, {"wrong_shape", true}, {"error_200", true},
      {"500_after", true}, {"502_after", true},   {"504_after", true},   {"reset_after", true}};
  return *names;
}

// Faults that the services themselves simulate.
const std::set<std::string>& OtherNames() {
  static const auto* const names = new std::set<std::string>{"list_lag",
                                                             "ended_lag",
                                                             "no_endpoint",
                                                             "ssh_never",
                                                             "ssh_late",
                                                             "wrong_gpu",
                                                             "boot_fails",
                                                             "boot_never",
                                                             "image_missing",
                                                             "image_private",
                                                             "volume_missing",
                                                             "preempt",
                                                             "price_rise",
                                                             "no_funds",
                                                             "out_of_stock",
                                                             "offer_gone",
                                                             "quota",
                                                             "refused_but_made",
                                                             "terminate_ignored",
                                                             "cuda_broken",
                                                             "key_not_applied",
                                                             "host_key_not_applied",
                                                             "no_direct_ports",
                                                             "gateway_answers_after_end",
                                                             "pages",
                                                             "end_ignored"};
  return *names;
}

}  // namespace

std::optional<WireFault> AsWireFault(const Fault& fault) {
  const auto found = WireNames().find(fault.name);
  if (found == WireNames().end()) return std::nullopt;
  WireFault wire;
  wire.executed = BoolAt(fault.arguments, "executed", found->second);
  wire.name = std::string(absl::StripSuffix(fault.name, "_after"));
  if (wire.name == "timeout") wire.name = "hang";
  return wire;
}

std::string Faults::Add(const Json& request, int* id) {
  Fault fault;
  fault.service = StringAt(request, "service", "*");
  fault.route = StringAt(request, "route", "*");
  fault.name = StringAt(request, "fault");
  if (WireNames().count(fault.name) == 0 && OtherNames().count(fault.name) == 0) {
    return absl::StrCat("no fault is called ", fault.name);
  }
  fault.times = static_cast<int>(IntegerAt(request, "times", 1));
  fault.after = static_cast<int>(IntegerAt(request, "after", 0));
  fault.arguments = request;
  *id = fault.id = ++last_id_;
  faults_.push_back(std::move(fault));
  return "";
}

Json Faults::ToJson() const {
  Json all = Json::array();
  for (const Fault& fault : faults_) {
    all.push_back({{"id", fault.id},
                   {"service", fault.service},
                   {"route", fault.route},
                   {"fault", fault.name},
                   {"times", fault.times},
                   {"after", fault.after},
                   {"hits", fault.hits}});
  }
  return all;
}

bool Faults::Due(Fault* fault, const std::string& service, const std::string& route) {
  if (fault->service != "*" && fault->service != service) return false;
  if (fault->route != "*" && fault->route != route) return false;
  if (fault->times == 0) return false;
  if (fault->after > 0) {
    --fault->after;
    return false;
  }
  if (fault->times > 0) --fault->times;
  ++fault->hits;
  return true;
}

std::optional<Fault> Faults::TakeWire(const std::string& service, const std::string& route) {
  for (Fault& fault : faults_) {
    if (AsWireFault(fault).has_value() && Due(&fault, service, route)) return fault;
  }
  return std::nullopt;
}

std::optional<Json> Faults::Take(const std::string& service, const std::string& route,
                                 const std::string& name) {
  for (Fault& fault : faults_) {
    if (fault.name == name && Due(&fault, service, route)) return fault.arguments;
  }
  return std::nullopt;
}

Trouble Faults::TakeTrouble(const std::string& service) {
  Trouble trouble;
  auto take = [&](const char* name) { return Take(service, "create", name); };
  trouble.no_endpoint = take("no_endpoint").has_value();
  trouble.ssh_never = take("ssh_never").has_value();
  trouble.boot_fails = take("boot_fails").has_value();
  trouble.boot_never = take("boot_never").has_value();
  if (take("image_missing").has_value()) {
    trouble.boot_never = true;
    trouble.image_missing = true;
  }
  trouble.no_direct_ports = take("no_direct_ports").has_value();
  trouble.volume_missing = take("volume_missing").has_value();
  trouble.mute_end = take("gateway_answers_after_end").has_value();
  if (const auto broken = take("cuda_broken")) {
    trouble.cuda_error = static_cast<int>(IntegerAt(*broken, "error", 802));
  }
  if (const auto late = take("ssh_late")) trouble.ssh_late_s = NumberAt(*late, "seconds", 60);
  if (const auto wrong = take("wrong_gpu")) {
    trouble.wrong_gpu = StringAt(*wrong, "gpu", "NVIDIA GeForce GTX 1080");
    trouble.wrong_gpu_count = static_cast<int>(IntegerAt(*wrong, "count", -1));
    trouble.wrong_gpu_memory_mib = IntegerAt(*wrong, "memory_mib");
  }
  if (const auto lag = take("list_lag")) {
    trouble.list_lag_s = NumberAt(*lag, "seconds");
    trouble.list_lag = static_cast<int>(IntegerAt(*lag, "lists", trouble.list_lag_s > 0 ? 0 : 1));
  }
  if (const auto preempt = take("preempt")) {
    trouble.preempt_after_s = NumberAt(*preempt, "after_s", 0);
  }
  if (const auto rise = take("price_rise")) {
    trouble.price_factor = NumberAt(*rise, "factor", 2);
    trouble.price_after_s = NumberAt(*rise, "after_s", 0);
  }
  return trouble;
}

Json RequestJson(const LoggedRequest& request) {
  return {{"number", request.number}, {"service", request.service},
          {"route", request.route},   {"method", request.method},
          {"path", request.path},     {"status", request.status},
          {"at", request.at},         {"account", request.account},
          {"fault", request.fault},   {"instance", request.instance}};
}

Json WrongTypes(const Json& json) {
  if (json.is_object()) {
    Json changed = Json::object();
    for (const auto& member : json.items()) changed[member.key()] = WrongTypes(member.value());
    return changed;
  }
  if (json.is_array()) {
    Json changed = Json::array();
    for (const Json& element : json) changed.push_back(WrongTypes(element));
    return changed;
  }
  if (json.is_string()) return 7;
  if (json.is_number()) return "seven";
  if (json.is_boolean()) return "maybe";
  return Json::array();
}

}  // namespace gpuctl::cloudsim
