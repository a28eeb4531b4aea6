#include "provisioning/digitalocean/digitalocean_provider.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "provisioning/market/gpu_models.h"
#include "provisioning/market/offers.h"
#include "provisioning/market/rent_options.h"
#include "provisioning/market/user_data.h"
#include "provisioning/rest/refusals.h"
#include "provisioning/rest/rest_market.h"
#include "provisioning/rest/ssh_keys.h"

namespace gpuctl {
namespace {

constexpr char kName[] = "digitalocean";
constexpr char kTitle[] = "DigitalOcean";
constexpr char kLeaseTag[] = "gpuctl-lease";
constexpr size_t kMaxUserDataBytes = 64 * 1024;
// One GPU has less memory than that. Where a size says more, it speaks of all its GPUs.
constexpr int64_t kMostGib = 300;

// The places of the regions, whose names are a place and a number: "nyc2".
constexpr struct {
  absl::string_view place;
  absl::string_view country;
} kCountries[] = {{"nyc", "US"}, {"sfo", "US"}, {"atl", "US"}, {"ric", "US"},
                  {"tor", "CA"}, {"ams", "NL"}, {"fra", "DE"}, {"lon", "GB"},
                  {"sgp", "SG"}, {"blr", "IN"}, {"syd", "AU"}};

std::string CountryOf(absl::string_view region) {
  for (const auto& row : kCountries) {
    if (absl::StartsWith(region, row.place)) return std::string(row.country);
  }
  return "";
}

std::string Place(absl::string_view size, absl::string_view region) {
  return absl::StrCat(kName, "/", size, "/", region);
}

// A create is refused with 422 for lack of machines, for a limit of the account and for a bad body;
// only the words tell which. A droplet that is being made cannot be ended yet.
using Code = absl::StatusCode;
constexpr Refusal kRefusals[] = {
    {404, "not_found", "", Code::kNotFound, Code::kInvalidArgument},
    {0, "", "not available", Code::kOk, Code::kAborted},
    {0, "", "unavailable", Code::kOk, Code::kAborted},
    {0, "", "sold out", Code::kOk, Code::kAborted},
    {0, "", "capacity", Code::kOk, Code::kAborted},
    {0, "", "limit", Code::kOk, Code::kResourceExhausted},
    {422, "unprocessable_entity", "pending event", Code::kUnavailable, Code::kOk},
};

MarketError ErrorIn(absl::string_view body) {
  return ParseWhatFits<MarketError>(body, [](JsonReader& answer, MarketError& error) {
    answer.Read("id", error.code);
    answer.Read("message", error.message);
  });
}

absl::Status StatusOfAnswer(const HttpResponse& response, bool creating) {
  return StatusOfRefusal(response, ErrorIn(response.body), kRefusals, creating);
}

using State = Instance::State;
constexpr StateWord kStates[] = {
    {"active", State::kRunning}, {"off", State::kFailed}, {"archive", State::kFailed}};
constexpr absl::string_view kNext[] = {"links.pages.next"};
constexpr Paging kPaging = {.by = Paging::By::kLink, .next = kNext};
constexpr char kAllDroplets[] = "/v2/droplets?per_page=200";
constexpr char kGpuDroplets[] = "/v2/droplets?per_page=200&type=gpus";
constexpr MarketShape kShape = {.name = kName,
                                .title = kTitle,
                                .machine = "droplet",
                                .base_url = "https://api.digitalocean.com",
                                .instance = {.tags = "tags",
                                             .lease_tag = kLeaseTag,
                                             .states = kStates,
                                             .created = "created_at"},
                                .list_path = kAllDroplets,
                                .list = {.what = "the list of droplets",
                                         .part = "droplet",
                                         .rows = "droplets",
                                         .id = "id",
                                         .paging = kPaging},
                                .describe = {.path = "/v2/droplets/{id}", .row = "droplet"},
                                .end = {.path = "/v2/droplets/{id}"},
                                .numeric_ids = true};
constexpr absl::string_view kKeyFields[] = {"public_key"};
constexpr SshKeyShape kKeys = {.path = "/v2/account/keys",
                               .query = "?per_page=200",
                               .list = {.what = "the list of ssh keys",
                                        .part = "ssh key",
                                        .rows = "ssh_keys",
                                        .id = "id",
                                        .paging = kPaging},
                               .key = kKeyFields,
                               .new_name = "name",
                               .new_key = "public_key",
                               .made = "ssh_key"};
constexpr ListShape kSizes = {
    .what = "the list of sizes", .part = "size", .rows = "sizes", .id = "slug", .paging = kPaging};

struct Size {
  std::string slug;
  double usd_per_hour = 0;  // of the whole machine
  bool available = true;
  int64_t disk_gb = 0;
  std::string gpu;  // "nvidia_h100"; empty: it has none
  int64_t gpus = 0;
  int64_t vram_gib = 0;  // of one GPU or of all; it is not published which
  std::vector<std::string> regions;
};

void ReadSize(JsonReader& row, Size& size) {
  row.RequireId("slug", size.slug);
  row.Require("price_hourly", size.usd_per_hour);
  row.Read("available", size.available);
  row.Read("disk", size.disk_gb);
  row.Read("gpu_info.model", size.gpu);
  row.Read("gpu_info.count", size.gpus);
  row.Read("gpu_info.vram.amount", size.vram_gib);
  const nlohmann::json* regions = row.RequireArray("regions");
  if (regions == nullptr) return;
  for (const nlohmann::json& region : *regions) {
    if (!region.is_string()) {
      row.Fail("regions", "holds something else than names");
      return;
    }
    size.regions.push_back(region.get<std::string>());
  }
}

// Returns the name of a model: "H100" of "nvidia_h100".
std::string GpuName(absl::string_view model, int64_t memory_bytes) {
  absl::ConsumePrefix(&model, "nvidia_");
  return CanonicalGpuName(absl::StrReplaceAll(model, {{"_", " "}}), memory_bytes);
}

class DigitaloceanProvider : public RestMarket {
 public:
  DigitaloceanProvider(std::shared_ptr<Http> http, ProviderAccess access)
      : RestMarket(kShape, std::move(http), std::move(access), StatusOfAnswer) {}

