#include "provisioning/vast/vast_provider.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "provisioning/market/gpu_models.h"
#include "provisioning/market/registry_login.h"
#include "provisioning/market/rent_options.h"
#include "provisioning/rest/refusals.h"
#include "provisioning/vast/vast_api.h"
#include "provisioning/vast/vast_market.h"

namespace gpuctl {
namespace {

using Code = absl::StatusCode;
constexpr Refusal kRefusals[] = {
    // Vast also answers 404 to a bad key and an expired session.
    {0, "", "auth_error", Code::kUnauthenticated, Code::kUnauthenticated},
    {0, "", "Invalid user key", Code::kUnauthenticated, Code::kUnauthenticated},
    {0, "", "Session expired", Code::kUnauthenticated, Code::kUnauthenticated},
    {0, "", "insufficient_credit", Code::kResourceExhausted, Code::kResourceExhausted},
    {0, "", "lacks credit", Code::kResourceExhausted, Code::kResourceExhausted},
    {0, "", "spend rate", Code::kResourceExhausted, Code::kResourceExhausted},
    {0, "", "no_such_ask", Code::kOk, Code::kAborted},
    {0, "", "invalid_price", Code::kOk, Code::kAborted},
    {0, "", "no_such_instance", Code::kNotFound, Code::kOk},
    {404, "not_found", "", Code::kNotFound, Code::kOk},
    {0, "", "deprecated_endpoint", Code::kFailedPrecondition, Code::kFailedPrecondition},
    // Refusals with HTTP 200. These mean that nothing was made, others do not.
    {200, "", "invalid_args", Code::kInvalidArgument, Code::kInvalidArgument},
    {200, "", "no_ssh_key_for_vm", Code::kInvalidArgument, Code::kInvalidArgument},
};

// A running instance may show an old message.
bool LacksItsImage(const VastInstance& row) {
  return row.actual_status != "running" && SaysImageFails(row.status_msg);
}

// Returns the address for ssh: of the machine itself where it has an open port, else of the relay.
std::optional<SshAddress> AddressOf(const VastInstance& row) {
  SshAddress address;
  address.user = "root";
  if (!row.public_ip.empty() && row.ssh_host_port != 0) {
    address.host = row.public_ip;
    address.port = static_cast<int>(row.ssh_host_port);
    return address;
  }
  if (row.proxy_host.empty() || row.proxy_port == 0) return std::nullopt;
  address.host = row.proxy_host;
  address.port = static_cast<int>(row.proxy_port);
  return address;
}

Instance::State StateOf(const VastInstance& row) {
  const std::string& actual = row.actual_status;
  // A machine that Vast does not hear from may come back, with its job.
  if (actual == "unknown" || actual == "offline") return Instance::State::kSilent;
  if (actual == "exited" || actual == "stopped") return Instance::State::kFailed;
  // In other states the message may be an old one.
  if (actual == "created" && absl::StrContains(row.status_msg, "OCI runtime create failed")) {
    return Instance::State::kFailed;
  }
  // It was outbid or stopped by somebody; actual_status may then be "loading" for ever. Only an
  // instance that is about to run may still start.
  if (row.cur_state == "stopped" && !(actual.empty() && row.next_state == "running")) {
    return Instance::State::kFailed;
  }
  if (actual != "running") return Instance::State::kStarting;
  if (row.intended_status == "stopped") return Instance::State::kStopping;
  return AddressOf(row).has_value() ? Instance::State::kRunning : Instance::State::kStarting;
}

constexpr absl::string_view kNext[] = {"next_token"};
constexpr char kListPath[] = "/api/v1/instances/?limit=25";
constexpr char kInstancePath[] = "/api/v0/instances/{id}/";
constexpr MarketShape kShape = {
    .name = kVastName,
    .title = "Vast",
    .machine = "instance",
    .base_url = "https://console.vast.ai",
    .instance = {.label = "label", .status = ""},
    .list_path = kListPath,
    .list = {.what = "the list of instances",
             .part = "instance",
             .rows = "instances",
             .id = "id",
             .paging = {.by = Paging::By::kCursor,
                        .parameter = "after_token",
                        .next = kNext,
                        .total = "total_instances",
                        .max_pages = 400},
             .rate_class = "list",
             .check = CheckVastSuccess},
    .describe = {.path = kInstancePath, .rate_class = "show", .row = "instances"},
    .end = {.path = kInstancePath, .rate_class = "destroy"},
    .numeric_ids = true,
    .null_is_gone = true};
constexpr ListShape kVolumes = {.what = "the list of volumes",
                                .part = "volume",
                                .rows = "volumes",
                                .id = "id",
                                .rate_class = "volumes",
                                .check = CheckVastSuccess};

}  // namespace

int64_t VastMemoryBytes(double mib) {
  return static_cast<int64_t>(std::clamp<double>(mib, 0, 1 << 30)) << 20;
}

std::string VastPlace(int64_t machine_id) { return absl::StrCat(kVastName, "/", machine_id); }

absl::Status StatusOfVastReply(const HttpResponse& response, bool creating) {
  const VastReply reply = ParseVastReply(response.body);
  return StatusOfRefusal(response, {reply.error, reply.message}, kRefusals, creating);
}

absl::Status StatusOfVastChange(const HttpResponse& response, bool silence_is_success) {
  const bool success = ParseVastReply(response.body).success.value_or(silence_is_success);
  if (response.status / 100 == 2 && success) return absl::OkStatus();
  return StatusOfVastReply(response, /*creating=*/false);
}

std::optional<int64_t> VastNumber(absl::string_view id) {
  int64_t number = 0;
  if (!absl::SimpleAtoi(id, &number) || number <= 0) return std::nullopt;
  return number;
}

std::string VastInstancePath(int64_t number) {
  return PathOf({.path = kInstancePath}, absl::StrCat(number));
}

VastProvider::VastProvider(std::shared_ptr<Http> http, ProviderAccess access)
    : RestMarket(kShape, std::move(http), std::move(access), StatusOfVastReply) {}

ProviderTraits VastProvider::traits() const {
  return {.ends_itself = ReleaseRouteOf(kVastName).way,
          .takes_image = true,
          .takes_login = true,
          .has_spot = true,
          .keeps_stopped_disk = true,
          .ready_within = absl::Minutes(15)};
}

void VastProvider::Complete(JsonReader& json, Instance& instance) const {
  VastInstance row;
  ReadVastInstance(json, row);
  instance.state = StateOf(row);
  instance.status = row.actual_status.empty() ? "scheduling" : row.actual_status;
  const bool stopped = row.actual_status == "stopped" || row.cur_state == "stopped";
  if (stopped && row.actual_status != "stopped") absl::StrAppend(&instance.status, ", stopped");
  if (stopped && row.is_bid && instance.state == Instance::State::kFailed) {
    absl::StrAppend(&instance.status, ", outbid");
  }
  if (!row.status_msg.empty()) absl::StrAppend(&instance.status, ": ", row.status_msg);
  instance.status = PrintableText(instance.status, 160);
  instance.image_fails = LacksItsImage(row);
  if (instance.state == Instance::State::kRunning) {
    instance.address = AddressOf(row);
    instance.relayed = row.public_ip.empty() || row.ssh_host_port == 0;
  }
  // A stopped instance pays for its disk alone.
  instance.price_usd_per_hour = stopped ? row.storage_usd_per_hour : row.dph_total;
  instance.upload_usd_per_gb = row.inet_up_usd_per_gb;
  instance.download_usd_per_gb = row.inet_down_usd_per_gb;
  if (!row.gpu_name.empty()) {
    instance.gpu_name = CanonicalGpuName(row.gpu_name, VastMemoryBytes(row.gpu_ram_mib));
  }
  instance.gpu_count = GpuCount(row.num_gpus);
  instance.region = row.geolocation;
  if (row.machine_id != 0) instance.place = VastPlace(row.machine_id);
  instance.spot = row.is_bid;
  constexpr double kLatestS = 1e12;
  if (row.start_date_s > 0 && row.start_date_s < kLatestS) {
    instance.created_ms = static_cast<int64_t>(row.start_date_s * 1000);
  }
  if (row.end_date_s > 0 && row.end_date_s < kLatestS) {
    instance.ends_ms = static_cast<int64_t>(row.end_date_s * 1000);
  }
}

absl::Status VastProvider::CheckEnd(const HttpResponse& response) const {
  return StatusOfVastChange(response, /*silence_is_success=*/false);
}

absl::StatusOr<std::vector<Volume>> VastProvider::ListVolumes() {
  ASSIGN_OR_RETURN(
      const std::vector<VastVolume> rows,
      ListOf(api(), "list Vast's volumes", "/api/v0/volumes/", kVolumes, ReadVastVolume));
  std::vector<Volume> volumes;
  for (const VastVolume& row : rows) {
    Volume& volume = volumes.emplace_back();
    volume.provider = kVastName;
    volume.id = absl::StrCat(row.id);
    // Vast shows a volume without a label under this name.
    volume.name = row.label.empty() ? absl::StrCat("V.", row.id) : row.label;
    volume.size_bytes = static_cast<int64_t>(std::clamp(row.disk_space_gb, 0.0, 1e6) *
                                             static_cast<double>(kDiskGb));
    volume.region = row.geolocation;
    volume.place = VastPlace(row.machine_id);
    volume.mount_path = kVastVolumePath;
    if (row.usd_per_hour.has_value()) volume.usd_per_month = *row.usd_per_hour * kHoursPerMonth;
    volume.in_use = row.instances > 0;
  }
  return volumes;
}

absl::StatusOr<std::string> VastProvider::AccountId() {
  return api().Get("look up the account at Vast", "/api/v0/users/current/", ParseVastAccountId);
}

std::unique_ptr<Provider> MakeVastProvider(std::shared_ptr<Http> http, ProviderAccess access) {
  return std::make_unique<VastProvider>(std::move(http), std::move(access));
}

}  // namespace gpuctl
