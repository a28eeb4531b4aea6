#include "provisioning/runpod/runpod_provider.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "provisioning/market/gpu_models.h"
#include "provisioning/market/label.h"
#include "provisioning/market/offers.h"
#include "provisioning/market/registry_login.h"
#include "provisioning/market/rent_options.h"
#include "provisioning/market/rest_api.h"
#include "provisioning/runpod/runpod_api.h"
#include "provisioning/runpod/runpod_graphql.h"
#include "provisioning/runpod/runpod_offers.h"
#include "provisioning/runpod/runpod_registries.h"
#include "provisioning/runpod/runpod_spot.h"

namespace gpuctl {
namespace {

constexpr char kBaseUrl[] = "https://api.runpod.io";
constexpr char kDefaultImage[] = "runpod/pytorch:1.0.7-cu1281-torch291-ubuntu2204";
constexpr char kDefaultImageCuda[] = "12.8";  // hosts with an older driver refuse to start it
// The price of a standard network volume: of its first TB, and of the rest.
constexpr double kVolumeUsdPerGbMonth = 0.07;
constexpr double kMoreVolumeUsdPerGbMonth = 0.05;
constexpr int64_t kFirstVolumeGb = 1000;
constexpr char kVolumePath[] = "/workspace";
constexpr size_t kMaxEnv = 50;
constexpr int kMaxPages = 100;
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

class RunpodProvider : public Provider {
 public:
  RunpodProvider(std::shared_ptr<Http> http, ProviderAccess access)
      : secret_(access.api_key),
        api_(std::move(http), std::move(access), kBaseUrl, StatusOfAnswer) {}

  absl::string_view name() const override { return kRunpodName; }

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
    return requirements.spot ? ListRunpodSpotOffers(api_, requirements)
                             : ListRunpodOffers(api_, requirements);
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
    if (spot.has_value()) return RentRunpodSpot(api_, doing, offer, *spot, options, *create);
    ASSIGN_OR_RETURN(const HttpResponse response, api_.Ask({.doing = doing,
                                                            .kind = CallKind::kCreate,
                                                            .method = "POST",
                                                            .path = "/v2/pods",
                                                            .body = RunpodCreateBody(*create)}));
    absl::StatusOr<RunpodPod> pod = ParseRunpodPod(response.body);
    if (!pod.ok()) {
      const std::string id = FindRunpodPodId(response.body);
      return Annotate(pod.status(), id.empty() ? doing : absl::StrCat(doing, ": pod ", id));
    }
    Instance instance = InstanceOf(*pod);
    instance.label = std::string(label);
    if (instance.price_usd_per_hour == 0) instance.price_usd_per_hour = offer.price_usd_per_hour;
    if (instance.gpu_name.empty()) instance.gpu_name = offer.gpu_name;
    if (instance.gpu_count == 0) instance.gpu_count = offer.gpu_count;
    return instance;
  }

  absl::StatusOr<Instance> Describe(const InstanceId& id) override {
    const std::string doing = absl::StrCat("describe Runpod pod ", id);
    // An empty id would ask for the list.
    if (id.empty()) return absl::InvalidArgumentError("describe Runpod pod: no id");
    ASSIGN_OR_RETURN(const RunpodPod pod,
                     api_.Get(doing, absl::StrCat("/v2/pods/", UrlEncode(id)), ParseRunpodPod));
    if (pod.id != id) {
      return absl::UnknownError(absl::StrCat(doing, ": the answer is about pod ", pod.id));
    }
    if (pod.status == "TERMINATED") {
      return absl::NotFoundError(absl::StrCat(doing, ": it is terminated"));
    }
    Instance instance = InstanceOf(pod);
    // The pod itself says nothing of an image that cannot be pulled, and would wait for ever. Our
    // own image is always there.
    if (instance.state == Instance::State::kStarting && !pod.image.empty() &&
        pod.image != kDefaultImage) {
      const std::string error = PullErrorOf(id);
      instance.image_fails = !error.empty();
      if (!error.empty()) {
        instance.status = PrintableText(absl::StrCat(instance.status, ": ", error), 160);
      }
    }
    return instance;
  }

  absl::StatusOr<std::vector<Instance>> ListInstances() override { return ListPods(nullptr); }

  absl::StatusOr<int> RemoveUnusedLogins(absl::string_view owner) override {
    std::set<std::string> used;
    RETURN_IF_ERROR(ListPods(&used).status());
    return RemoveRunpodRegistries(api_, owner, used);
  }

  absl::Status Terminate(const InstanceId& id) override {
    const std::string doing = absl::StrCat("terminate Runpod pod ", id);
    if (id.empty()) return absl::InvalidArgumentError("terminate Runpod pod: no id");
    return api_
        .Ask({.doing = doing,
              .kind = CallKind::kRepeat,
              .method = "DELETE",
              .path = absl::StrCat("/v2/pods/", UrlEncode(id))})
        .status();
  }

