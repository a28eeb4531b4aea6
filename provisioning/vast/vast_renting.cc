// Making an instance: its key, its create, and what a failed create leaves.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "provisioning/market/rest_api.h"
#include "provisioning/vast/vast_api.h"
#include "provisioning/vast/vast_market.h"

namespace gpuctl {
namespace {

constexpr char kDefaultImage[] = "vastai/base-image:@vastai-automatic-tag";
constexpr size_t kMaxOnstartBytes = 4096;
constexpr size_t kMaxEnvBytes = 32768;
constexpr size_t kMaxLabelBytes = 256;
constexpr double kMinBid = 0.001;
constexpr double kMaxBid = 128;
// What a price loses in an offer's reference.
constexpr double kRounded = 2e-6;

absl::StatusOr<VastCreate> CreateOf(const Offer& offer, const VastRef& ref,
                                    const RentOptions& options, absl::string_view label) {
  VastCreate create;
  create.image = options.image.empty() ? kDefaultImage : options.image;
  create.disk_gb = std::max(DiskGb(options.disk_bytes, kVastDefaultDiskGb), kVastMinDiskGb);
  create.label = std::string(label);
  if (label.size() > kMaxLabelBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the label ", label, " is too long"));
  }
  if (!options.ssh_public_key.empty() && SshKeyIdentity(options.ssh_public_key).empty()) {
    return absl::InvalidArgumentError("the ssh public key is none");
  }
  size_t env_bytes = 0;
  for (const auto& variable : options.env) {
    if (!IsEnvName(variable.first)) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", variable.first, "\" is no name of an environment variable"));
    }
    env_bytes += variable.first.size() + variable.second.size();
  }
  if (env_bytes > kMaxEnvBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the environment has ", env_bytes, " bytes; Vast takes ", kMaxEnvBytes));
  }
  create.env = options.env;
  create.onstart = options.start_script;
  if (create.onstart.size() > kMaxOnstartBytes) {
    create.onstart = absl::StrCat("echo ", GzipBase64(options.start_script),
                                  "|base64 -d|gzip -d>/root/.gpuctl-onstart\n"
                                  "bash /root/.gpuctl-onstart\n");
  }
  if (create.onstart.size() > kMaxOnstartBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the start script has ", options.start_script.size(), " bytes, packed ",
                     create.onstart.size(), "; Vast takes ", kMaxOnstartBytes));
  }
  if (ref.spot) {
    // What is to be paid is with the disk, which is billed on top of a bid. Too low a bid would
    // leave a stopped instance that bills for its disk.
    double bid = options.bid_usd_per_hour.value_or(
                     std::max(offer.price_usd_per_hour, ref.min_bid + ref.disk_usd_per_hour)) -
                 ref.disk_usd_per_hour;
    if (std::abs(bid - ref.min_bid) < kRounded) bid = ref.min_bid;
    if (bid < ref.min_bid || bid < kMinBid || bid > kMaxBid) {
      return absl::InvalidArgumentError(absl::StrFormat("a bid of $%.3f/h; it takes $%.3f to $%.0f",
                                                        bid, std::max(ref.min_bid, kMinBid),
                                                        kMaxBid));
    }
    create.bid_usd_per_hour = bid;
  }
  if (!options.volume_id.empty()) {
    int64_t volume = 0;
    if (!absl::SimpleAtoi(options.volume_id, &volume)) {
      return absl::InvalidArgumentError(
          absl::StrCat("volume ", options.volume_id, ": Vast's ids are numbers"));
    }
    create.volume_id = volume;
    create.volume_path = options.volume_path.empty() ? kVastVolumePath : options.volume_path;
  }
  return create;
}

}  // namespace

absl::StatusOr<bool> VastProvider::HasKey(absl::string_view identity) {
  constexpr absl::string_view kDoing = "list ssh keys";
  const absl::StatusOr<HttpResponse> response =
      http_->Send(ApiRequest(access_, "GET", "/api/v0/ssh/", "keys", /*repeatable=*/true));
  if (!response.ok()) return Annotate(response.status(), kDoing);
  if (response->status != 200) {
    const absl::Status status = StatusOfVastReply(*response, /*creating=*/false);
    // An account without keys answers 404.
    if (response->status == 404 && !absl::IsUnauthenticated(status)) return false;
    return Annotate(status, kDoing);
  }
  const absl::StatusOr<std::vector<std::string>> keys = ParseVastSshKeys(response->body);
  if (!keys.ok()) return Annotate(keys.status(), kDoing);
  return std::any_of(keys->begin(), keys->end(), [identity](const std::string& key) {
    return SshKeyIdentity(key) == identity;
  });
}

