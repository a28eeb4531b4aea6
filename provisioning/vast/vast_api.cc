#include "provisioning/vast/vast_api.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "provisioning/market/rent_options.h"
#include "provisioning/rest/json_reader.h"

namespace gpuctl {
namespace {

constexpr int kMaxOffers = 64;
// A machine with less takes a quarter of an hour and more for its image alone.
constexpr double kMinDownloadMbps = 100;

void ReadMachine(JsonReader& json, VastMachine& machine) {
  json.Read("machine_id", machine.machine_id);
  json.Read("gpu_name", machine.gpu_name);
  json.Read("num_gpus", machine.num_gpus);
  json.Read("gpu_ram", machine.gpu_ram_mib);
  json.Read("dph_total", machine.dph_total);
  json.Read("dph_base", machine.dph_base);
  json.Read("geolocation", machine.geolocation);
}

void ReadOffer(JsonReader& json, VastOffer& offer) {
  json.Require("id", offer.id);
  ReadMachine(json, offer);
  json.Read("min_bid", offer.min_bid);
  json.Read("inet_up_cost", offer.inet_up_usd_per_gb);
  json.Read("inet_down_cost", offer.inet_down_usd_per_gb);
  json.Read("reliability2", offer.reliability);
  if (!offer.reliability.has_value()) json.Read("reliability", offer.reliability);
  json.Read("direct_port_count", offer.direct_port_count);
  json.Read("cuda_max_good", offer.cuda_max_good);
  json.Read("compute_cap", offer.compute_cap);
  json.Read("duration", offer.duration_s);
  json.Read("disk_space", offer.disk_space_gb);
  json.Read("rentable", offer.rentable);
  json.Read("verification", offer.verification);
  json.Read("gpu_arch", offer.gpu_arch);
  json.Read("cpu_arch", offer.cpu_arch);
}

// Reads "22/tcp": [{"HostIp": "0.0.0.0", "HostPort": "20000"}]. The description once had a list of
// numbers, which has no useful meaning.
void ReadSshHostPort(JsonReader& json, int64_t& port) {
  const nlohmann::json* ports = json.Find("ports");
  if (ports == nullptr || !ports->is_object()) return;
  const nlohmann::json* ssh = JsonReader(*ports, "ports").Find("22/tcp");
  if (ssh == nullptr || !ssh->is_array() || ssh->empty()) return;
  JsonReader mapping(ssh->front(), "the mapping of 22/tcp");
  mapping.ReadLooseInt("HostPort", port);
  if (port < 0 || port > 65535) mapping.Fail("HostPort", "is no port");
  json.Check(mapping.status());
}

// Reads the address at Vast's relay. For images with Jupyter it is one port higher, as in the
// service's own command line.
void ReadProxy(JsonReader& json, VastInstance& instance) {
  std::string kind;
  json.Read("ssh_host", instance.proxy_host);
  json.ReadLooseInt("ssh_port", instance.proxy_port);
  json.Read("image_runtype", kind);
  absl::StripAsciiWhitespace(&instance.proxy_host);
  if (instance.proxy_port > 0 && absl::StrContains(kind, "jupyter")) ++instance.proxy_port;
  if (!instance.proxy_host.empty() && !IsSafeHost(instance.proxy_host)) {
    json.Fail("ssh_host", "is no address");
  }
  if (instance.proxy_port < 0 || instance.proxy_port > 65535) json.Fail("ssh_port", "is no port");
}

void ReadPriceRise(JsonReader& json, VastPriceRise& rise) {
  const auto read_change = [&json](absl::string_view part, VastPriceChange& change) {
    json.Read(absl::StrCat("old_", part), change.before);
    json.Read(absl::StrCat("new_", part), change.after);
  };
  json.Require("pending_price_increase_id", rise.id);
  json.Require("contract_id", rise.contract_id);
  read_change("gpu_costpersec", rise.gpu);
  read_change("disk_ram_costpersec", rise.storage);
  read_change("bwu_cost", rise.upload);
  read_change("bwd_cost", rise.download);
  json.Read("contract_end_date", rise.contract_end_s);
}

nlohmann::json Operator(const char* name, const nlohmann::json& value) {
  return nlohmann::json::object({{name, value}});
}

}  // namespace

void ReadVastInstance(JsonReader& json, VastInstance& instance) {
  json.Require("id", instance.id);
  ReadMachine(json, instance);
  json.Read("label", instance.label);
  json.Read("actual_status", instance.actual_status);
  json.Read("cur_state", instance.cur_state);
  json.Read("next_state", instance.next_state);
  json.Read("intended_status", instance.intended_status);
  json.Read("status_msg", instance.status_msg);
  json.Read("public_ipaddr", instance.public_ip);
  absl::StripAsciiWhitespace(&instance.public_ip);
  if (!instance.public_ip.empty() && !IsSafeHost(instance.public_ip)) {
    json.Fail("public_ipaddr", "is no address");
  }
  json.Read("storage_total_cost", instance.storage_usd_per_hour);
  json.Read("inet_up_cost", instance.inet_up_usd_per_gb);
  json.Read("inet_down_cost", instance.inet_down_usd_per_gb);
  json.Read("start_date", instance.start_date_s);
  json.Read("end_date", instance.end_date_s);
  json.Read("is_bid", instance.is_bid);
  ReadSshHostPort(json, instance.ssh_host_port);
  ReadProxy(json, instance);
}

// Reads the charges of one contract. Those of a volume, and of what else there may be, have no
// instance.
void ReadVastCharge(JsonReader& json, VastCharge& row) {
  std::string source;
  json.Read("source", source);
  absl::string_view id = source;
  if (!absl::ConsumePrefix(&id, "instance-") || !absl::SimpleAtoi(id, &row.instance_id)) return;
  json.ReadEach("items", "charge", [&row](JsonReader& item) {
    std::string type;
    double amount = 0;
    item.Read("type", type);
    item.Read("amount", amount);
    if ((type == "bwu" || type == "bwd") && amount > 0) row.traffic_usd += amount;
  });
}

void ReadVastVolume(JsonReader& json, VastVolume& volume) {
  json.Require("id", volume.id);
  json.Require("machine_id", volume.machine_id);
  json.Read("label", volume.label);
  json.Read("disk_space", volume.disk_space_gb);
  json.Read("storage_total_cost", volume.usd_per_hour);
  json.Read("geolocation", volume.geolocation);
  if (json.Find("instances") == nullptr) return;
  const nlohmann::json* instances = json.RequireArray("instances");
  if (instances != nullptr) volume.instances = static_cast<int64_t>(instances->size());
}

void CheckVastSuccess(JsonReader& answer) {
  const nlohmann::json* success = answer.Find("success");
  if (success == nullptr || !success->is_boolean() || success->get<bool>()) return;
  answer.Check(absl::UnknownError("the answer says that it did not succeed"));
}

absl::StatusOr<std::vector<VastOffer>> ParseVastOffers(absl::string_view body) {
  return ParseRows<VastOffer>(body, "the list of offers", "offers", "offer", ReadOffer);
}

absl::StatusOr<std::optional<VastInstance>> ParseVastInstance(absl::string_view body) {
  using Found = std::optional<VastInstance>;
  return ParseAnswer<Found>(body, "the answer", [](JsonReader& answer, Found& found) {
    CheckVastSuccess(answer);
    // Null says that it is gone; a missing field says nothing.
    if (answer.IsNull("instances")) return;
    answer.RequireObject("instances", "instance",
                         [&](JsonReader& json) { ReadVastInstance(json, found.emplace()); });
  });
}

absl::StatusOr<VastCreated> ParseVastCreated(absl::string_view body) {
  return ParseAnswer<VastCreated>(body, "the answer", [](JsonReader& answer, VastCreated& created) {
    answer.Read("new_contract", created.new_contract);
    created.success = created.new_contract.has_value() && answer.Find("error") == nullptr;
    answer.Read("success", created.success);
  });
}

absl::StatusOr<std::vector<VastPriceRise>> ParseVastPriceRises(absl::string_view body) {
  using Rises = std::vector<VastPriceRise>;
  constexpr char kWhat[] = "the list of price increases";
  return ParseAnswer<Rises>(body, kWhat, [&](JsonReader& answer, Rises& rises) {
    CheckVastSuccess(answer);
    bool truncated = false;
    answer.Read("truncated", truncated);
    if (truncated) answer.Check(absl::UnknownError(absl::StrCat(kWhat, " is cut short")));
    answer.RequireRows("pending_price_increases", "price increase", ReadPriceRise, rises);
  });
}

absl::StatusOr<std::string> ParseVastAccountId(absl::string_view body) {
  return ParseAnswer<std::string>(body, "the user", [](JsonReader& user, std::string& id) {
    int64_t number = 0;
    user.Require("id", number);
    id = absl::StrCat(number);
  });
}

VastReply ParseVastReply(absl::string_view body) {
  return ParseWhatFits<VastReply>(body, [](JsonReader& answer, VastReply& reply) {
    answer.Read("success", reply.success);
    answer.Read("error", reply.error);
    answer.Read("msg", reply.message);
    if (reply.message.empty()) answer.Read("detail", reply.message);
  });
}

nlohmann::json VastSearchBody(const VastSearch& search) {
  nlohmann::json body = {{"verified", Operator("eq", true)},
                         {"rentable", Operator("eq", true)},
                         {"rented", Operator("eq", false)},
                         {"external", Operator("eq", false)},
                         {"num_gpus", Operator("eq", search.gpu_count)},
                         {"direct_port_count", Operator("gte", kVastMinDirectPorts)},
                         {"reliability", Operator("gte", 0.95)},
                         {"inet_down", Operator("gte", kMinDownloadMbps)},
                         {"disk_space", Operator("gte", search.disk_gb)},
                         {"allocated_storage", search.disk_gb},
                         {"limit", kMaxOffers}};
  body["order"].push_back(nlohmann::json::array({"dph_total", "asc"}));
  if (!search.gpu_names.empty()) body["gpu_name"] = Operator("in", search.gpu_names);
  if (search.min_gpu_ram_mib > 0) body["gpu_ram"]["gte"] = search.min_gpu_ram_mib;
  if (search.max_gpu_ram_mib > 0) body["gpu_ram"]["lte"] = search.max_gpu_ram_mib;
  if (search.min_compute_cap > 0) body["compute_cap"] = Operator("gte", search.min_compute_cap);
  if (search.min_duration_s > 0) body["duration"] = Operator("gte", search.min_duration_s);
  if (search.max_usd_per_hour) body["dph_total"] = Operator("lte", *search.max_usd_per_hour);
  if (!search.countries.empty()) body["geolocation"] = Operator("in", search.countries);
  if (search.machine_id) body["machine_id"] = Operator("eq", *search.machine_id);
  if (search.spot) body["type"] = "bid";
  return body;
}

nlohmann::json VastCreateBody(const VastCreate& create) {
  nlohmann::json body = {{"client_id", "me"},
                         {"image", create.image},
                         {"disk", create.disk_gb},
                         {"runtype", "ssh_direct"},
                         {"label", create.label},
                         {"target_state", "running"},
                         // Without this, a machine that is taken already leaves a stopped instance
                         // that bills.
                         {"cancel_unavail", true}};
  // It is an object, although the description says otherwise.
  if (!create.env.empty()) body["env"] = create.env;
  if (!create.onstart.empty()) body["onstart"] = create.onstart;
  if (!create.image_login.empty()) body["image_login"] = create.image_login;
  if (create.bid_usd_per_hour) body["price"] = *create.bid_usd_per_hour;
  if (create.volume_id) {
    body["volume_info"] = {{"create_new", false},
                           {"volume_id", *create.volume_id},
                           {"mount_path", create.volume_path}};
  }
  return body;
}

}  // namespace gpuctl
