#include "provisioning/lambda/lambda_provider.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "provisioning/lambda/lambda_api.h"
#include "provisioning/market/gpu_models.h"
#include "provisioning/market/offers.h"
#include "provisioning/market/regions.h"
#include "provisioning/market/rent_options.h"
#include "provisioning/market/user_data.h"
#include "provisioning/rest/refusals.h"
#include "provisioning/rest/rest_market.h"
#include "provisioning/rest/ssh_keys.h"

namespace gpuctl {
namespace {

constexpr char kName[] = "lambda";
constexpr size_t kMaxUserDataBytes = 1'000'000;
constexpr size_t kMaxNameBytes = 64;
constexpr char kMountPoint[] = "/lambda/nfs/gpuctl";
constexpr double kFileSystemUsdPerGbMonth = 0.20;  // of its content

// A kind of machine that comes up bad says nothing of the other kinds in its region.
std::string Place(absl::string_view type, absl::string_view region) {
  return absl::StrCat(kName, "/", type, "/", region);
}

using Code = absl::StatusCode;
constexpr Refusal kRefusals[] = {
    {0, "global/invalid-api-key", "", Code::kUnauthenticated, Code::kUnauthenticated},
    {0, "global/account-inactive", "", Code::kPermissionDenied, Code::kPermissionDenied},
    {0, "global/invalid-address", "", Code::kPermissionDenied, Code::kPermissionDenied},
    {0, "global/forbidden", "", Code::kPermissionDenied, Code::kPermissionDenied},
    {0, "global/quota-exceeded", "", Code::kResourceExhausted, Code::kResourceExhausted},
    {0, "instance-operations/launch/insufficient-capacity", "", Code::kAborted, Code::kAborted},
    {0, "global/duplicate", "", Code::kAlreadyExists, Code::kAlreadyExists},
    {0, "ssh-keys/key-in-use", "", Code::kAlreadyExists, Code::kAlreadyExists},
    {0, "global/object-does-not-exist", "", Code::kNotFound, Code::kInvalidArgument},
    // There is no such route. This is our mistake and says nothing about an instance.
    {0, "global/not-found", "", Code::kFailedPrecondition, Code::kFailedPrecondition},
    {0, "global/conflict", "", Code::kUnavailable, Code::kAborted},
    {0, "filesystems/filesystem-in-use", "", Code::kUnavailable, Code::kAborted},
    {0, "global/internal-error", "", Code::kUnavailable, Code::kUnknown},
    {0, "global/unknown", "", Code::kUnavailable, Code::kUnknown},
    {0, "provider/*", "", Code::kUnavailable, Code::kUnknown},
    {0, "global/invalid-parameters", "", Code::kInvalidArgument, Code::kInvalidArgument},
    {0, "instance-operations/launch/file-system-in-wrong-region", "", Code::kInvalidArgument,
     Code::kInvalidArgument},
};

absl::Status StatusOfAnswer(const HttpResponse& response, bool launching) {
  return StatusOfRefusal(response, ParseLambdaError(response.body), kRefusals, launching);
}

using State = Instance::State;
constexpr StateWord kStates[] = {{"active", State::kRunning},
                                 {"unhealthy", State::kSilent},
                                 {"preempted", State::kFailed},
                                 {"terminating", State::kStopping},
                                 {"terminated", State::kStopping, true}};
constexpr MarketShape kShape = {
    .name = kName,
    .title = "Lambda",
    .machine = "instance",
    .base_url = "https://cloud.lambda.ai",
    .instance = {.tags = "tags",
                 .lease_tag = kLambdaLeaseTag,
                 .states = kStates,
                 .host = "ip",
                 .user = "ubuntu"},
    .list_path = "/api/v1/instances",
    .list = {.what = "the list of instances", .part = "instance", .rows = "data", .id = "id"},
    .describe = {.path = "/api/v1/instances/{id}", .row = "data"}};
constexpr absl::string_view kKeyFields[] = {"public_key"};
constexpr SshKeyShape kKeys = {
    .path = "/api/v1/ssh-keys",
    .list = {.what = "the list of ssh keys", .part = "ssh key", .rows = "data"},
    .id = "name",
    .key = kKeyFields,
    .new_name = "name",
    .new_key = "public_key",
    .made = "data"};
constexpr ListShape kFileSystems = {
    .what = "the list of file systems", .part = "file system", .rows = "data", .id = "id"};

class LambdaProvider : public RestMarket {
 public:
  LambdaProvider(std::shared_ptr<Http> http, ProviderAccess access)
      : RestMarket(kShape, std::move(http), std::move(access), StatusOfAnswer) {}