absl::Status VastProvider::EnsureKey(const std::string& public_key) {
  const std::string identity = SshKeyIdentity(public_key);
  ASSIGN_OR_RETURN(const bool there, HasKey(identity));
  if (there) return absl::OkStatus();
  constexpr absl::string_view kDoing = "register the ssh key";
  const absl::StatusOr<HttpResponse> response =
      http_->Send(ApiRequest(access_, "POST", "/api/v0/ssh/", "keys", /*repeatable=*/false,
                             nlohmann::json{{"ssh_key", identity}}));
  if (!response.ok()) return Annotate(response.status(), kDoing);
  if (response->status / 100 == 2 && ParseVastReply(response->body).success.value_or(true)) {
    return absl::OkStatus();
  }
  const absl::Status refused = StatusOfVastReply(*response, /*creating=*/false);
  // Somebody else may have been faster.
  if (response->status == 400 || response->status == 409) {
    ASSIGN_OR_RETURN(const bool there_now, HasKey(identity));
    if (there_now) return absl::OkStatus();
  }
  return Annotate(refused, kDoing);
}

absl::Status VastProvider::EndFailedCreate(int64_t contract, const absl::Status& refused) {
  const std::string id = absl::StrCat(contract);
  absl::Status ended = Terminate(id);
  if (ended.ok()) {
    const absl::Status left = Describe(id).status();
    if (absl::IsNotFound(left)) {
      return absl::Status(refused.code(), absl::StrCat(refused.message(), "; instance ", id,
                                                       ", which that left, is ended"));
    }
    ended = left;
  }
  return absl::UnknownError(absl::StrCat(refused.message(), "; that left instance ", id,
                                         ", which may still bill",
                                         ended.ok() ? "" : absl::StrCat(": ", ended.message())));
}

absl::StatusOr<Instance> VastProvider::Rent(const Offer& offer, const RentOptions& options,
                                            absl::string_view label) {
  const std::string doing = absl::StrCat("rent ", offer.description, " from Vast");
  ASSIGN_OR_RETURN(const VastRef ref, ParseVastRef(offer));
  const absl::StatusOr<VastCreate> create = CreateOf(offer, ref, options, label);
  if (!create.ok()) return Annotate(create.status(), doing);
  if (!options.ssh_public_key.empty()) {
    if (const absl::Status key = EnsureKey(options.ssh_public_key); !key.ok()) {
      return Annotate(BeforeCreate(key), doing);
    }
  }
  const absl::StatusOr<HttpResponse> response =
      http_->Send(ApiRequest(access_, "PUT", absl::StrCat("/api/v0/asks/", ref.ask, "/"), "create",
                             /*repeatable=*/false, VastCreateBody(*create)));
  if (!response.ok()) return Annotate(response.status(), doing);
  const absl::StatusOr<VastCreated> created = ParseVastCreated(response->body);
  const bool accepted = response->status / 100 == 2;
  if (!accepted || (created.ok() && !created->success)) {
    const absl::Status refused = StatusOfVastReply(*response, /*creating=*/true);
    if (created.ok() && created->new_contract.has_value()) {
      return Annotate(EndFailedCreate(*created->new_contract, refused), doing);
    }
    return Annotate(refused, doing);
  }
  if (!created.ok()) return Annotate(created.status(), doing);
  if (!created->new_contract.has_value() || *created->new_contract <= 0) {
    return absl::UnknownError(absl::StrCat(doing, ": the answer names no instance"));
  }
  Instance instance;
  instance.id = absl::StrCat(*created->new_contract);
  instance.label = std::string(label);
  instance.status = "accepted";
  instance.price_usd_per_hour = create->bid_usd_per_hour.has_value()
                                    ? *create->bid_usd_per_hour + ref.disk_usd_per_hour
                                    : offer.price_usd_per_hour;
  instance.gpu_name = offer.gpu_name;
  instance.gpu_count = offer.gpu_count;
  instance.region = offer.region;
  instance.place = offer.place;
  instance.spot = ref.spot;
  return instance;
}

absl::Status VastProvider::AttachKey(const InstanceId& id, const std::string& ssh_public_key) {
  const std::string doing = absl::StrCat("attach the ssh key to Vast instance ", id);
  int64_t number = 0;
  const std::string identity = SshKeyIdentity(ssh_public_key);
  if (!absl::SimpleAtoi(id, &number) || number <= 0 || identity.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(doing, ": ", identity.empty() ? "the key is none" : "ids are numbers"));
  }
  // Once more does no harm.
  const absl::StatusOr<HttpResponse> response = http_->Send(
      ApiRequest(access_, "POST", absl::StrCat("/api/v0/instances/", number, "/ssh/"), "keys",
                 /*repeatable=*/true, nlohmann::json{{"ssh_key", identity}}));
  if (!response.ok()) return Annotate(response.status(), doing);
  if (response->status / 100 == 2 && ParseVastReply(response->body).success.value_or(true)) {
    return absl::OkStatus();
  }
  return Annotate(StatusOfVastReply(*response, /*creating=*/false), doing);
}

}  // namespace gpuctl
