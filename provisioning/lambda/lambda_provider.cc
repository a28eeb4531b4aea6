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
#include "provisioning/market/regions.h"
#include "provisioning/market/rest_api.h"

namespace gpuctl {
namespace {

constexpr char kName[] = "lambda";
constexpr char kBaseUrl[] = "https://cloud.lambda.ai";
constexpr size_t kMaxUserDataBytes = 1'000'000;
constexpr size_t kMaxNameBytes = 64;
constexpr char kMountPoint[] = "/lambda/nfs/gpuctl";
constexpr double kFileSystemUsdPerGbMonth = 0.20;  // of what is in it

std::string Place(absl::string_view region) { return absl::StrCat(kName, "/", region); }

// Errors by their code alone; the HTTP status where there is none.
absl::Status StatusOfError(const HttpResponse& response, bool launching) {
  const LambdaError error = ParseLambdaError(response.body);
  const std::string& code = error.code;
  const std::string said =
      HttpSaid(response, code.empty() ? "" : absl::StrCat(error.message, " (", code, ")"));
  if (code.empty()) {
    if (launching) return StatusOfCreate(response.status, said);
    // "Gone" must be Lambda's own word, not that of something in front of it.
    return response.status == 404 ? absl::UnknownError(said) : StatusOfHttp(response.status, said);
  }
  if (response.status == 429) return absl::UnavailableError(said);
  if (code == "global/invalid-api-key") return absl::UnauthenticatedError(said);
  if (code == "global/account-inactive" || code == "global/invalid-address" ||
      code == "global/forbidden") {
    return absl::PermissionDeniedError(said);
  }
  if (code == "global/quota-exceeded") return absl::ResourceExhaustedError(said);
  if (code == "instance-operations/launch/insufficient-capacity") return absl::AbortedError(said);
  if (code == "global/duplicate" || code == "ssh-keys/key-in-use") {
    return absl::AlreadyExistsError(said);
  }
  if (code == "global/object-does-not-exist") {
    return launching ? absl::InvalidArgumentError(said) : absl::NotFoundError(said);
  }
  // No route of that name: our mistake, and no word about an instance.
  if (code == "global/not-found") return absl::FailedPreconditionError(said);
  if (code == "global/conflict" || code == "filesystems/filesystem-in-use") {
    return launching ? absl::AbortedError(said) : absl::UnavailableError(said);
  }
  if (code == "global/internal-error" || code == "global/unknown" ||
      absl::StartsWith(code, "provider/")) {
    return launching ? absl::UnknownError(said) : absl::UnavailableError(said);
  }
  if (code == "global/invalid-parameters" ||
      code == "instance-operations/launch/file-system-in-wrong-region") {
    return absl::InvalidArgumentError(said);
  }
  if (launching) return StatusOfCreate(response.status, said);
  return response.status == 404 ? absl::UnknownError(said) : StatusOfHttp(response.status, said);
}

class LambdaProvider : public Provider {
 public:
  LambdaProvider(std::shared_ptr<Http> http, ProviderAccess access)
      : http_(std::move(http)), access_(std::move(access)) {
    if (access_.base_url.empty()) access_.base_url = kBaseUrl;
  }

  absl::string_view name() const override { return kName; }

  ProviderTraits traits() const override {
    ProviderTraits traits;
    traits.ready_within = absl::Minutes(20);
    traits.billing_quantum = absl::Minutes(1);
    return traits;
  }

  absl::StatusOr<std::vector<Offer>> ListOffers(const Requirements& requirements) override {
    std::vector<Offer> offers;
    if (requirements.spot || IsElsewhere(requirements, kName)) return offers;
    constexpr absl::string_view kDoing = "list Lambda's instance types";
    ASSIGN_OR_RETURN(const HttpResponse response, Get("/api/v1/instance-types", kDoing));
    const absl::StatusOr<std::vector<LambdaInstanceType>> types =
        ParseLambdaInstanceTypes(response.body);
    if (!types.ok()) return Annotate(types.status(), kDoing);
    const std::vector<Requirements::Gpu> gpus = AskedGpus(requirements);
    for (const LambdaInstanceType& type : *types) {
      if (type.gpus < 1 || type.price_cents_per_hour <= 0) continue;
      const int64_t memory_bytes = LambdaGpuMemoryBytes(type.gpu_description);
      const std::string gpu_name = CanonicalGpuName(type.gpu_description, memory_bytes);
      const int64_t disk_bytes = std::clamp<int64_t>(type.storage_gib, 0, 1 << 30) << 30;
      if (disk_bytes != 0 && disk_bytes < requirements.disk_bytes) continue;
      if (std::none_of(gpus.begin(), gpus.end(), [&](const Requirements::Gpu& gpu) {
            return gpu.count == type.gpus && GpuSatisfies(gpu, gpu_name, memory_bytes);
          })) {
        continue;
      }
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
        offer.place = Place(region.name);
        offers.push_back(std::move(offer));
      }
    }
    KeepAffordable(requirements, offers);
    return offers;
  }