  ProviderTraits traits() const override {
    return {.takes_host_key = true,
            .region_network = true,
            .ready_within = absl::Minutes(20),
            .billing_quantum = absl::Minutes(1)};
  }

  absl::StatusOr<std::vector<Offer>> ListOffers(const Requirements& requirements) override {
    if (requirements.spot || IsElsewhere(requirements, kName)) return std::vector<Offer>();
    ASSIGN_OR_RETURN(const std::vector<LambdaInstanceType> types,
                     api().Get("list Lambda's instance types", "/api/v1/instance-types",
                               ParseLambdaInstanceTypes));
    OfferList offers(kName, requirements);
    for (const LambdaInstanceType& type : types) {
      if (type.gpus < 1 || type.price_cents_per_hour <= 0) continue;
      const int64_t memory_bytes = LambdaGpuMemoryBytes(type.gpu_description);
      const std::string gpu_name = CanonicalGpuName(type.gpu_description, memory_bytes);
      const int64_t disk_bytes = std::clamp<int64_t>(type.storage_gib, 0, 1 << 30) << 30;
      if (!offers.TakesDisk(disk_bytes)) continue;
      if (!offers.Takes(type.gpus, gpu_name, memory_bytes)) continue;
      for (const LambdaRegion& region : type.regions_with_capacity) {
        if (!offers.TakesPlace(region.name, CountryOf(region))) continue;
        Offer& offer = offers.Add();
        offer.ref = absl::StrCat(type.name, "/", region.name);
        offer.arm64 = gpu_name == "GH200";
        offer.description =
            absl::StrCat(type.description, " in ", region.name, offer.arm64 ? ", arm64" : "");
        offer.price_usd_per_hour = static_cast<double>(type.price_cents_per_hour) / 100;
        offer.gpu_name = gpu_name;
        offer.gpu_count = static_cast<int>(type.gpus);
        offer.gpu_memory_bytes = memory_bytes;
        offer.region = region.name;
        offer.disk_bytes = disk_bytes;
        offer.place = Place(type.name, region.name);
      }
    }
    return offers.Finish();
  }

  absl::StatusOr<Instance> Rent(const Offer& offer, const RentOptions& options,
                                absl::string_view label) override {
    const std::string doing = absl::StrCat("rent ", offer.description, " from Lambda");
    if (options.registry_login.has_value()) {
      RETURN_IF_ERROR(Annotate(CheckLogin(*options.registry_login), doing));
    }
    absl::StatusOr<LambdaLaunch> launch = LaunchOf(offer, options, label);
    if (!launch.ok()) return Annotate(launch.status(), doing);
    absl::StatusOr<std::string> key = EnsureSshKey(api(), kKeys, options.ssh_public_key);
    if (!key.ok()) return Annotate(BeforeCreate(key.status()), doing);
    launch->ssh_key_name = *std::move(key);
    ASSIGN_OR_RETURN(const std::vector<std::string> ids,
                     api().Ask({.doing = doing,
                                .kind = CallKind::kCreate,
                                .method = "POST",
                                .path = "/api/v1/instance-operations/launch",
                                .rate_class = "launch",
                                .body = LambdaLaunchBody(*launch)},
                               ParseLambdaLaunch));
    if (ids.size() != 1) {
      return absl::UnknownError(absl::StrCat(doing, ": the answer names ", ids.size(),
                                             " instances: ", absl::StrJoin(ids, ", ")));
    }
    Instance instance = RentedInstance(offer, ids.front(), label, "booting");
    instance.region = launch->region;
    instance.place = offer.place;
    return instance;
  }

