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
#include "common/files/sha256.h"
#include "provisioning/lambda/lambda_api.h"
#include "provisioning/market/gpu_models.h"
#include "provisioning/market/label.h"
#include "provisioning/market/offers.h"
#include "provisioning/market/refusals.h"
#include "provisioning/market/regions.h"
#include "provisioning/market/rent_options.h"
#include "provisioning/market/rest_api.h"

namespace gpuctl {
namespace {

constexpr char kName[] = "lambda";
constexpr char kBaseUrl[] = "https://cloud.lambda.ai";
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

class LambdaProvider : public Provider {
 public:
  LambdaProvider(std::shared_ptr<Http> http, ProviderAccess access)
      : api_(std::move(http), std::move(access), kBaseUrl, StatusOfAnswer) {}

  absl::string_view name() const override { return kName; }

  ProviderTraits traits() const override {
    return {.takes_host_key = true,
            .ready_within = absl::Minutes(20),
            .billing_quantum = absl::Minutes(1)};
  }

  absl::StatusOr<std::vector<Offer>> ListOffers(const Requirements& requirements) override {
    std::vector<Offer> offers;
    if (requirements.spot || IsElsewhere(requirements, kName)) return offers;
    ASSIGN_OR_RETURN(const std::vector<LambdaInstanceType> types,
                     api_.Get("list Lambda's instance types", "/api/v1/instance-types",
                              ParseLambdaInstanceTypes));
    for (const LambdaInstanceType& type : types) {
      if (type.gpus < 1 || type.price_cents_per_hour <= 0) continue;
      const int64_t memory_bytes = LambdaGpuMemoryBytes(type.gpu_description);
      const std::string gpu_name = CanonicalGpuName(type.gpu_description, memory_bytes);
      const int64_t disk_bytes = std::clamp<int64_t>(type.storage_gib, 0, 1 << 30) << 30;
      if (disk_bytes != 0 && disk_bytes < requirements.disk_bytes) continue;
      if (!AsksFor(requirements, type.gpus, gpu_name, memory_bytes)) continue;
      for (const LambdaRegion& region : type.regions_with_capacity) {
        if (!IsInRegions(requirements.regions, region.name, CountryOf(region))) continue;
        if (requirements.volume.has_value() && requirements.volume->region != region.name) continue;
        Offer offer;
        offer.provider = kName;
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
        offers.push_back(std::move(offer));
      }
    }
    KeepAffordable(requirements, offers);
    return offers;
  }

