#include "provisioning/vast/vast_provider.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "provisioning/gpu_models.h"
#include "provisioning/regions.h"
#include "provisioning/vast/vast_api.h"
#include "provisioning/wire.h"

namespace gpuctl {
namespace {

constexpr char kName[] = "vast";
constexpr char kBaseUrl[] = "https://console.vast.ai";
constexpr char kDefaultImage[] = "vastai/base-image:@vastai-automatic-tag";
constexpr int64_t kDefaultDiskGb = 40;
constexpr int64_t kMinDiskGb = 8;
constexpr int64_t kMinDirectPorts = 2;
constexpr char kVolumePath[] = "/workspace";
constexpr size_t kMaxOnstartBytes = 4096;
constexpr size_t kMaxEnvBytes = 32768;
constexpr size_t kMaxLabelBytes = 256;
constexpr double kMinBid = 0.001;
constexpr double kMaxBid = 128;
constexpr int kPageSize = 25;
constexpr int kMaxPages = 400;

// What Vast calls the models whose names it does not simply spell with spaces.
constexpr struct {
  const char* canonical;
  const char* names;
} kNames[] = {
    {"H100", "H100 SXM,H100 PCIE,H100 NVL"},
    {"H100-SXM", "H100 SXM"},
    {"H100-PCIe", "H100 PCIE"},
    {"H200", "H200,H200 NVL"},
    {"A100-40GB", "A100 SXM4,A100 PCIE"},
    {"A100-80GB", "A100 SXM4,A100 PCIE,A100X"},
    {"V100-16GB", "Tesla V100"},
    {"V100-32GB", "Tesla V100"},
    {"T4", "Tesla T4"},
    {"RTX-6000-Ada", "RTX 6000Ada"},
    {"RTX-5000-Ada", "RTX 5000Ada"},
    {"RTX-4000-Ada", "RTX 4000Ada"},
    {"RTX-PRO-6000", "RTX PRO 6000 S,RTX PRO 6000 WS"},
    {"RTX-4090-D", "RTX 4090D"},
    {"RTX-4080-Super", "RTX 4080S"},
    {"RTX-4070-Ti-Super", "RTX 4070S Ti"},
    {"RTX-8000", "Q RTX 8000"},
    {"RTX-6000", "Q RTX 6000"},
};

std::vector<std::string> VastNames(absl::string_view canonical) {
  if (canonical.empty()) return {};
  for (const auto& row : kNames) {
    if (canonical == row.canonical) return absl::StrSplit(row.names, ',');
  }
  return {absl::StrReplaceAll(canonical, {{"-", " "}})};
}

int64_t MemoryBytes(int64_t mib) { return std::clamp<int64_t>(mib, 0, 1 << 30) << 20; }

std::string Place(int64_t machine_id) { return absl::StrCat(kName, "/", machine_id); }

// Of a place that is a machine; absent for any other.
std::optional<int64_t> MachineOf(absl::string_view place) {
  int64_t machine = 0;
  if (!absl::ConsumePrefix(&place, absl::StrCat(kName, "/")) ||
      !absl::SimpleAtoi(place, &machine)) {
    return std::nullopt;
  }
  return machine;
}

std::string VersionText(double number) {
  return number <= 0 || number > 1000 ? "" : absl::StrFormat("%.1f", number);
}

// What an offer's reference says: "123", or "123/bid/0.25" with the least that a bid must be.
struct Ref {
  int64_t ask = 0;
  bool spot = false;
  double min_bid = 0;
};

absl::StatusOr<Ref> ParseRef(const Offer& offer) {
  const std::vector<std::string> parts = absl::StrSplit(offer.ref, '/');
  Ref ref;
  const bool number = absl::SimpleAtoi(parts[0], &ref.ask) && ref.ask > 0;
  ref.spot = parts.size() == 3 && parts[1] == "bid" && absl::SimpleAtod(parts[2], &ref.min_bid);
  if (offer.provider != kName || !number || (parts.size() != 1 && !ref.spot)) {
    return absl::InvalidArgumentError(
        absl::StrCat("offer ", offer.provider, " ", offer.ref, " is none of Vast's"));
  }
  return ref;
}

bool SaysAny(const VastReply& reply, std::initializer_list<absl::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&reply](absl::string_view word) {
    return absl::StrContains(reply.error, word) || absl::StrContains(reply.message, word);
  });
}

