#include "provisioning/runpod/runpod_provider.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "provisioning/market/gpu_models.h"
#include "provisioning/market/label.h"
#include "provisioning/market/offers.h"
#include "provisioning/market/registry_login.h"
#include "provisioning/market/rent_options.h"
#include "provisioning/rest/rest_market.h"
#include "provisioning/runpod/runpod_api.h"
#include "provisioning/runpod/runpod_graphql.h"
#include "provisioning/runpod/runpod_offers.h"
#include "provisioning/runpod/runpod_registries.h"
#include "provisioning/runpod/runpod_spot.h"

namespace gpuctl {
namespace {

constexpr char kDefaultImage[] = "runpod/pytorch:1.0.7-cu1281-torch291-ubuntu2204";
constexpr char kDefaultImageCuda[] = "12.8";  // hosts with an older driver refuse to start it
// The price of a standard network volume: of its first TB, and of the rest.
constexpr double kVolumeUsdPerGbMonth = 0.07;
constexpr double kMoreVolumeUsdPerGbMonth = 0.05;
constexpr int64_t kFirstVolumeGb = 1000;
constexpr char kVolumePath[] = "/workspace";
constexpr size_t kMaxEnv = 50;
// The time in which a log's present lines come.
constexpr absl::Duration kLogTime = absl::Seconds(2);

// Returns the monthly price of a network volume; absent when its tier has no published price.
std::optional<double> VolumeUsdPerMonth(const RunpodVolume& volume) {
  if (volume.type != "STANDARD") return std::nullopt;
  const int64_t first = std::min(volume.size_gb, kFirstVolumeGb);
  return static_cast<double>(first) * kVolumeUsdPerGbMonth +
         static_cast<double>(volume.size_gb - first) * kMoreVolumeUsdPerGbMonth;
}

std::string StartCommand(absl::string_view script) {
  if (script.empty()) return "";
  // This is in single quotes, so it must not contain any.
  return absl::StrCat("bash -c 'echo ", GzipBase64(script),
                      "|base64 -d|gzip -d>~/.gpuctl-start;"
                      "bash ~/.gpuctl-start>>/var/log/gpuctl-start.log 2>&1 </dev/null& "
                      "if [ -x /start.sh ];then exec /start.sh;fi;"
                      "mkdir -p /run/sshd /root/.ssh;echo $PUBLIC_KEY>>/root/.ssh/authorized_keys;"
                      "ssh-keygen -A;exec /usr/sbin/sshd -D'");
}

absl::Status StatusOfAnswer(const HttpResponse& response, bool creating) {
  return StatusOfRunpodRefusal(response, {"", RunpodErrorDetail(response.body)}, creating);
}

using State = Instance::State;
constexpr StateWord kStates[] = {{"RUNNING", State::kRunning},
                                 {"EXITED", State::kFailed},
                                 {"ERROR", State::kFailed},
                                 {"TERMINATED", State::kStopping, true}};
// The description has no pages; clients read "nextCursor" beside the rows, or in "pagination" with
// "hasNextPage".
constexpr absl::string_view kNext[] = {"nextCursor", "pagination.nextCursor"};
constexpr absl::string_view kMore[] = {"hasNextPage", "pagination.hasNextPage"};
constexpr char kPodPath[] = "/v2/pods/{id}";
constexpr MarketShape kShape = {.name = kRunpodName,
                                .title = "Runpod",
                                .machine = "pod",
                                .base_url = "https://api.runpod.io",
                                // The proxy beside ssh.direct transfers no files and is left out.
                                .instance = {.states = kStates,
                                             .host = "ssh.direct.host",
                                             .port = "ssh.direct.port",
                                             .user_at = "ssh.direct.username",
                                             .created = "createdAt"},
                                // Pods of clusters bill, too, and are listed only on request.
                                .list_path = "/v2/pods?includeClusterPods=true",
                                .list = {.what = "the list of pods",
                                         .part = "pod",
                                         .rows = "pods",
                                         .id = "id",
                                         .paging = {.by = Paging::By::kCursor,
                                                    .parameter = "cursor",
                                                    .next = kNext,
                                                    .more = kMore}},
                                .describe = {.path = kPodPath},
                                .end = {.path = kPodPath}};
constexpr ListShape kVolumes = {.what = "the list of network volumes",
                                .part = "network volume",
                                .rows = "networkVolumes",
                                .id = "id"};

class RunpodProvider : public RestMarket {
 public:
  RunpodProvider(std::shared_ptr<Http> http, const ProviderAccess& access)
      : RestMarket(kShape, std::move(http), access, StatusOfAnswer), secret_(access.api_key) {}