  absl::StatusOr<Instance> Rent(const Offer& offer, const RentOptions& options,
                                absl::string_view label) override {
    const std::string doing = absl::StrCat("rent ", offer.description, " from Lambda");
    if (options.registry_login.has_value()) {
      RETURN_IF_ERROR(Annotate(CheckLogin(*options.registry_login), doing));
    }
    absl::StatusOr<LambdaLaunch> launch = LaunchOf(offer, options, label);
    if (!launch.ok()) return Annotate(launch.status(), doing);
    absl::StatusOr<std::string> key = KeyName(options.ssh_public_key);
    if (!key.ok()) return Annotate(BeforeCreate(key.status()), doing);
    launch->ssh_key_name = *std::move(key);
    ASSIGN_OR_RETURN(const std::vector<std::string> ids,
                     api_.Ask({.doing = doing,
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

  absl::StatusOr<Instance> Describe(const InstanceId& id) override {
    const std::string doing = absl::StrCat("describe Lambda instance ", id);
    // An empty id would ask for the list.
    if (id.empty()) return absl::InvalidArgumentError("describe Lambda instance: no id");
    ASSIGN_OR_RETURN(
        const LambdaInstance row,
        api_.Get(doing, absl::StrCat("/api/v1/instances/", UrlEncode(id)), ParseLambdaInstance));
    if (row.id != id) {
      return absl::UnknownError(absl::StrCat(doing, ": the answer is about instance ", row.id));
    }
    if (row.status == "terminated") {
      return absl::NotFoundError(absl::StrCat(doing, ": it is terminated"));
    }
    return InstanceOf(row);
  }

  absl::StatusOr<std::vector<Instance>> ListInstances() override {
    ASSIGN_OR_RETURN(const std::vector<LambdaInstance> rows,
                     api_.Get("list Lambda instances", "/api/v1/instances", ParseLambdaInstances));
    std::vector<Instance> instances;
    for (const LambdaInstance& row : rows) {
      if (row.status != "terminated") instances.push_back(InstanceOf(row));
    }
    return instances;
  }

  absl::Status Terminate(const InstanceId& id) override {
    const std::string doing = absl::StrCat("terminate Lambda instance ", id);
    if (id.empty()) return absl::InvalidArgumentError("terminate Lambda instance: no id");
    const absl::StatusOr<std::vector<std::string>> ids =
        api_.Ask({.doing = doing,
                  .kind = CallKind::kRepeat,
                  .method = "POST",
                  .path = "/api/v1/instance-operations/terminate",
                  .body = {{"instance_ids", nlohmann::json::array({id})}}},
                 ParseLambdaTerminated);
    RETURN_IF_ERROR(ids.status());
    if (std::find(ids->begin(), ids->end(), id) == ids->end()) {
      return absl::UnavailableError(
          absl::StrCat(doing, ": it is not among those that Lambda says it terminated"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Volume>> ListVolumes() override {
    ASSIGN_OR_RETURN(
        const std::vector<LambdaFileSystem> rows,
        api_.Get("list Lambda's file systems", "/api/v1/file-systems", ParseLambdaFileSystems));
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
  // Returns the account's name for the key of that type and blob; for any key when `identity` is
  // empty. NOT_FOUND when the account has none.
  absl::StatusOr<std::string> FindKey(absl::string_view identity) {
    ASSIGN_OR_RETURN(const std::vector<LambdaSshKey> keys,
                     api_.Get("list ssh keys", "/api/v1/ssh-keys", ParseLambdaSshKeys));
    for (const LambdaSshKey& key : keys) {
      if (identity.empty() || SshKeyIdentity(key.public_key) == identity) return key.name;
    }
    return absl::NotFoundError("the account has no such ssh key");
  }

  // Returns the same, and registers the key when the account does not have it.
  absl::StatusOr<std::string> KeyName(const std::string& public_key) {
    ASSIGN_OR_RETURN(const std::string identity, CheckedSshKey(public_key));
    absl::StatusOr<std::string> found = FindKey(identity);
    if (!absl::IsNotFound(found.status())) return found;
    if (public_key.empty()) {
      return absl::InvalidArgumentError("no ssh key given, and the account has none");
    }
    constexpr absl::string_view kDoing = "register the ssh key";
    const std::string name = absl::StrCat("gpuctl-", Sha256HexOf(identity).substr(0, 12));
    const absl::StatusOr<LambdaSshKey> key =
        api_.Ask({.doing = kDoing,
                  .method = "POST",
                  .path = "/api/v1/ssh-keys",
                  .body = {{"name", name}, {"public_key", identity}}},
                 ParseLambdaSshKey);
    if (key.ok()) return key->name;
    if (!absl::IsAlreadyExists(key.status())) return key.status();
    // Somebody else registered it first.
    found = FindKey(identity);
    if (absl::IsNotFound(found.status())) {
      return absl::InvalidArgumentError(
          absl::StrCat(kDoing, ": the account has another one of the name ", name));
    }
    return found;
  }

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
    std::string script;
    for (const auto& variable : options.env) {
      if (!IsEnvName(variable.first) || absl::StrContains(variable.second, "\n")) {
        return absl::InvalidArgumentError(
            absl::StrCat("the environment variable \"", variable.first, "\" cannot be passed on"));
      }
      const std::string line = absl::StrCat(variable.first, "=", variable.second);
      absl::StrAppend(&script, "export ", variable.first, "=", QuoteForShell(variable.second),
                      "\nprintf '%s\\n' ", QuoteForShell(line), " >> /etc/environment\n");
    }
    absl::StrAppend(&script, options.start_script);
    launch.user_data = LambdaUserData(script, options.host_key);
    if (launch.user_data.size() > kMaxUserDataBytes) {
      return absl::InvalidArgumentError(absl::StrCat("the start script has ",
                                                     launch.user_data.size(),
                                                     " bytes; Lambda takes ", kMaxUserDataBytes));
    }
    launch.file_system_id = options.volume_id;
    launch.mount_point = options.volume_path.empty() ? kMountPoint : options.volume_path;
    return launch;
  }

  static std::string CountryOf(const LambdaRegion& region) {
    std::string country = CountryCode(region.description);
    if (country.empty() && absl::StartsWith(region.name, "us-")) country = "US";
    return country;
  }

  static Instance InstanceOf(const LambdaInstance& row) {
    Instance instance;
    instance.id = row.id;
    instance.label = row.name;
    // The name was changed after the launch.
    if (!ParseLabel(row.name) && ParseLabel(row.lease_tag)) instance.label = row.lease_tag;
    instance.status = PrintableText(row.status, 60);
    if (row.status == "active" && !row.ip.empty()) {
      instance.state = Instance::State::kRunning;
      instance.address = SshAddress();
      instance.address->host = row.ip;
      instance.address->user = "ubuntu";
    } else if (row.status == "unhealthy") {
      instance.state = Instance::State::kSilent;
    } else if (row.status == "preempted") {
      instance.state = Instance::State::kFailed;
    } else if (row.status == "terminating" || row.status == "terminated") {
      instance.state = Instance::State::kStopping;
    }
    instance.price_usd_per_hour = static_cast<double>(row.type.price_cents_per_hour) / 100;
    const int64_t memory_bytes = LambdaGpuMemoryBytes(row.type.gpu_description);
    if (!row.type.gpu_description.empty()) {
      instance.gpu_name = CanonicalGpuName(row.type.gpu_description, memory_bytes);
    }
    instance.gpu_count = static_cast<int>(std::clamp<int64_t>(row.type.gpus, 0, 1024));
    instance.region = row.region.name;
    if (!row.region.name.empty() && !row.type.name.empty()) {
      instance.place = Place(row.type.name, row.region.name);
    }
    return instance;
  }

  RestApi api_;
};

}  // namespace

std::unique_ptr<Provider> MakeLambdaProvider(std::shared_ptr<Http> http, ProviderAccess access) {
  return std::make_unique<LambdaProvider>(std::move(http), std::move(access));
}

}  // namespace gpuctl
