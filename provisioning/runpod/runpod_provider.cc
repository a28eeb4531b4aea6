#include "provisioning/runpod/runpod_provider.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "provisioning/market/gpu_models.h"
#include "provisioning/market/regions.h"
#include "provisioning/market/rest_api.h"
#include "provisioning/runpod/runpod_api.h"
#include "provisioning/runpod/runpod_spot.h"

namespace gpuctl {
namespace {

constexpr char kName[] = "runpod";
constexpr char kBaseUrl[] = "https://api.runpod.io";
constexpr char kDefaultImage[] = "runpod/pytorch:1.0.7-cu1281-torch291-ubuntu2204";
constexpr char kDefaultImageCuda[] = "12.8";  // hosts with an older driver refuse to start it
// Of a standard network volume; of what is above the first TB the second.
constexpr double kVolumeUsdPerGbMonth = 0.07;
constexpr double kMoreVolumeUsdPerGbMonth = 0.05;
constexpr int64_t kFirstVolumeGb = 1000;
constexpr char kVolumePath[] = "/workspace";
constexpr size_t kMaxEnv = 50;
constexpr int kMaxPages = 100;
constexpr const char* kClouds[] = {"SECURE", "COMMUNITY"};

// "US" of US-TX-3, "RO" of EU-RO-1, "CA" of CA-MTL-1.
std::string CountryOfDataCenter(absl::string_view id) {
  const std::vector<absl::string_view> parts = absl::StrSplit(id, '-');
  const std::string first = CountryCode(parts[0]);
  if (!first.empty() && parts[0] != "AP" && parts[0] != "OC" && parts[0] != "SA") return first;
  return parts.size() > 1 ? CountryCode(parts[1]) : "";
}

// As near as one gets to a machine: which one a pod comes to is not told before it is rented.
std::string Place(absl::string_view cloud, absl::string_view data_center,
                  absl::string_view gpu_id) {
  return absl::StrCat(kName, "/", data_center.empty() ? cloud : data_center, "/", gpu_id);
}

// What a network volume costs a month, where its tier has a published price.
std::optional<double> VolumeUsdPerMonth(const RunpodVolume& volume) {
  if (volume.type != "STANDARD") return std::nullopt;
  const int64_t first = std::min(volume.size_gb, kFirstVolumeGb);
  return static_cast<double>(first) * kVolumeUsdPerGbMonth +
         static_cast<double>(volume.size_gb - first) * kMoreVolumeUsdPerGbMonth;
}

// What an offer's reference says. The GPU type comes last: its name may hold anything.
struct Ref {
  std::string cloud;
  std::string data_center;
  int gpu_count = 0;
  std::string gpu_id;
};

std::string FormatRef(const Ref& ref) {
  return absl::StrCat(ref.cloud, "|", ref.data_center, "|", ref.gpu_count, "|", ref.gpu_id);
}

absl::StatusOr<Ref> ParseRef(const Offer& offer) {
  const std::vector<std::string> parts = absl::StrSplit(offer.ref, absl::MaxSplits('|', 3));
  Ref ref;
  if (offer.provider != kName || parts.size() != 4 || parts[3].empty() ||
      (parts[0] != kClouds[0] && parts[0] != kClouds[1]) ||
      !absl::SimpleAtoi(parts[2], &ref.gpu_count) || ref.gpu_count < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("offer ", offer.provider, " ", offer.ref, " is none of Runpod's"));
  }
  ref.cloud = parts[0];
  ref.data_center = parts[1];
  ref.gpu_id = parts[3];
  return ref;
}

std::string HighestVersion(const std::vector<std::string>& versions) {
  const auto key = [](const std::string& version) {
    std::pair<int, int> numbers = {0, 0};
    const std::vector<std::string> parts = absl::StrSplit(version, '.');
    (void)absl::SimpleAtoi(parts[0], &numbers.first);
    if (parts.size() > 1) (void)absl::SimpleAtoi(parts[1], &numbers.second);
    return numbers;
  };
  const auto highest = std::max_element(
      versions.begin(), versions.end(),
      [&key](const std::string& a, const std::string& b) { return key(a) < key(b); });
  return highest == versions.end() ? "" : *highest;
}

std::string StartCommand(absl::string_view script) {
  if (script.empty()) return "";
  // In single quotes: only characters that need no more of them.
  return absl::StrCat("bash -c 'echo ", GzipBase64(script),
                      "|base64 -d|gzip -d>~/.gpuctl-start;"
                      "bash ~/.gpuctl-start>>/var/log/gpuctl-start.log 2>&1 </dev/null& "
                      "if [ -x /start.sh ];then exec /start.sh;fi;"
                      "mkdir -p /run/sshd /root/.ssh;echo $PUBLIC_KEY>>/root/.ssh/authorized_keys;"
                      "ssh-keygen -A;exec /usr/sbin/sshd -D'");
}

class RunpodProvider : public Provider {
 public:
  RunpodProvider(std::shared_ptr<Http> http, ProviderAccess access)
      : http_(std::move(http)), access_(std::move(access)) {
    if (access_.base_url.empty()) access_.base_url = kBaseUrl;
  }