  absl::StatusOr<Instance> Rent(const Offer& offer, const RentOptions& options,
                                absl::string_view label) override {
    const std::string doing = absl::StrCat("rent ", offer.description, " from Lambda");
    absl::StatusOr<LambdaLaunch> launch = LaunchOf(offer, options, label);
    if (!launch.ok()) return Annotate(launch.status(), doing);
    absl::StatusOr<std::string> key = KeyName(options.ssh_public_key);
    if (!key.ok()) return Annotate(BeforeCreate(key.status()), doing);
    launch->ssh_key_name = *std::move(key);
    const absl::StatusOr<HttpResponse> response =
        http_->Send(ApiRequest(access_, "POST", "/api/v1/instance-operations/launch", "launch",
                               /*repeatable=*/false, LambdaLaunchBody(*launch)));
    if (!response.ok()) return Annotate(response.status(), doing);
    if (response->status / 100 != 2) {
      return Annotate(StatusOfError(*response, /*launching=*/true), doing);
    }
    const absl::StatusOr<std::vector<std::string>> ids = ParseLambdaLaunch(response->body);
    if (!ids.ok()) return Annotate(ids.status(), doing);
    if (ids->size() != 1) {
      return absl::UnknownError(absl::StrCat(doing, ": the answer names ", ids->size(),
                                             " instances: ", absl::StrJoin(*ids, ", ")));
    }
    Instance instance;
    instance.id = ids->front();
    instance.label = std::string(label);
    instance.status = "booting";
    instance.price_usd_per_hour = offer.price_usd_per_hour;
    instance.gpu_name = offer.gpu_name;
    instance.gpu_count = offer.gpu_count;
    instance.region = launch->region;
    instance.place = Place(launch->region);
    return instance;
  }

  absl::StatusOr<Instance> Describe(const InstanceId& id) override {
    const std::string doing = absl::StrCat("describe Lambda instance ", id);
    // An empty id would ask for the list.
    if (id.empty()) return absl::InvalidArgumentError("describe Lambda instance: no id");
    ASSIGN_OR_RETURN(const HttpResponse response,
                     Get(absl::StrCat("/api/v1/instances/", UrlEncode(id)), doing));
    const absl::StatusOr<LambdaInstance> instance = ParseLambdaInstance(response.body);
    if (!instance.ok()) return Annotate(instance.status(), doing);
    if (instance->id != id) {
      return absl::UnknownError(
          absl::StrCat(doing, ": the answer is about instance ", instance->id));
    }
    if (instance->status == "terminated") {
      return absl::NotFoundError(absl::StrCat(doing, ": it is terminated"));
    }
    return InstanceOf(*instance);
  }

  absl::StatusOr<std::vector<Instance>> ListInstances() override {
    constexpr absl::string_view kDoing = "list Lambda instances";
    ASSIGN_OR_RETURN(const HttpResponse response, Get("/api/v1/instances", kDoing));
    const absl::StatusOr<std::vector<LambdaInstance>> rows = ParseLambdaInstances(response.body);
    if (!rows.ok()) return Annotate(rows.status(), kDoing);
    std::vector<Instance> instances;
    for (const LambdaInstance& row : *rows) {
      if (row.status != "terminated") instances.push_back(InstanceOf(row));
    }
    return instances;
  }