  ProviderTraits traits() const override {
    return {.ends_itself = ReleaseRouteOf(kRunpodName).way,
            .takes_image = true,
            .takes_login = true,
            .has_spot = true,
            .ready_within = absl::Minutes(10),
            .leave_out_for = absl::Hours(2)};
  }

  absl::StatusOr<std::vector<Offer>> ListOffers(const Requirements& requirements) override {
    if (IsElsewhere(requirements, kRunpodName)) return std::vector<Offer>();
    return requirements.spot ? ListRunpodSpotOffers(api(), requirements)
                             : ListRunpodOffers(api(), requirements);
  }

  absl::StatusOr<Instance> Rent(const Offer& offer, const RentOptions& options,
                                absl::string_view label) override {
    const std::string doing = absl::StrCat("rent ", offer.description, " from Runpod");
    const std::optional<RunpodSpotRef> spot = ParseRunpodSpotRef(offer);
    const absl::StatusOr<RunpodRef> ref =
        spot.has_value() ? RunpodRef{spot->cloud, "", spot->gpu_count, spot->gpu_id}
                         : ParseRunpodRef(offer);
    RETURN_IF_ERROR(ref.status());
    absl::StatusOr<RunpodCreate> create = CreateOf(*ref, options, label);
    if (create.ok() && options.registry_login.has_value()) {
      absl::StatusOr<std::string> id = RegistryFor(*options.registry_login, label);
      if (!id.ok()) return Annotate(BeforeCreate(id.status()), doing);
      create->registry_id = *std::move(id);
    }
    if (!create.ok()) return Annotate(create.status(), doing);
    if (spot.has_value()) return RentRunpodSpot(api(), doing, offer, *spot, options, *create);
    ASSIGN_OR_RETURN(const HttpResponse response, api().Ask({.doing = doing,
                                                             .kind = CallKind::kCreate,
                                                             .method = "POST",
                                                             .path = "/v2/pods",
                                                             .body = RunpodCreateBody(*create)}));
    const absl::StatusOr<nlohmann::json> row = ParseJson(response.body);
    absl::StatusOr<MarketRow> pod = row.ok() ? RowOf(*row) : row.status();
    if (!pod.ok()) {
      const std::string id = FindRunpodPodId(response.body);
      return Annotate(pod.status(), id.empty() ? doing : absl::StrCat(doing, ": pod ", id));
    }
    Instance& instance = pod->instance;
    instance.label = std::string(label);
    if (instance.price_usd_per_hour == 0) instance.price_usd_per_hour = offer.price_usd_per_hour;
    if (instance.gpu_name.empty()) instance.gpu_name = offer.gpu_name;
    if (instance.gpu_count == 0) instance.gpu_count = offer.gpu_count;
    return std::move(instance);
  }

  absl::StatusOr<int> RemoveUnusedLogins(absl::string_view owner) override {
    ASSIGN_OR_RETURN(const std::vector<nlohmann::json> pods, ListRowsOfInstances());
    std::set<std::string> used;
    for (const nlohmann::json& pod : pods) {
      if (RunpodText(pod, "status") != "TERMINATED") used.insert(RunpodText(pod, "registry"));
    }
    return RemoveRunpodRegistries(api(), owner, used);
  }

  absl::StatusOr<std::string> AccountId() override {
    return api().Ask({.doing = "look up the account at Runpod",
                      .kind = CallKind::kRead,
                      .method = "POST",
                      .path = kRunpodGraphqlPath,
                      .body = {{"query", kRunpodAccountQuery}}},
                     ParseRunpodAccountId);
  }

  absl::StatusOr<std::vector<Volume>> ListVolumes() override {
    ASSIGN_OR_RETURN(const std::vector<RunpodVolume> rows,
                     ListOf(api(), "list Runpod's network volumes", "/v2/network-volumes", kVolumes,
                            ReadRunpodVolume));
    std::vector<Volume> volumes;
    for (const RunpodVolume& row : rows) {
      Volume& volume = volumes.emplace_back();
      volume.provider = kRunpodName;
      volume.id = row.id;
      volume.name = row.name;
      volume.size_bytes = std::clamp<int64_t>(row.size_gb, 0, 1'000'000) * kDiskGb;
      volume.region = row.data_center;
      volume.mount_path = kVolumePath;
      volume.usd_per_month = VolumeUsdPerMonth(row);
    }
    return volumes;
  }

