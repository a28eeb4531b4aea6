// Making an instance: its key, its create, and the remains of a failed create.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "provisioning/market/offers.h"
#include "provisioning/market/registry_login.h"
#include "provisioning/market/rent_options.h"
#include "provisioning/rest/ssh_keys.h"
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
// The rounding of a price in an offer's reference.
constexpr double kRounded = 2e-6;

// Returns `script` as Vast's onstart, packed when it would be too long.
absl::StatusOr<std::string> OnstartOf(const std::string& script) {
  if (script.size() <= kMaxOnstartBytes) return script;
  std::string packed = absl::StrCat("echo ", GzipBase64(script),
                                    "|base64 -d|gzip -d>/root/.gpuctl-onstart\n"
                                    "bash /root/.gpuctl-onstart\n");
  if (packed.size() <= kMaxOnstartBytes) return packed;
  return absl::InvalidArgumentError(absl::StrCat("the start script has ", script.size(),
                                                 " bytes, packed ", packed.size(), "; Vast takes ",
                                                 kMaxOnstartBytes));
}

absl::Status CheckEnv(const std::map<std::string, std::string>& env) {
  RETURN_IF_ERROR(CheckEnvNames(env));
  size_t bytes = 0;
  for (const auto& variable : env) bytes += variable.first.size() + variable.second.size();
  if (bytes <= kMaxEnvBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the environment has ", bytes, " bytes; Vast takes ", kMaxEnvBytes));
}

// Returns the bid without the disk, which is billed on top of it. Refuses a bid that is too low,
// because it would leave a stopped instance that bills for its disk.
absl::StatusOr<double> BidOf(const Offer& offer, const VastRef& ref, const RentOptions& options) {
  const double least = std::max(offer.price_usd_per_hour, ref.min_bid + ref.disk_usd_per_hour);
  double bid = options.bid_usd_per_hour.value_or(least) - ref.disk_usd_per_hour;
  if (std::abs(bid - ref.min_bid) < kRounded) bid = ref.min_bid;
  if (bid >= ref.min_bid && bid >= kMinBid && bid <= kMaxBid) return bid;
  return absl::InvalidArgumentError(absl::StrFormat("a bid of $%.3f/h; it takes $%.3f to $%.0f",
                                                    bid, std::max(ref.min_bid, kMinBid), kMaxBid));
}

absl::Status CheckLoginWord(const char* what, absl::string_view word, const char* hint) {
  // Vast's own example has a '!'.
  constexpr absl::string_view kAlsoGood = "-_.,:!%+=@/^";
  const bool good =
      !word.empty() && word[0] != '-' && std::all_of(word.begin(), word.end(), [kAlsoGood](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
               absl::StrContains(kAlsoGood, c);
      });
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("Vast takes a login at a registry as one line of words, and the ", what,
                   " has characters that cannot be written there", hint));
}

absl::StatusOr<VastCreate> CreateOf(const Offer& offer, const VastRef& ref,
                                    const RentOptions& options, absl::string_view label) {
  VastCreate create;
  create.image = options.image.empty() ? kDefaultImage : options.image;
  if (options.registry_login.has_value()) {
    ASSIGN_OR_RETURN(create.image_login, VastImageLogin(*options.registry_login));
  }
  create.disk_gb = std::max(DiskGb(options.disk_bytes, kVastDefaultDiskGb), kVastMinDiskGb);
  create.label = std::string(label);
  if (label.size() > kMaxLabelBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the label ", label, " is too long"));
  }
  RETURN_IF_ERROR(CheckedSshKey(options.ssh_public_key).status());
  RETURN_IF_ERROR(CheckEnv(options.env));
  create.env = options.env;
  ASSIGN_OR_RETURN(create.onstart, OnstartOf(options.start_script));
  if (ref.spot) {
    ASSIGN_OR_RETURN(create.bid_usd_per_hour, BidOf(offer, ref, options));
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

absl::Status KeyRefusal(const HttpResponse& response) {
  return StatusOfVastChange(response, /*silence_is_success=*/true);
}

// Keys that were deleted stay in the list, and an account without any is answered with 404.
constexpr absl::string_view kKeyFields[] = {"key", "public_key"};
constexpr SshKeyShape kKeys = {.path = "/api/v0/ssh/",
                               .list = {.what = "the list of ssh keys",
                                        .part = "ssh key",
                                        .rate_class = "keys",
                                        .empty_is_404 = true},
                               .key = kKeyFields,
                               .deleted = "deleted_at",
                               .new_key = "ssh_key",
                               .refusal = KeyRefusal};

}  // namespace

absl::StatusOr<std::string> VastImageLogin(const RegistryLogin& login) {
  RETURN_IF_ERROR(CheckLoginWord("user's name", login.username, ""));
  RETURN_IF_ERROR(
      CheckLoginWord("password", login.password, "; an access token of the registry may do"));
  RETURN_IF_ERROR(CheckedRegistry(login.server).status());
  return absl::StrCat("-u ", login.username, " -p ", login.password, " ", login.server);
}

absl::Status VastProvider::CheckLogin(const RegistryLogin& login) const {
  return VastImageLogin(login).status();
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
    const absl::Status key = EnsureSshKey(api(), kKeys, options.ssh_public_key).status();
    if (!key.ok()) return Annotate(BeforeCreate(key), doing);
  }
  const std::string path = absl::StrCat("/api/v0/asks/", ref.ask, "/");
  ASSIGN_OR_RETURN(const HttpResponse response, api().Send({.doing = doing,
                                                            .kind = CallKind::kCreate,
                                                            .method = "PUT",
                                                            .path = path,
                                                            .rate_class = "create",
                                                            .body = VastCreateBody(*create)}));
  const absl::StatusOr<VastCreated> created = ParseVastCreated(response.body);
  const bool accepted = response.status / 100 == 2;
  if (!accepted || (created.ok() && !created->success)) {
    const absl::Status refused = StatusOfVastReply(response, /*creating=*/true);
    if (created.ok() && created->new_contract.has_value()) {
      return Annotate(EndFailedCreate(*created->new_contract, refused), doing);
    }
    return Annotate(refused, doing);
  }
  if (!created.ok()) return Annotate(created.status(), doing);
  if (!created->new_contract.has_value() || *created->new_contract <= 0) {
    return absl::UnknownError(absl::StrCat(doing, ": the answer names no instance"));
  }
  Instance instance =
      RentedInstance(offer, absl::StrCat(*created->new_contract), label, "accepted");
  if (create->bid_usd_per_hour.has_value()) {
    instance.price_usd_per_hour = *create->bid_usd_per_hour + ref.disk_usd_per_hour;
  }
  instance.spot = ref.spot;
  return instance;
}

absl::Status VastProvider::AttachKey(const InstanceId& id, const std::string& ssh_public_key) {
  const std::string doing = absl::StrCat("attach the ssh key to Vast instance ", id);
  const std::optional<int64_t> number = VastNumber(id);
  const std::string identity = SshKeyIdentity(ssh_public_key);
  if (!number.has_value() || identity.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(doing, ": ", identity.empty() ? "the key is none" : "ids are numbers"));
  }
  // Adding a key twice does no harm.
  const std::string path = absl::StrCat(VastInstancePath(*number), "ssh/");
  ASSIGN_OR_RETURN(const HttpResponse response, api().Send({.doing = doing,
                                                            .kind = CallKind::kRepeat,
                                                            .method = "POST",
                                                            .path = path,
                                                            .rate_class = "keys",
                                                            .body = {{"ssh_key", identity}}}));
  return Annotate(KeyRefusal(response), doing);
}

}  // namespace gpuctl
