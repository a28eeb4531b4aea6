#include "provisioning/vast/vast_api.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "provisioning/market/rest_api.h"

namespace gpuctl {
namespace {

constexpr int kMinDirectPorts = 2;
constexpr int kMaxOffers = 64;

absl::StatusOr<VastOffer> ReadOffer(const nlohmann::json& json) {
  WireObject row(json, "offer");
  VastOffer offer;
  offer.id = row.Int("id");
  offer.machine_id = row.OptionalInt("machine_id").value_or(0);
  offer.gpu_name = row.OptionalString("gpu_name").value_or("");
  offer.num_gpus = row.OptionalInt("num_gpus").value_or(0);
  offer.gpu_ram_mib = static_cast<int64_t>(row.OptionalNumber("gpu_ram").value_or(0));
  offer.dph_total = row.OptionalNumber("dph_total").value_or(0);
  offer.dph_base = row.OptionalNumber("dph_base").value_or(0);
  offer.min_bid = row.OptionalNumber("min_bid").value_or(0);
  offer.inet_up_usd_per_gb = row.OptionalNumber("inet_up_cost");
  offer.inet_down_usd_per_gb = row.OptionalNumber("inet_down_cost");
  offer.reliability = row.OptionalNumber("reliability2");
  if (!offer.reliability.has_value()) offer.reliability = row.OptionalNumber("reliability");
  offer.geolocation = row.OptionalString("geolocation").value_or("");
  offer.direct_port_count = row.OptionalInt("direct_port_count").value_or(0);
  offer.cuda_max_good = row.OptionalNumber("cuda_max_good").value_or(0);
  offer.disk_space_gb = row.OptionalNumber("disk_space").value_or(0);
  offer.rentable = row.OptionalBool("rentable").value_or(true);
  offer.verification = row.OptionalString("verification").value_or("");
  offer.gpu_arch = row.OptionalString("gpu_arch").value_or("");
  offer.cpu_arch = row.OptionalString("cpu_arch").value_or("");
  RETURN_IF_ERROR(row.status());
  return offer;
}

// "22/tcp": [{"HostIp": "0.0.0.0", "HostPort": "20000"}]. The description once had a list of
// numbers there, which says nothing.
int64_t SshHostPort(const nlohmann::json& json, WireObject& row) {
  const auto ports = json.find("ports");
  if (ports == json.end() || !ports->is_object()) return 0;
  const auto ssh = ports->find("22/tcp");
  if (ssh == ports->end() || !ssh->is_array() || ssh->empty()) return 0;
  WireObject mapping(ssh->front(), "the mapping of 22/tcp");
  const int64_t port = mapping.LooseInt("HostPort").value_or(0);
  if (port < 0 || port > 65535) mapping.Fail("HostPort", "is no port");
  row.Check(mapping.status());
  return port;
}

absl::StatusOr<VastInstance> ReadInstance(const nlohmann::json& json) {
  WireObject row(json, "instance");
  VastInstance instance;
  instance.id = row.Int("id");
  instance.label = row.OptionalString("label").value_or("");
  instance.actual_status = row.OptionalString("actual_status").value_or("");
  instance.cur_state = row.OptionalString("cur_state").value_or("");
  instance.next_state = row.OptionalString("next_state").value_or("");
  instance.intended_status = row.OptionalString("intended_status").value_or("");
  instance.status_msg = row.OptionalString("status_msg").value_or("");
  instance.public_ip =
      std::string(absl::StripAsciiWhitespace(row.OptionalString("public_ipaddr").value_or("")));
  if (!instance.public_ip.empty() && !IsSafeHost(instance.public_ip)) {
    row.Fail("public_ipaddr", "is no address");
  }
  instance.machine_id = row.OptionalInt("machine_id").value_or(0);
  instance.gpu_name = row.OptionalString("gpu_name").value_or("");
  instance.num_gpus = row.OptionalInt("num_gpus").value_or(0);
  instance.gpu_ram_mib = static_cast<int64_t>(row.OptionalNumber("gpu_ram").value_or(0));
  instance.dph_total = row.OptionalNumber("dph_total").value_or(0);
  instance.dph_base = row.OptionalNumber("dph_base").value_or(0);
  instance.start_date_s = row.OptionalNumber("start_date").value_or(0);
  instance.geolocation = row.OptionalString("geolocation").value_or("");
  instance.is_bid = row.OptionalBool("is_bid").value_or(false);
  RETURN_IF_ERROR(row.status());
  instance.ssh_host_port = SshHostPort(json, row);
  RETURN_IF_ERROR(row.status());
  return instance;
}

absl::StatusOr<VastPriceRise> ReadPriceRise(const nlohmann::json& json) {
  WireObject row(json, "price increase");
  VastPriceRise rise;
  rise.id = row.Int("pending_price_increase_id");
  rise.contract_id = row.Int("contract_id");
  rise.gpu = {row.OptionalNumber("old_gpu_costpersec"), row.OptionalNumber("new_gpu_costpersec")};
  rise.storage = {row.OptionalNumber("old_disk_ram_costpersec"),
                  row.OptionalNumber("new_disk_ram_costpersec")};
  rise.upload = {row.OptionalNumber("old_bwu_cost"), row.OptionalNumber("new_bwu_cost")};
  rise.download = {row.OptionalNumber("old_bwd_cost"), row.OptionalNumber("new_bwd_cost")};
  rise.contract_end_s = row.OptionalNumber("contract_end_date").value_or(0);
  RETURN_IF_ERROR(row.status());
  return rise;
}

// An answer with 200 may still be a refusal.
absl::Status CheckSuccess(const nlohmann::json& json) {
  const auto success = json.find("success");
  if (success == json.end() || !success->is_boolean() || success->get<bool>()) {
    return absl::OkStatus();
  }
  return absl::UnknownError("the answer says that it did not succeed");
}

nlohmann::json Operator(const char* name, const nlohmann::json& value) {
  return nlohmann::json::object({{name, value}});
}

}  // namespace

absl::StatusOr<std::vector<VastOffer>> ParseVastOffers(absl::string_view body) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseWireJson(body));
  WireObject reply(json, "the list of offers");
  const nlohmann::json* rows = reply.Array("offers");
  RETURN_IF_ERROR(reply.status());
  std::vector<VastOffer> offers;
  for (const nlohmann::json& row : *rows) {
    ASSIGN_OR_RETURN(VastOffer offer, ReadOffer(row));
    offers.push_back(std::move(offer));
  }
  return offers;
}