  absl::Status Terminate(const InstanceId& id) override {
    const std::string doing = absl::StrCat("terminate Lambda instance ", id);
    if (id.empty()) return absl::InvalidArgumentError("terminate Lambda instance: no id");
    const absl::StatusOr<HttpResponse> response = http_->Send(ApiRequest(
        access_, "POST", "/api/v1/instance-operations/terminate", "",
        /*repeatable=*/true, nlohmann::json{{"instance_ids", nlohmann::json::array({id})}}));
    if (!response.ok()) return Annotate(response.status(), doing);
    if (response->status / 100 != 2) {
      const absl::Status status = StatusOfError(*response, /*launching=*/false);
      return absl::IsNotFound(status) ? absl::OkStatus() : Annotate(status, doing);
    }
    const absl::StatusOr<std::vector<std::string>> ids = ParseLambdaTerminated(response->body);
    if (!ids.ok()) return Annotate(ids.status(), doing);
    if (std::find(ids->begin(), ids->end(), id) == ids->end()) {
      return absl::UnavailableError(
          absl::StrCat(doing, ": it is not among those that Lambda says it terminated"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Volume>> ListVolumes() override {
    constexpr absl::string_view kDoing = "list Lambda's file systems";
    ASSIGN_OR_RETURN(const HttpResponse response, Get("/api/v1/file-systems", kDoing));
    const absl::StatusOr<std::vector<LambdaFileSystem>> rows =
        ParseLambdaFileSystems(response.body);
    if (!rows.ok()) return Annotate(rows.status(), kDoing);
    std::vector<Volume> volumes;
    for (const LambdaFileSystem& row : *rows) {
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
  absl::StatusOr<HttpResponse> Get(absl::string_view path, absl::string_view doing) {
    absl::StatusOr<HttpResponse> response =
        http_->Send(ApiRequest(access_, "GET", path, "", /*repeatable=*/true));
    if (!response.ok()) return Annotate(response.status(), doing);
    if (response->status != 200) {
      return Annotate(StatusOfError(*response, /*launching=*/false), doing);
    }
    return response;
  }

  // The name under which the account holds the key of that type and blob; any, when empty.
  // NOT_FOUND: it has none.
  absl::StatusOr<std::string> FindKey(absl::string_view identity) {
    ASSIGN_OR_RETURN(const HttpResponse response, Get("/api/v1/ssh-keys", "list ssh keys"));
    const absl::StatusOr<std::vector<LambdaSshKey>> keys = ParseLambdaSshKeys(response.body);
    if (!keys.ok()) return Annotate(keys.status(), "list ssh keys");
    for (const LambdaSshKey& key : *keys) {
      if (identity.empty() || SshKeyIdentity(key.public_key) == identity) return key.name;
    }
    return absl::NotFoundError("the account has no such ssh key");
  }

  // The same; the key is registered when it is not there.
  absl::StatusOr<std::string> KeyName(const std::string& public_key) {
    const std::string identity = SshKeyIdentity(public_key);
    if (identity.empty() && !public_key.empty()) {
      return absl::InvalidArgumentError("the ssh public key is none");
    }
    absl::StatusOr<std::string> found = FindKey(identity);
    if (!absl::IsNotFound(found.status())) return found;
    if (public_key.empty()) {
      return absl::InvalidArgumentError("no ssh key given, and the account has none");
    }
    const nlohmann::json body = {
        {"name", absl::StrCat("gpuctl-", Sha256HexOf(identity).substr(0, 12))},
        {"public_key", identity}};
    const absl::StatusOr<HttpResponse> response = http_->Send(
        ApiRequest(access_, "POST", "/api/v1/ssh-keys", "", /*repeatable=*/false, body));
    if (!response.ok()) return Annotate(response.status(), "register the ssh key");
    if (response->status / 100 == 2) {
      const absl::StatusOr<LambdaSshKey> key = ParseLambdaSshKey(response->body);
      if (!key.ok()) return Annotate(key.status(), "register the ssh key");
      return key->name;
    }
    const absl::Status refused = StatusOfError(*response, /*launching=*/false);
    if (!absl::IsAlreadyExists(refused)) return Annotate(refused, "register the ssh key");
    // Somebody else was faster.
    found = FindKey(identity);
    if (absl::IsNotFound(found.status())) {
      return absl::InvalidArgumentError(
          absl::StrCat("register the ssh key: the account has another one of the name ",
                       body["name"].get<std::string>()));
    }
    return found;
  }

  static absl::StatusOr<LambdaLaunch> LaunchOf(const Offer& offer, const RentOptions& options,
                                               absl::string_view label) {
    const std::vector<std::string> parts = absl::StrSplit(offer.ref, '/');
    if (offer.provider != kName || parts.size() != 2 || parts[0].empty() || parts[1].empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("offer ", offer.provider, " ", offer.ref, " is none of Lambda's"));
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
    if (!script.empty()) launch.user_data = absl::StrCat("#!/bin/bash\n", script);
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
    // A name that was changed since.
    if (!ParseLabel(row.name) && ParseLabel(row.lease_tag)) instance.label = row.lease_tag;
    instance.status = PrintableText(row.status, 60);
    if (row.status == "active" && !row.ip.empty()) {
      instance.state = Instance::State::kRunning;
      instance.address = SshAddress();
      instance.address->host = row.ip;
      instance.address->user = "ubuntu";
    } else if (row.status == "unhealthy" || row.status == "preempted") {
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
    if (!row.region.name.empty()) instance.place = Place(row.region.name);
    return instance;
  }

  std::shared_ptr<Http> http_;
  ProviderAccess access_;
};

}  // namespace

std::unique_ptr<Provider> MakeLambdaProvider(std::shared_ptr<Http> http, ProviderAccess access) {
  return std::make_unique<LambdaProvider>(std::move(http), std::move(access));
}

}  // namespace gpuctl