  ProviderTraits traits() const override {
    // Whether begun hours count is not published for GPUs; they are the dearest reading.
    // Every Droplet is in its region's default VPC.
    return {.takes_host_key = true,
            .region_network = true,
            .ready_within = absl::Minutes(15),
            .billing_quantum = absl::Hours(1)};
  }

  absl::StatusOr<std::string> AccountId() override {
    return api().Get<std::string>(
        "look up the account at DigitalOcean", "/v2/account", [](absl::string_view body) {
          return ParseObject<std::string>(
              body, "the answer", "account", "account",
              [](JsonReader& account, std::string& id) { account.RequireId("uuid", id); });
        });
  }

  absl::StatusOr<std::vector<Offer>> ListOffers(const Requirements& requirements) override {
    if (requirements.spot || requirements.volume.has_value()) return std::vector<Offer>();
    ASSIGN_OR_RETURN(
        const std::vector<Size> sizes,
        ListOf(api(), "list DigitalOcean's sizes", "/v2/sizes?per_page=200", kSizes, ReadSize));
    // The least that any size says of a model is the memory of one.
    std::map<std::string, int64_t> least_gib;
    for (const Size& size : sizes) {
      if (size.vram_gib <= 0 || size.gpus < 1) continue;
      const int64_t of_one = size.vram_gib > kMostGib ? size.vram_gib / size.gpus : size.vram_gib;
      int64_t& least = least_gib.try_emplace(size.gpu, of_one).first->second;
      least = std::min(least, of_one);
    }
    OfferList offers(kName, requirements);
    for (const Size& size : sizes) {
      if (!absl::StartsWith(size.gpu, "nvidia_") || size.gpus < 1 || size.gpus > 1024) continue;
      if (!size.available || size.usd_per_hour <= 0) continue;
      const int64_t memory_bytes = std::min(least_gib[size.gpu], kMostGib) << 30;
      const std::string gpu_name = GpuName(size.gpu, memory_bytes);
      const int64_t disk_bytes = std::clamp<int64_t>(size.disk_gb, 0, 1'000'000) * kDiskGb;
      if (!offers.Takes(size.gpus, gpu_name, memory_bytes) || !offers.TakesDisk(disk_bytes)) {
        continue;
      }
      for (const std::string& region : size.regions) {
        if (region.empty() || !offers.TakesPlace(region, CountryOf(region))) continue;
        Offer& offer = offers.Add();
        offer.ref = absl::StrCat(size.gpus, "/", size.slug, "/", region);
        offer.description = absl::StrCat(size.gpus, "x ", gpu_name, " in ", region);
        offer.price_usd_per_hour = size.usd_per_hour;
        offer.gpu_name = gpu_name;
        offer.gpu_count = static_cast<int>(size.gpus);
        offer.gpu_memory_bytes = memory_bytes;
        offer.region = region;
        offer.disk_bytes = disk_bytes;
        offer.takes_volume = false;
        offer.place = Place(size.slug, region);
      }
    }
    return offers.Finish();
  }