absl::StatusOr<std::optional<VastInstance>> ParseVastInstance(absl::string_view body) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseWireJson(body));
  WireObject reply(json, "the answer");
  RETURN_IF_ERROR(reply.status());
  RETURN_IF_ERROR(CheckSuccess(json));
  // Null says that it is gone; a missing field says nothing.
  if (json.contains("instances") && json["instances"].is_null()) {
    return std::optional<VastInstance>();
  }
  const nlohmann::json* row = reply.Object("instances");
  RETURN_IF_ERROR(reply.status());
  ASSIGN_OR_RETURN(VastInstance instance, ReadInstance(*row));
  return std::make_optional(std::move(instance));
}

absl::StatusOr<VastPage> ParseVastInstances(absl::string_view body) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseWireJson(body));
  WireObject reply(json, "the list of instances");
  const nlohmann::json* rows = reply.Array("instances");
  VastPage page;
  page.next_token = reply.OptionalString("next_token").value_or("");
  page.total_instances = reply.OptionalInt("total_instances");
  RETURN_IF_ERROR(reply.status());
  RETURN_IF_ERROR(CheckSuccess(json));
  for (const nlohmann::json& row : *rows) {
    ASSIGN_OR_RETURN(VastInstance instance, ReadInstance(row));
    page.instances.push_back(std::move(instance));
  }
  return page;
}

absl::StatusOr<VastCreated> ParseVastCreated(absl::string_view body) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseWireJson(body));
  WireObject reply(json, "the answer");
  VastCreated created;
  created.new_contract = reply.OptionalInt("new_contract");
  created.success = reply.OptionalBool("success").value_or(created.new_contract.has_value() &&
                                                           !reply.Has("error"));
  RETURN_IF_ERROR(reply.status());
  return created;
}

absl::StatusOr<std::vector<VastPriceRise>> ParseVastPriceRises(absl::string_view body) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseWireJson(body));
  WireObject reply(json, "the list of price increases");
  const nlohmann::json* rows = reply.Array("pending_price_increases");
  const bool truncated = reply.OptionalBool("truncated").value_or(false);
  RETURN_IF_ERROR(reply.status());
  RETURN_IF_ERROR(CheckSuccess(json));
  if (truncated) return absl::UnknownError("the list of price increases is cut short");
  std::vector<VastPriceRise> rises;
  for (const nlohmann::json& row : *rows) {
    ASSIGN_OR_RETURN(VastPriceRise rise, ReadPriceRise(row));
    rises.push_back(rise);
  }
  return rises;
}