// By Vast's codes and sentences, then by the HTTP status: the same status means different things.
absl::Status StatusOfReply(const HttpResponse& response, bool creating) {
  const VastReply reply = ParseVastReply(response.body);
  const std::string said = HttpSaid(
      response, reply.error.empty() ? reply.message
                                    : absl::StrCat(reply.message, reply.message.empty() ? "" : " ",
                                                   "(", reply.error, ")"));
  if (response.status == 429) return absl::UnavailableError(said);
  if (response.status >= 500) {
    return creating ? absl::UnknownError(said) : absl::UnavailableError(said);
  }
  // A bad key and an expired session answer 404 as well.
  if (SaysAny(reply, {"auth_error", "Invalid user key", "Session expired"})) {
    return absl::UnauthenticatedError(said);
  }
  if (SaysAny(reply, {"insufficient_credit", "lacks credit", "spend rate"})) {
    return absl::ResourceExhaustedError(said);
  }
  if (creating && SaysAny(reply, {"no_such_ask", "invalid_price"})) {
    return absl::AbortedError(said);
  }
  if (!creating && SaysAny(reply, {"no_such_instance"})) return absl::NotFoundError(said);
  if (SaysAny(reply, {"deprecated_endpoint"})) return absl::FailedPreconditionError(said);
  if (response.status / 100 == 2) {
    // A refusal with an OK: known codes say that nothing was made, others do not.
    return SaysAny(reply, {"invalid_args", "no_ssh_key_for_vm"}) ? absl::InvalidArgumentError(said)
                                                                 : absl::UnknownError(said);
  }
  if (creating) return StatusOfCreate(response.status, said);
  if (response.status == 404) {
    // "Gone" must be Vast's own word.
    return reply.error == "not_found" ? absl::NotFoundError(said) : absl::UnknownError(said);
  }
  return StatusOfHttp(response.status, said);
}

class VastProvider : public Provider {
 public:
  VastProvider(std::shared_ptr<Http> http, ProviderAccess access)
      : http_(std::move(http)), access_(std::move(access)) {
    if (access_.base_url.empty()) access_.base_url = kBaseUrl;
  }

  absl::string_view name() const override { return kName; }

  ProviderTraits traits() const override {
    ProviderTraits traits;
    traits.rents = true;
    traits.self_release = true;
    traits.takes_image = true;
    traits.has_spot = true;
    traits.ready_within = absl::Minutes(15);
    return traits;
  }