  absl::string_view name() const override { return kName; }

  ProviderTraits traits() const override {
    ProviderTraits traits;
    traits.self_release = true;
    traits.takes_image = true;
    traits.has_spot = true;
    traits.ready_within = absl::Minutes(10);
    traits.leave_out_for = absl::Hours(2);
    return traits;
  }

  absl::StatusOr<std::vector<Offer>> ListOffers(const Requirements& requirements) override {
    std::vector<Offer> offers;
    if (IsElsewhere(requirements, kName)) return offers;
    if (requirements.spot) return ListRunpodSpotOffers(*http_, access_, requirements);
    std::set<int> counts;
    const std::vector<Requirements::Gpu> gpus = AskedGpus(requirements);
    for (const Requirements::Gpu& gpu : gpus) counts.insert(gpu.count);
    for (const int count : counts) {
      for (const char* cloud : kClouds) {
        // Hosts of others reach no network volume.
        if (requirements.volume.has_value() && cloud != kClouds[0]) continue;
        ASSIGN_OR_RETURN(
            const HttpResponse response,
            Get(absl::StrCat("/v2/catalog/gpus?include=AVAILABILITY&product=POD&cloud=", cloud,
                             "&count=", count),
                "list Runpod's GPUs"));
        const absl::StatusOr<std::vector<RunpodGpuType>> types = ParseRunpodCatalog(response.body);
        if (!types.ok()) return Annotate(types.status(), "list Runpod's GPUs");
        for (const RunpodGpuType& type : *types) {
          AddOffers(requirements, gpus, type, cloud, count, offers);
        }
      }
    }
    KeepAffordable(requirements, offers);
    return offers;
  }