  absl::StatusOr<std::string> AccountId() override {
    return api_.Ask({.doing = "look up the account at Runpod",
                     .kind = CallKind::kRead,
                     .method = "POST",
                     .path = kRunpodGraphqlPath,
                     .body = {{"query", kRunpodAccountQuery}}},
                    ParseRunpodAccountId);
  }

  absl::StatusOr<std::vector<Volume>> ListVolumes() override {
    ASSIGN_OR_RETURN(
        const std::vector<RunpodVolume> rows,
        api_.Get("list Runpod's network volumes", "/v2/network-volumes", ParseRunpodVolumes));
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
  // Lists the pods that bill. Adds the ids of their registry logins to `logins` unless it is null.
  absl::StatusOr<std::vector<Instance>> ListPods(std::set<std::string>* logins) {
    constexpr absl::string_view kDoing = "list Runpod pods";
    return ReadPages(
        kDoing, kMaxPages, [&](const std::string& cursor) -> absl::StatusOr<InstancePage> {
          // Pods of clusters bill, too, and are listed only on request.
          std::string path = "/v2/pods?includeClusterPods=true";
          if (!cursor.empty()) absl::StrAppend(&path, "&cursor=", UrlEncode(cursor));
          ASSIGN_OR_RETURN(const RunpodPodPage rows, api_.Get(kDoing, path, ParseRunpodPods));
          InstancePage page;
          page.next = rows.next_cursor;
          for (const RunpodPod& pod : rows.pods) {
            page.ids.push_back(pod.id);
            if (pod.status == "TERMINATED") continue;
            page.instances.push_back(InstanceOf(pod));
            if (logins != nullptr) logins->insert(pod.registry_id);
          }
          return page;
        });
  }

  absl::StatusOr<std::string> RegistryFor(const RegistryLogin& login, absl::string_view label) {
    const std::optional<LeaseLabel> ours = ParseLabel(label);
    return EnsureRunpodRegistry(
        api_, StoredLoginName(ours.has_value() ? ours->owner : "", login, secret_), login);
  }

  // Returns what the host said of an image that cannot be pulled; empty when it said nothing.
  std::string PullErrorOf(const InstanceId& id) {
    const absl::StatusOr<HttpResponse> log =
        api_.Ask({.doing = "read the log of a Runpod pod",
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

  static Instance InstanceOf(const RunpodPod& pod) {
    Instance instance;
    instance.id = pod.id;
    instance.label = pod.name;
    instance.status = PrintableText(pod.status, 60);
    if (!pod.ssh_host.empty()) {
      instance.address = SshAddress();
      instance.address->host = pod.ssh_host;
      instance.address->port = static_cast<int>(pod.ssh_port);
      instance.address->user = pod.ssh_user;
    }
    if (pod.status == "RUNNING") {
      // Runpod may say RUNNING before anything runs, but shows an address only after that.
      instance.state = instance.address ? Instance::State::kRunning : Instance::State::kStarting;
    } else if (pod.status == "EXITED" || pod.status == "ERROR") {
      instance.state = Instance::State::kFailed;
    } else if (pod.status == "TERMINATED") {
      instance.state = Instance::State::kStopping;
    }
    // After a stop the old port may still be shown for a while.
    if (instance.state != Instance::State::kRunning) instance.address.reset();
    const std::optional<double> price = RunpodPodUsdPerHour(pod);
    instance.price_usd_per_hour = price.value_or(0);
    instance.bills_nothing = price.has_value() && *price == 0;
    if (!pod.gpu_id.empty()) instance.gpu_name = CanonicalGpuName(pod.gpu_id, 0);
    instance.gpu_count = static_cast<int>(std::clamp<int64_t>(pod.gpu_count, 0, 1024));
    instance.region = pod.data_center;
    if (!pod.data_center.empty() && !pod.gpu_id.empty()) {
      instance.place = RunpodPlace(pod.cloud, pod.data_center, pod.gpu_id);
    }
    absl::Time created;
    std::string problem;
    if (absl::ParseTime(absl::RFC3339_full, pod.created_at, &created, &problem)) {
      instance.created_ms = absl::ToUnixMillis(created);
    }
    return instance;
  }

  const std::string secret_;  // the key
  RestApi api_;
};

}  // namespace

std::unique_ptr<Provider> MakeRunpodProvider(std::shared_ptr<Http> http, ProviderAccess access) {
  return std::make_unique<RunpodProvider>(std::move(http), std::move(access));
}

}  // namespace gpuctl