absl::StatusOr<std::vector<std::string>> ParseVastSshKeys(absl::string_view body) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseWireJson(body));
  if (!json.is_array()) return absl::UnknownError("the list of ssh keys is no list");
  std::vector<std::string> keys;
  for (const nlohmann::json& json_row : json) {
    WireObject row(json_row, "ssh key");
    // Keys that were deleted stay in the list.
    const bool deleted = row.Has("deleted_at");
    std::string key = row.OptionalString("key").value_or("");
    if (key.empty()) key = row.OptionalString("public_key").value_or("");
    RETURN_IF_ERROR(row.status());
    if (!deleted && !key.empty()) keys.push_back(std::move(key));
  }
  return keys;
}

absl::StatusOr<std::vector<VastVolume>> ParseVastVolumes(absl::string_view body) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseWireJson(body));
  WireObject reply(json, "the list of volumes");
  const nlohmann::json* rows = reply.Array("volumes");
  RETURN_IF_ERROR(reply.status());
  RETURN_IF_ERROR(CheckSuccess(json));
  std::vector<VastVolume> volumes;
  for (const nlohmann::json& json_row : *rows) {
    WireObject row(json_row, "volume");
    VastVolume& volume = volumes.emplace_back();
    volume.id = row.Int("id");
    volume.machine_id = row.Int("machine_id");
    volume.label = row.OptionalString("label").value_or("");
    volume.disk_space_gb = row.OptionalNumber("disk_space").value_or(0);
    volume.usd_per_hour = row.OptionalNumber("storage_total_cost");
    volume.geolocation = row.OptionalString("geolocation").value_or("");
    if (const nlohmann::json* instances = row.OptionalArray("instances"); instances != nullptr) {
      volume.instances = static_cast<int64_t>(instances->size());
    }
    RETURN_IF_ERROR(row.status());
  }
  return volumes;
}

VastReply ParseVastReply(absl::string_view body) {
  const absl::StatusOr<nlohmann::json> json = ParseWireJson(body);
  if (!json.ok() || !json->is_object()) return {};
  // Each field by a reader of its own: one odd field does not hide the others.
  const auto text = [&json](const char* field) {
    return WireObject(*json, "error").OptionalString(field).value_or("");
  };
  VastReply reply;
  reply.success = WireObject(*json, "error").OptionalBool("success");
  reply.error = text("error");
  reply.message = text("msg");
  if (reply.message.empty()) reply.message = text("detail");
  return reply;
}

nlohmann::json VastSearchBody(const VastSearch& search) {
  nlohmann::json body = {{"verified", Operator("eq", true)},
                         {"rentable", Operator("eq", true)},
                         {"rented", Operator("eq", false)},
                         {"external", Operator("eq", false)},
                         {"num_gpus", Operator("eq", search.gpu_count)},
                         {"direct_port_count", Operator("gte", kMinDirectPorts)},
                         {"reliability", Operator("gte", 0.95)},
                         {"disk_space", Operator("gte", search.disk_gb)},
                         {"allocated_storage", search.disk_gb},
                         {"limit", kMaxOffers}};
  body["order"].push_back(nlohmann::json::array({"dph_total", "asc"}));
  if (!search.gpu_names.empty()) body["gpu_name"] = Operator("in", search.gpu_names);
  if (search.min_gpu_ram_mib > 0) body["gpu_ram"]["gte"] = search.min_gpu_ram_mib;
  if (search.max_gpu_ram_mib > 0) body["gpu_ram"]["lte"] = search.max_gpu_ram_mib;
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
                         // Otherwise a machine that is taken leaves a stopped one that bills.
                         {"cancel_unavail", true}};
  // An object, whatever the description says.
  if (!create.env.empty()) body["env"] = create.env;
  if (!create.onstart.empty()) body["onstart"] = create.onstart;
  if (create.bid_usd_per_hour) body["price"] = *create.bid_usd_per_hour;
  if (create.volume_id) {
    body["volume_info"] = {{"create_new", false},
                           {"volume_id", *create.volume_id},
                           {"mount_path", create.volume_path}};
  }
  return body;
}

}  // namespace gpuctl