  absl::StatusOr<std::vector<Offer>> ListOffers(const Requirements& requirements) override {
    constexpr absl::string_view kDoing = "search Vast's offers";
    const int64_t disk_gb = std::max(DiskGb(requirements.disk_bytes, kDefaultDiskGb), kMinDiskGb);
    std::vector<Offer> offers;
    if (IsElsewhere(requirements, kName)) return offers;
    for (const Requirements::Gpu& gpu : AskedGpus(requirements)) {
      VastSearch search;
      search.gpu_names = VastNames(gpu.name);
      search.gpu_count = gpu.count;
      constexpr double kMib = 1 << 20;
      // Room for what the firmware keeps; the answer is compared again.
      search.min_gpu_ram_mib = std::floor(0.93 * static_cast<double>(gpu.min_memory_bytes) / kMib);
      search.max_gpu_ram_mib = std::ceil(1.08 * static_cast<double>(gpu.max_memory_bytes) / kMib);
      search.disk_gb = disk_gb;
      search.max_usd_per_hour = requirements.max_price_usd_per_hour;
      search.countries = CountriesAsked(requirements.regions).value_or(std::vector<std::string>());
      search.spot = requirements.spot;
      // The answer is a list of the cheapest alone.
      if (requirements.volume.has_value()) {
        search.machine_id = MachineOf(requirements.volume->place);
      }
      const absl::StatusOr<HttpResponse> response =
          http_->Send(ApiRequest(access_, "POST", "/api/v0/bundles/", "search",
                                 /*repeatable=*/true, VastSearchBody(search)));
      if (!response.ok()) return Annotate(response.status(), kDoing);
      if (response->status != 200) {
        return Annotate(StatusOfReply(*response, /*creating=*/false), kDoing);
      }
      const absl::StatusOr<std::vector<VastOffer>> rows = ParseVastOffers(response->body);
      if (!rows.ok()) return Annotate(rows.status(), kDoing);
      for (const VastOffer& row : *rows) AddOffer(requirements, gpu, disk_gb, row, offers);
    }
    KeepAffordable(requirements, offers);
    return offers;
  }