  absl::StatusOr<Instance> Rent(const Offer& offer, const RentOptions& options,
                                absl::string_view label) override {
    const std::string doing = absl::StrCat("rent ", offer.description, " from ", kTitle);
    absl::StatusOr<nlohmann::json> body = CreateBody(offer, options, label);
    if (!body.ok()) return Annotate(body.status(), doing);
    const absl::StatusOr<std::string> key = EnsureSshKey(api(), kKeys, options.ssh_public_key);
    if (!key.ok()) return Annotate(BeforeCreate(key.status()), doing);
    int64_t key_id = 0;
    if (!absl::SimpleAtoi(*key, &key_id)) {
      return absl::UnavailableError(absl::StrCat(doing, ": the ssh key's id is no number"));
    }
    (*body)["ssh_keys"] = nlohmann::json::array({key_id});
    ASSIGN_OR_RETURN(const HttpResponse response, api().Ask({.doing = doing,
                                                             .kind = CallKind::kCreate,
                                                             .method = "POST",
                                                             .path = "/v2/droplets",
                                                             .body = *std::move(body)}));
    const absl::StatusOr<int64_t> id =
        ParseObject<int64_t>(response.body, "the answer", "droplet", "droplet",
                             [](JsonReader& row, int64_t& number) { row.Require("id", number); });
    if (!id.ok()) return Annotate(id.status(), doing);
    return RentedInstance(offer, absl::StrCat(*id), label, "new");
  }

  absl::StatusOr<std::vector<Instance>> ListInstances() override {
    std::vector<Instance> instances;
    std::set<InstanceId> seen;
    for (const char* path : {kGpuDroplets, kAllDroplets}) {
      ASSIGN_OR_RETURN(std::vector<Instance> listed, InstancesAt(path));
      for (Instance& instance : listed) {
        if (seen.insert(instance.id).second) instances.push_back(std::move(instance));
      }
    }
    return instances;
  }

 private:
  void Complete(JsonReader& row, Instance& instance) const override {
    std::string size, model;
    int64_t gpus = 0;
    row.ReadEach("networks.v4", "network", [&](JsonReader& network) {
      std::string type, address;
      network.Read("type", type);
      network.Read("ip_address", address);
      if (type != "public" || address.empty() || instance.address.has_value()) return;
      if (!IsSafeHost(address)) network.Fail("ip_address", "is no address");
      instance.address = SshAddress{.host = address, .user = "root"};
    });
    row.Read("size_slug", size);
    row.Read("size.price_hourly", instance.price_usd_per_hour);
    row.Read("region.slug", instance.region);
    // An older answer has them with the size alone.
    for (const char* at : {"gpu_info", "size.gpu_info"}) {
      if (model.empty()) row.Read(absl::StrCat(at, ".model"), model);
      if (gpus == 0) row.Read(absl::StrCat(at, ".count"), gpus);
    }
    if (!model.empty()) instance.gpu_name = GpuName(model, 0);
    instance.gpu_count = GpuCount(gpus);
    if (!size.empty() && !instance.region.empty()) instance.place = Place(size, instance.region);
  }

  // Returns the body of a create, without the key.
  static absl::StatusOr<nlohmann::json> CreateBody(const Offer& offer, const RentOptions& options,
                                                   absl::string_view label) {
    const std::vector<std::string> parts = absl::StrSplit(offer.ref, '/');
    int gpus = 0;
    if (offer.provider != kName || parts.size() != 3 || !absl::SimpleAtoi(parts[0], &gpus) ||
        parts[1].empty() || parts[2].empty()) {
      return ForeignOffer(offer, kTitle);
    }
    RETURN_IF_ERROR(CheckPlainMachine(offer, options, kTitle));
    ASSIGN_OR_RETURN(const std::string user_data,
                     CloudInitData(options, kTitle, kMaxUserDataBytes));
    nlohmann::json body = {
        {"name", label},
        {"size", parts[1]},
        {"region", parts[2]},
        // They have the driver, one for machines with one GPU and one for those with more.
        {"image", gpus == 1 ? "gpu-h100x1-base" : "gpu-h100x8-base"},
        {"tags", nlohmann::json::array({"gpuctl", absl::StrCat(kLeaseTag, ":", label)})},
        {"backups", false},
        {"monitoring", false}};
    if (!user_data.empty()) body["user_data"] = user_data;
    return body;
  }
};

}  // namespace

std::unique_ptr<Provider> MakeDigitaloceanProvider(std::shared_ptr<Http> http,
                                                   ProviderAccess access) {
  return std::make_unique<DigitaloceanProvider>(std::move(http), std::move(access));
}

}  // namespace gpuctl