 private:
  absl::StatusOr<std::string> RegistryFor(const RegistryLogin& login, absl::string_view label) {
    const std::optional<LeaseLabel> ours = ParseLabel(label);
    return EnsureRunpodRegistry(
        api(), StoredLoginName(ours.has_value() ? ours->owner : "", login, secret_), login);
  }

  // Returns what the host said of an image that cannot be pulled; empty when it said nothing.
  std::string PullErrorOf(const InstanceId& id) const {
    const absl::StatusOr<HttpResponse> log =
        api().Ask({.doing = "read the log of a Runpod pod",
                   .kind = CallKind::kRead,
                   .method = "GET",
                   .path = absl::StrCat("/v2/pods/", UrlEncode(id), "/logs?source=system&tail=50"),
                   .endless_for = kLogTime});
    return log.ok() ? FindRunpodPullError(log->body) : "";
  }

  static absl::StatusOr<RunpodCreate> CreateOf(const RunpodRef& ref, const RentOptions& options,
                                               absl::string_view label) {
    RunpodCreate create;
    create.name = std::string(label);
    create.image = options.image.empty() ? kDefaultImage : options.image;
    if (options.image.empty()) create.min_cuda_version = kDefaultImageCuda;
    create.args = StartCommand(options.start_script);
    create.gpu_id = ref.gpu_id;
    create.gpu_count = ref.gpu_count;
    create.cloud = ref.cloud;
    create.data_center = ref.data_center;
    create.disk_gb = DiskGb(options.disk_bytes, kRunpodDefaultDiskGb);
    create.env = options.env;
    RETURN_IF_ERROR(CheckEnvNames(create.env));
    for (const char* name : {"RUNPOD_API_KEY", "PUBLIC_KEY"}) {
      if (create.env.count(name) == 0) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("the environment variable ", name, " is Runpod's own"));
    }
    RETURN_IF_ERROR(CheckedSshKey(options.ssh_public_key).status());
    create.start_ssh = options.ssh_public_key.empty();
    if (!create.start_ssh) create.env["PUBLIC_KEY"] = options.ssh_public_key;
    if (create.env.size() > kMaxEnv) {
      return absl::InvalidArgumentError(absl::StrCat(create.env.size(),
                                                     " environment variables; Runpod takes ",
                                                     kMaxEnv, ", one of them the key"));
    }
    create.volume_id = options.volume_id;
    create.volume_path = options.volume_path.empty() ? kVolumePath : options.volume_path;
    return create;
  }

  void Complete(JsonReader& row, Instance& instance) const override {
    RunpodPod pod;
    ReadRunpodPod(row, pod);
    const std::optional<double> price = RunpodPodUsdPerHour(pod);
    instance.price_usd_per_hour = price.value_or(0);
    instance.bills_nothing = price.has_value() && *price == 0;
    if (!pod.gpu_id.empty()) instance.gpu_name = CanonicalGpuName(pod.gpu_id, 0);
    instance.gpu_count = GpuCount(pod.gpu_count);
    instance.region = pod.data_center;
    if (!pod.data_center.empty() && !pod.gpu_id.empty()) {
      instance.place = RunpodPlace(pod.cloud, pod.data_center, pod.gpu_id);
    }
  }

  // The pod itself says nothing of an image that cannot be pulled, and would wait for ever. Our own
  // image is always there.
  void LookFurther(const nlohmann::json& row, Instance& instance) const override {
    const std::string image = RunpodText(row, "image");
    if (instance.state != State::kStarting || image.empty() || image == kDefaultImage) return;
    const std::string error = PullErrorOf(instance.id);
    instance.image_fails = !error.empty();
    if (error.empty()) return;
    instance.status = PrintableText(absl::StrCat(instance.status, ": ", error), 160);
  }

  const std::string secret_;  // the key
};

}  // namespace

std::unique_ptr<Provider> MakeRunpodProvider(std::shared_ptr<Http> http, ProviderAccess access) {
  return std::make_unique<RunpodProvider>(std::move(http), access);
}

}  // namespace gpuctl