  absl::Status Terminate(const InstanceId& id) override {
    const std::string doing = Doing("terminate", id);
    RETURN_IF_ERROR(CheckId(id, doing));
    ASSIGN_OR_RETURN(const std::vector<std::string> ids,
                     api().Ask({.doing = doing,
                                .kind = CallKind::kRepeat,
                                .method = "POST",
                                .path = "/api/v1/instance-operations/terminate",
                                .body = {{"instance_ids", nlohmann::json::array({id})}}},
                               ParseLambdaTerminated));
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) {
      return absl::UnavailableError(
          absl::StrCat(doing, ": it is not among those that Lambda says it terminated"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Volume>> ListVolumes() override {
    ASSIGN_OR_RETURN(const std::vector<LambdaFileSystem> rows,
                     ListOf(api(), "list Lambda's file systems", "/api/v1/file-systems",
                            kFileSystems, ReadLambdaFileSystem));
    std::vector<Volume> volumes;
    for (const LambdaFileSystem& row : rows) {
      Volume& volume = volumes.emplace_back();
      volume.provider = kName;
      volume.id = row.id;
      volume.name = row.name;
      volume.used_bytes = row.used_bytes;
      volume.region = row.region.name;
      volume.mount_path = row.mount_point.empty() ? kMountPoint : row.mount_point;
      volume.mount_below = {"/home", "/lambda/nfs", "/data"};
      if (row.used_bytes.has_value()) {
        volume.usd_per_month = static_cast<double>(*row.used_bytes) / static_cast<double>(kDiskGb) *
                               kFileSystemUsdPerGbMonth;
      }
      volume.in_use = row.in_use;
    }
    return volumes;
  }

 private:
  static absl::StatusOr<LambdaLaunch> LaunchOf(const Offer& offer, const RentOptions& options,
                                               absl::string_view label) {
    const std::vector<std::string> parts = absl::StrSplit(offer.ref, '/');
    if (offer.provider != kName || parts.size() != 2 || parts[0].empty() || parts[1].empty()) {
      return ForeignOffer(offer, "Lambda");
    }
    if (!options.image.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("Lambda runs no container images: ", options.image));
    }
    if (offer.disk_bytes != 0 && options.disk_bytes > offer.disk_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("its disk has ", offer.disk_bytes / kDiskGb, " GB and cannot be larger"));
    }
    if (label.size() > kMaxNameBytes) {
      return absl::InvalidArgumentError(absl::StrCat("the label ", label, " is too long"));
    }
    LambdaLaunch launch;
    launch.instance_type = parts[0];
    launch.region = parts[1];
    launch.name = std::string(label);
    ASSIGN_OR_RETURN(launch.user_data, CloudInitData(options, "Lambda", kMaxUserDataBytes));
    launch.file_system_id = options.volume_id;
    launch.mount_point = options.volume_path.empty() ? kMountPoint : options.volume_path;
    return launch;
  }

  static std::string CountryOf(const LambdaRegion& region) {
    std::string country = CountryCode(region.description);
    if (country.empty() && absl::StartsWith(region.name, "us-")) country = "US";
    return country;
  }

  void Complete(JsonReader& row, Instance& instance) const override {
    LambdaRegion region;
    LambdaInstanceType type;
    row.ReadObject("region", "region", [&](JsonReader& json) { ReadLambdaRegion(json, region); });
    row.ReadObject("instance_type", "instance type",
                   [&](JsonReader& json) { ReadLambdaType(json, type); });
    instance.price_usd_per_hour = static_cast<double>(type.price_cents_per_hour) / 100;
    if (!type.gpu_description.empty()) {
      instance.gpu_name =
          CanonicalGpuName(type.gpu_description, LambdaGpuMemoryBytes(type.gpu_description));
    }
    instance.gpu_count = GpuCount(type.gpus);
    instance.region = region.name;
    if (!region.name.empty() && !type.name.empty()) instance.place = Place(type.name, region.name);
  }
};

}  // namespace

std::unique_ptr<Provider> MakeLambdaProvider(std::shared_ptr<Http> http, ProviderAccess access) {
  return std::make_unique<LambdaProvider>(std::move(http), std::move(access));
}

}  // namespace gpuctl