  absl::StatusOr<Instance> Rent(const Offer& offer, const RentOptions& options,
                                absl::string_view label) override {
    const std::string doing = absl::StrCat("rent ", offer.description, " from Vast");
    ASSIGN_OR_RETURN(const Ref ref, ParseRef(offer));
    const absl::StatusOr<VastCreate> create = CreateOf(offer, ref, options, label);
    if (!create.ok()) return Annotate(create.status(), doing);
    if (!options.ssh_public_key.empty()) {
      if (const absl::Status key = EnsureKey(options.ssh_public_key); !key.ok()) {
        return Annotate(BeforeCreate(key), doing);
      }
    }
    const absl::StatusOr<HttpResponse> response = http_->Send(
        ApiRequest(access_, "PUT", absl::StrCat("/api/v0/asks/", ref.ask, "/"), "create",
                   /*repeatable=*/false, VastCreateBody(*create)));
    if (!response.ok()) return Annotate(response.status(), doing);
    const absl::StatusOr<VastCreated> created = ParseVastCreated(response->body);
    const bool accepted = response->status / 100 == 2;
    if (!accepted || (created.ok() && !created->success)) {
      const absl::Status refused = StatusOfReply(*response, /*creating=*/true);
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
    instance.price_usd_per_hour = create->bid_usd_per_hour.value_or(offer.price_usd_per_hour);
    instance.gpu_name = offer.gpu_name;
    instance.gpu_count = offer.gpu_count;
    instance.region = offer.region;
    instance.place = offer.place;
    instance.spot = ref.spot;
    return instance;
  }

  absl::StatusOr<Instance> Describe(const InstanceId& id) override {
    const std::string doing = absl::StrCat("describe Vast instance ", id);
    int64_t number = 0;
    if (!absl::SimpleAtoi(id, &number) || number <= 0) {
      return absl::NotFoundError(absl::StrCat(doing, ": ids are numbers"));
    }
    ASSIGN_OR_RETURN(const HttpResponse response,
                     Get(absl::StrCat("/api/v0/instances/", number, "/"), "show", doing));
    const absl::StatusOr<std::optional<VastInstance>> instance = ParseVastInstance(response.body);
    if (!instance.ok()) return Annotate(instance.status(), doing);
    if (!instance->has_value()) return absl::NotFoundError(absl::StrCat(doing, ": it is gone"));
    if ((*instance)->id != number) {
      return absl::UnknownError(
          absl::StrCat(doing, ": the answer is about instance ", (*instance)->id));
    }
    return InstanceOf(**instance);
  }

  absl::StatusOr<std::vector<Instance>> ListInstances() override {
    constexpr absl::string_view kDoing = "list Vast instances";
    std::vector<Instance> instances;
    std::set<int64_t> seen;
    std::optional<int64_t> total;
    std::string token;
    for (int page_number = 0; page_number < kMaxPages; ++page_number) {
      std::string path = absl::StrCat("/api/v1/instances/?limit=", kPageSize);
      if (!token.empty()) absl::StrAppend(&path, "&after_token=", UrlEncode(token));
      ASSIGN_OR_RETURN(const HttpResponse response, Get(path, "list", kDoing));
      const absl::StatusOr<VastPage> page = ParseVastInstances(response.body);
      if (!page.ok()) return Annotate(page.status(), kDoing);
      for (const VastInstance& row : page->instances) {
        if (!seen.insert(row.id).second) {
          return absl::UnknownError(absl::StrCat(kDoing, ": instance ", row.id, " came twice"));
        }
        instances.push_back(InstanceOf(row));
      }
      total = page->total_instances;
      token = page->next_token;
      if (token.empty()) break;
    }
    if (!token.empty()) {
      return absl::UnknownError(absl::StrCat(kDoing, ": more than ", kMaxPages, " pages"));
    }
    // Also when some were made or ended while the pages came: it is asked again.
    if (total.has_value() && *total != static_cast<int64_t>(instances.size())) {
      return absl::UnavailableError(
          absl::StrCat(kDoing, ": ", instances.size(), " came, and there are ", *total));
    }
    return instances;
  }

  absl::Status Terminate(const InstanceId& id) override {
    const std::string doing = absl::StrCat("terminate Vast instance ", id);
    int64_t number = 0;
    if (!absl::SimpleAtoi(id, &number) || number <= 0) {
      return absl::InvalidArgumentError(absl::StrCat(doing, ": ids are numbers"));
    }
    const absl::StatusOr<HttpResponse> response =
        http_->Send(ApiRequest(access_, "DELETE", absl::StrCat("/api/v0/instances/", number, "/"),
                               "destroy", /*repeatable=*/true));
    if (!response.ok()) return Annotate(response.status(), doing);
    if (response->status / 100 == 2 && ParseVastReply(response->body).success.value_or(false)) {
      return absl::OkStatus();
    }
    const absl::Status status = StatusOfReply(*response, /*creating=*/false);
    return absl::IsNotFound(status) ? absl::OkStatus() : Annotate(status, doing);
  }

  absl::StatusOr<std::vector<Volume>> ListVolumes() override {
    constexpr absl::string_view kDoing = "list Vast's volumes";
    ASSIGN_OR_RETURN(const HttpResponse response, Get("/api/v0/volumes/", "volumes", kDoing));
    const absl::StatusOr<std::vector<VastVolume>> rows = ParseVastVolumes(response.body);
    if (!rows.ok()) return Annotate(rows.status(), kDoing);
    std::vector<Volume> volumes;
    for (const VastVolume& row : *rows) {
      Volume& volume = volumes.emplace_back();
      volume.provider = kName;
      volume.id = absl::StrCat(row.id);
      // As a volume is called where it is made.
      volume.name = row.label.empty() ? absl::StrCat("V.", row.id) : row.label;
      volume.size_bytes = static_cast<int64_t>(std::clamp(row.disk_space_gb, 0.0, 1e6) *
                                               static_cast<double>(kDiskGb));
      volume.region = row.geolocation;
      volume.place = Place(row.machine_id);
      volume.mount_path = kVolumePath;
      if (row.usd_per_hour.has_value()) volume.usd_per_month = *row.usd_per_hour * kHoursPerMonth;
      volume.in_use = row.instances > 0;
    }
    return volumes;
  }

 private:
  absl::StatusOr<HttpResponse> Get(absl::string_view path, absl::string_view rate_class,
                                   absl::string_view doing) {
    absl::StatusOr<HttpResponse> response =
        http_->Send(ApiRequest(access_, "GET", path, rate_class, /*repeatable=*/true));
    if (!response.ok()) return Annotate(response.status(), doing);
    if (response->status != 200) {
      return Annotate(StatusOfReply(*response, /*creating=*/false), doing);
    }
    return response;
  }

  absl::StatusOr<bool> HasKey(absl::string_view identity) {
    constexpr absl::string_view kDoing = "list ssh keys";
    const absl::StatusOr<HttpResponse> response =
        http_->Send(ApiRequest(access_, "GET", "/api/v0/ssh/", "keys", /*repeatable=*/true));
    if (!response.ok()) return Annotate(response.status(), kDoing);
    if (response->status != 200) {
      const absl::Status status = StatusOfReply(*response, /*creating=*/false);
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

  absl::Status EnsureKey(const std::string& public_key) {
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
    const absl::Status refused = StatusOfReply(*response, /*creating=*/false);
    // Somebody else may have been faster.
    if (response->status == 400 || response->status == 409) {
      ASSIGN_OR_RETURN(const bool there_now, HasKey(identity));
      if (there_now) return absl::OkStatus();
    }
    return Annotate(refused, kDoing);
  }

  // Ends what a create has left that failed with `refused`.
  absl::Status EndFailedCreate(int64_t contract, const absl::Status& refused) {
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

  static void AddOffer(const Requirements& requirements, const Requirements::Gpu& gpu,
                       int64_t disk_gb, const VastOffer& row, std::vector<Offer>& offers) {
    const int64_t memory_bytes = MemoryBytes(row.gpu_ram_mib);
    const std::string gpu_name = CanonicalGpuName(row.gpu_name, memory_bytes);
    // What was asked for is compared again: a filter that is not known there is passed over.
    if (row.id <= 0 || row.dph_total <= 0 || row.gpu_name.empty() || row.num_gpus != gpu.count ||
        !GpuSatisfies(gpu, gpu_name, memory_bytes) || !row.rentable ||
        row.direct_port_count < kMinDirectPorts ||
        (!row.verification.empty() && row.verification != "verified") ||
        (!row.gpu_arch.empty() && row.gpu_arch != "nvidia") ||
        (!row.cpu_arch.empty() && row.cpu_arch != "amd64") ||
        (row.disk_space_gb > 0 && row.disk_space_gb < static_cast<double>(disk_gb)) ||
        (requirements.volume.has_value() && requirements.volume->place != Place(row.machine_id)) ||
        !IsInRegions(requirements.regions, row.geolocation, CountryCode(row.geolocation))) {
      return;
    }
    Offer offer;
    offer.provider = kName;
    offer.ref = requirements.spot ? absl::StrFormat("%d/bid/%.6f", row.id, row.min_bid)
                                  : absl::StrCat(row.id);
    offer.description = absl::StrCat(
        row.num_gpus, " x ", PrintableText(row.gpu_name, 60), requirements.spot ? ", spot" : "",
        row.geolocation.empty() ? "" : absl::StrCat(" in ", PrintableText(row.geolocation, 60)));
    offer.price_usd_per_hour = row.dph_total;
    offer.gpu_name = gpu_name;
    offer.gpu_count = static_cast<int>(row.num_gpus);
    offer.gpu_memory_bytes = memory_bytes;
    offer.region = row.geolocation;
    offer.cuda_version = VersionText(row.cuda_max_good);
    offer.reliability = row.reliability;
    offer.disk_bytes = static_cast<int64_t>(std::clamp(row.disk_space_gb, 0.0, 1e6)) * kDiskGb;
    offer.upload_usd_per_gb = row.inet_up_usd_per_gb;
    offer.download_usd_per_gb = row.inet_down_usd_per_gb;
    offer.spot = requirements.spot;
    offer.place =
        row.machine_id != 0 ? Place(row.machine_id) : absl::StrCat(kName, "/offer-", row.id);
    offers.push_back(std::move(offer));
  }

  static absl::StatusOr<VastCreate> CreateOf(const Offer& offer, const Ref& ref,
                                             const RentOptions& options, absl::string_view label) {
    VastCreate create;
    create.image = options.image.empty() ? kDefaultImage : options.image;
    create.disk_gb = std::max(DiskGb(options.disk_bytes, kDefaultDiskGb), kMinDiskGb);
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
      // Too low a bid would leave a stopped instance that bills for its disk.
      const double bid =
          options.bid_usd_per_hour.value_or(std::max(offer.price_usd_per_hour, ref.min_bid));
      if (bid < ref.min_bid || bid < kMinBid || bid > kMaxBid) {
        return absl::InvalidArgumentError(
            absl::StrFormat("a bid of $%.3f/h; it takes $%.3f to $%.0f", bid,
                            std::max(ref.min_bid, kMinBid), kMaxBid));
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
      create.volume_path = options.volume_path.empty() ? kVolumePath : options.volume_path;
    }
    return create;
  }

  static Instance::State StateOf(const VastInstance& row) {
    const std::string& actual = row.actual_status;
    if (actual == "exited" || actual == "unknown" || actual == "offline" || actual == "stopped") {
      return Instance::State::kFailed;
    }
    // Elsewhere the message may be an old one.
    if (actual == "created" && absl::StrContains(row.status_msg, "OCI runtime create failed")) {
      return Instance::State::kFailed;
    }
    // Outbid, or stopped by somebody: with "loading" beside it for ever. Only what is about to run
    // may still come.
    if (row.cur_state == "stopped" && !(actual.empty() && row.next_state == "running")) {
      return Instance::State::kFailed;
    }
    if (actual != "running") return Instance::State::kStarting;
    if (row.intended_status == "stopped") return Instance::State::kStopping;
    return row.public_ip.empty() || row.ssh_host_port == 0 ? Instance::State::kStarting
                                                           : Instance::State::kRunning;
  }

  static Instance InstanceOf(const VastInstance& row) {
    Instance instance;
    instance.id = absl::StrCat(row.id);
    instance.label = row.label;
    instance.state = StateOf(row);
    instance.status = row.actual_status.empty() ? "scheduling" : row.actual_status;
    const bool stopped = row.actual_status == "stopped" || row.cur_state == "stopped";
    if (stopped && row.actual_status != "stopped") absl::StrAppend(&instance.status, ", stopped");
    if (stopped && row.is_bid && instance.state == Instance::State::kFailed) {
      absl::StrAppend(&instance.status, ", outbid");
    }
    if (!row.status_msg.empty()) absl::StrAppend(&instance.status, ": ", row.status_msg);
    instance.status = PrintableText(instance.status, 160);
    if (instance.state == Instance::State::kRunning) {
      instance.address = SshAddress();
      instance.address->host = row.public_ip;
      instance.address->port = static_cast<int>(row.ssh_host_port);
      instance.address->user = "root";
    }
    instance.price_usd_per_hour = row.dph_total;
    if (!row.gpu_name.empty()) {
      instance.gpu_name = CanonicalGpuName(row.gpu_name, MemoryBytes(row.gpu_ram_mib));
    }
    instance.gpu_count = static_cast<int>(std::clamp<int64_t>(row.num_gpus, 0, 1024));
    instance.region = row.geolocation;
    if (row.machine_id != 0) instance.place = Place(row.machine_id);
    instance.spot = row.is_bid;
    if (row.start_date_s > 0 && row.start_date_s < 1e12) {
      instance.created_ms = static_cast<int64_t>(row.start_date_s * 1000);
    }
    return instance;
  }

  std::shared_ptr<Http> http_;
  ProviderAccess access_;
};

}  // namespace

std::unique_ptr<Provider> MakeVastProvider(std::shared_ptr<Http> http, ProviderAccess access) {
  return std::make_unique<VastProvider>(std::move(http), std::move(access));
}

}  // namespace gpuctl