  absl::StatusOr<Instance> Rent(const Offer& offer, const RentOptions& options,
                                absl::string_view label) override {
    const std::string doing = absl::StrCat("rent ", offer.description, " from Runpod");
    const std::optional<RunpodSpotRef> spot = ParseRunpodSpotRef(offer);
    const absl::StatusOr<Ref> ref =
        spot.has_value() ? Ref{spot->cloud, "", spot->gpu_count, spot->gpu_id} : ParseRef(offer);
    RETURN_IF_ERROR(ref.status());
    const absl::StatusOr<RunpodCreate> create = CreateOf(*ref, options, label);
    if (!create.ok()) return Annotate(create.status(), doing);
    if (spot.has_value()) {
      absl::StatusOr<Instance> made =
          RentRunpodSpot(*http_, access_, offer, *spot, options, *create);
      if (!made.ok()) return Annotate(made.status(), doing);
      return made;
    }
    const absl::StatusOr<HttpResponse> response = http_->Send(ApiRequest(
        access_, "POST", "/v2/pods", "", /*repeatable=*/false, RunpodCreateBody(*create)));
    if (!response.ok()) return Annotate(response.status(), doing);
    if (response->status / 100 != 2) {
      const std::string detail = RunpodErrorDetail(response->body);
      const std::string said = HttpSaid(*response, detail);
      // A refusal for want of machines differs from a bad request by its words alone.
      if (response->status == 400 && IsRunpodNoCapacity(detail)) {
        return Annotate(absl::AbortedError(said), doing);
      }
      return Annotate(StatusOfCreate(response->status, said), doing);
    }
    absl::StatusOr<RunpodPod> pod = ParseRunpodPod(response->body);
    if (!pod.ok()) {
      const std::string id = FindRunpodPodId(response->body);
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
    ASSIGN_OR_RETURN(const HttpResponse response,
                     Get(absl::StrCat("/v2/pods/", UrlEncode(id)), doing));
    const absl::StatusOr<RunpodPod> pod = ParseRunpodPod(response.body);
    if (!pod.ok()) return Annotate(pod.status(), doing);
    if (pod->id != id) {
      return absl::UnknownError(absl::StrCat(doing, ": the answer is about pod ", pod->id));
    }
    if (pod->status == "TERMINATED") {
      return absl::NotFoundError(absl::StrCat(doing, ": it is terminated"));
    }
    return InstanceOf(*pod);
  }

  absl::StatusOr<std::vector<Instance>> ListInstances() override {
    constexpr absl::string_view kDoing = "list Runpod pods";
    std::vector<Instance> instances;
    std::set<std::string> seen;
    std::string cursor;
    for (int page_number = 0; page_number < kMaxPages; ++page_number) {
      // Pods of clusters bill too and are left out unless asked for.
      std::string path = "/v2/pods?includeClusterPods=true";
      if (!cursor.empty()) absl::StrAppend(&path, "&cursor=", UrlEncode(cursor));
      ASSIGN_OR_RETURN(const HttpResponse response, Get(path, kDoing));
      const absl::StatusOr<RunpodPodPage> page = ParseRunpodPods(response.body);
      if (!page.ok()) return Annotate(page.status(), kDoing);
      for (const RunpodPod& pod : page->pods) {
        // Unknown parameters are ignored, and then the first page comes again.
        if (!seen.insert(pod.id).second) {
          return absl::UnknownError(absl::StrCat(kDoing, ": pod ", pod.id, " came twice"));
        }
        if (pod.status != "TERMINATED") instances.push_back(InstanceOf(pod));
      }
      if (page->next_cursor.empty()) return instances;
      cursor = page->next_cursor;
    }
    return absl::UnknownError(absl::StrCat(kDoing, ": more than ", kMaxPages, " pages"));
  }

  absl::Status Terminate(const InstanceId& id) override {
    const std::string doing = absl::StrCat("terminate Runpod pod ", id);
    if (id.empty()) return absl::InvalidArgumentError("terminate Runpod pod: no id");
    const absl::StatusOr<HttpResponse> response = http_->Send(ApiRequest(
        access_, "DELETE", absl::StrCat("/v2/pods/", UrlEncode(id)), "", /*repeatable=*/true));
    if (!response.ok()) return Annotate(response.status(), doing);
    if (response->status / 100 == 2) return absl::OkStatus();
    const absl::Status status = StatusOfRead(*response);
    return absl::IsNotFound(status) ? absl::OkStatus() : Annotate(status, doing);
  }

  absl::StatusOr<std::vector<Volume>> ListVolumes() override {
    constexpr absl::string_view kDoing = "list Runpod's network volumes";
    ASSIGN_OR_RETURN(const HttpResponse response, Get("/v2/network-volumes", kDoing));
    const absl::StatusOr<std::vector<RunpodVolume>> rows = ParseRunpodVolumes(response.body);
    if (!rows.ok()) return Annotate(rows.status(), kDoing);
    std::vector<Volume> volumes;
    for (const RunpodVolume& row : *rows) {
      Volume& volume = volumes.emplace_back();
      volume.provider = kName;
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
  // The whole answer of what only reads.
  absl::StatusOr<HttpResponse> Get(absl::string_view path, absl::string_view doing) {
    absl::StatusOr<HttpResponse> response =
        http_->Send(ApiRequest(access_, "GET", path, "", /*repeatable=*/true));
    if (!response.ok()) return Annotate(response.status(), doing);
    if (response->status != 200) return Annotate(StatusOfRead(*response), doing);
    return response;
  }

  static absl::Status StatusOfRead(const HttpResponse& response) {
    const std::string detail = RunpodErrorDetail(response.body);
    const std::string said = HttpSaid(response, detail);
    // "Gone" must be Runpod's own word, not that of something in front of it.
    if (response.status == 404 && detail.empty()) return absl::UnknownError(said);
    return StatusOfHttp(response.status, said);
  }

  static void AddOffers(const Requirements& requirements,
                        const std::vector<Requirements::Gpu>& gpus, const RunpodGpuType& type,
                        absl::string_view cloud, int count, std::vector<Offer>& offers) {
    const bool secure = cloud == kClouds[0];
    const std::optional<double> price =
        secure ? type.secure_usd_per_hour : type.community_usd_per_hour;
    const std::optional<int64_t> most = secure ? type.secure_max_count : type.community_max_count;
    if (!type.manufacturer.empty() && type.manufacturer != "NVIDIA") return;
    if (!price.has_value() || *price <= 0 || most.value_or(count) < count) return;
    const int64_t memory_bytes = std::clamp<int64_t>(type.memory_gb, 0, 100'000) * 1'000'000'000;
    const std::string gpu_name = CanonicalGpuName(type.id, memory_bytes);
    if (std::none_of(gpus.begin(), gpus.end(), [&](const Requirements::Gpu& gpu) {
          return gpu.count == count && GpuSatisfies(gpu, gpu_name, memory_bytes);
        })) {
      return;
    }
    std::vector<RunpodGpuType::DataCenter> centers = type.data_centers;
    // Hosts outside the data centres are in no list of them.
    const bool somewhere = !type.availability.empty() && type.availability != "NONE";
    if (centers.empty() && !secure && somewhere && requirements.regions.empty()) {
      centers.push_back({"", type.availability});
    }
    for (const RunpodGpuType::DataCenter& center : centers) {
      if (center.availability == "NONE" ||
          (requirements.volume.has_value() && requirements.volume->region != center.id) ||
          !IsInRegions(requirements.regions, center.id, CountryOfDataCenter(center.id))) {
        continue;
      }
      Offer offer;
      offer.provider = kName;
      offer.ref = FormatRef({std::string(cloud), center.id, count, type.id});
      offer.description =
          absl::StrCat(count, " x ", type.name, " (", secure ? "secure" : "community", ")",
                       center.id.empty() ? "" : absl::StrCat(" in ", center.id));
      offer.price_usd_per_hour =
          *price * count +
          RunpodDiskUsdPerHour(DiskGb(requirements.disk_bytes, kRunpodDefaultDiskGb));
      offer.gpu_name = gpu_name;
      offer.gpu_count = count;
      offer.gpu_memory_bytes = memory_bytes;
      offer.region = center.id;
      offer.cuda_version = HighestVersion(type.cuda_versions);
      offer.takes_volume = secure && !center.id.empty();
      offer.place = Place(cloud, center.id, type.id);
      offers.push_back(std::move(offer));
    }
  }

  static absl::StatusOr<RunpodCreate> CreateOf(const Ref& ref, const RentOptions& options,
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
    for (const auto& variable : create.env) {
      if (!IsEnvName(variable.first)) {
        return absl::InvalidArgumentError(
            absl::StrCat("\"", variable.first, "\" is no name of an environment variable"));
      }
      if (variable.first == "RUNPOD_API_KEY" || variable.first == "PUBLIC_KEY") {
        return absl::InvalidArgumentError(
            absl::StrCat("the environment variable ", variable.first, " is Runpod's own"));
      }
    }
    if (options.ssh_public_key.empty()) {
      create.start_ssh = true;
    } else if (SshKeyIdentity(options.ssh_public_key).empty()) {
      return absl::InvalidArgumentError("the ssh public key is none");
    } else {
      create.env["PUBLIC_KEY"] = options.ssh_public_key;
    }
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
      // It may be said before anything runs; an address is not.
      instance.state = instance.address ? Instance::State::kRunning : Instance::State::kStarting;
    } else if (pod.status == "EXITED" || pod.status == "ERROR") {
      instance.state = Instance::State::kFailed;
    } else if (pod.status == "TERMINATED") {
      instance.state = Instance::State::kStopping;
    }
    // A port of before a stop may be shown for a while after it.
    if (instance.state != Instance::State::kRunning) instance.address.reset();
    if (pod.cost_usd_per_hour > 0) {
      instance.price_usd_per_hour = pod.cost_usd_per_hour + RunpodDiskUsdPerHour(pod.disk_gb);
    }
    if (!pod.gpu_id.empty()) instance.gpu_name = CanonicalGpuName(pod.gpu_id, 0);
    instance.gpu_count = static_cast<int>(std::clamp<int64_t>(pod.gpu_count, 0, 1024));
    instance.region = pod.data_center;
    if (!pod.data_center.empty() && !pod.gpu_id.empty()) {
      instance.place = Place(pod.cloud, pod.data_center, pod.gpu_id);
    }
    absl::Time created;
    std::string problem;
    if (absl::ParseTime(absl::RFC3339_full, pod.created_at, &created, &problem)) {
      instance.created_ms = absl::ToUnixMillis(created);
    }
    return instance;
  }

  std::shared_ptr<Http> http_;
  ProviderAccess access_;
};

}  // namespace

std::unique_ptr<Provider> MakeRunpodProvider(std::shared_ptr<Http> http, ProviderAccess access) {
  return std::make_unique<RunpodProvider>(std::move(http), std::move(access));
}

}  // namespace gpuctl
