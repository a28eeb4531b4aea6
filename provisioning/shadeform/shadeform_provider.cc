#include "provisioning/shadeform/shadeform_provider.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
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

constexpr char kName[] = "shadeform";
constexpr char kTitle[] = "Shadeform";
constexpr char kUser[] = "shadeform";
constexpr char kLeaseTag[] = "gpuctl-lease";
constexpr char kSpot[] = "spot";
constexpr char kOnDemand[] = "on_demand";
// No limit is published.
constexpr size_t kMaxScriptBytes = 64 * 1024;
constexpr int64_t kMostVramGb = 1000;

// Codes that are not here take the next offer: what stands in the way in one cloud does not in
// another. The money is that of all clouds. The key's name is told in words alone.
using Code = absl::StatusCode;
constexpr Refusal kRefusals[] = {
    {0, "INSUFFICIENT_FUNDS", "", Code::kResourceExhausted, Code::kResourceExhausted},
    {0, "OUT_OF_STOCK", "", Code::kOk, Code::kAborted},
    {0, "", "name must be unique", Code::kAlreadyExists, Code::kOk},
    {404, "", "", Code::kNotFound, Code::kInvalidArgument},
};

absl::Status StatusOfAnswer(const HttpResponse& response, bool creating) {
  const MarketError error =
      ParseWhatFits<MarketError>(response.body, [](JsonReader& answer, MarketError& read) {
        answer.Read("error_code", read.code);
        answer.Read("error", read.message);
      });
  return StatusOfRefusal(response, error, kRefusals, creating);
}

using State = Instance::State;
constexpr StateWord kStates[] = {{"active", State::kRunning},
                                 {"error", State::kFailed},
                                 {"deleting", State::kStopping},
                                 {"deleted", State::kStopping, /*gone=*/true}};
constexpr MarketShape kShape = {
    .name = kName,
    .title = kTitle,
    .machine = "instance",
    .base_url = "https://api.shadeform.ai",
    .instance = {.tags = "tags",
                 .lease_tag = kLeaseTag,
                 .states = kStates,
                 .created = "created_at"},
    .list_path = "/v1/instances",
    .list = {.what = "the list of instances", .part = "instance", .rows = "instances", .id = "id"},
    .describe = {.path = "/v1/instances/{id}/info"},
    .end = {.path = "/v1/instances/{id}/delete", .method = "POST"},
    .key_header = {.name = "X-API-KEY", .before_key = ""}};
constexpr InstancePath kUpdate = {.path = "/v1/instances/{id}/update"};
constexpr absl::string_view kKeyFields[] = {"public_key"};
constexpr SshKeyShape kKeys = {
    .path = "/v1/sshkeys",
    .list = {.what = "the list of ssh keys", .part = "ssh key", .rows = "ssh_keys", .id = "id"},
    .key = kKeyFields,
    .new_path = "/v1/sshkeys/add",
    .new_name = "name",
    .new_key = "public_key",
    .made = SshKeyShape::kAnswerItself};
constexpr ListShape kTypes = {
    .what = "the list of types", .part = "type", .rows = "instance_types"};

std::string Region(absl::string_view cloud, absl::string_view region) {
  return absl::StrCat(cloud, "/", region);
}
std::string Place(absl::string_view cloud, absl::string_view region, absl::string_view type) {
  return absl::StrCat(kName, "/", Region(cloud, region), "/", type);
}

// Returns the country in a region's name for people: "US, Wichita, KS", "Toronto, Canada". Two
// letters at the end are a state as often as a country.
std::string CountryOf(absl::string_view display_name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(display_name, ',');
  std::string country = CountryCode(parts.front());
  const absl::string_view last = absl::StripAsciiWhitespace(parts.back());
  if (country.empty() && last.size() > 2) country = CountryCode(last);
  return country;
}

// Returns the system with a driver and the highest CUDA, "ubuntu22.04_cuda12.2_shade_os"; "" when
// there is none.
std::string BestSystem(const std::vector<std::string>& systems) {
  std::string best;
  std::tuple<int, int> highest = {-1, -1};
  for (const std::string& system : systems) {
    const size_t at = system.find("cuda");
    if (at == std::string::npos || !absl::EndsWith(system, "_shade_os")) continue;
    const absl::string_view rest = absl::string_view(system).substr(at + 4);
    const std::vector<absl::string_view> version =
        absl::StrSplit(rest.substr(0, rest.find('_')), '.');
    int major = 0, minor = 0;
    if (!absl::SimpleAtoi(version[0], &major)) continue;
    if (version.size() > 1 && !absl::SimpleAtoi(version[1], &minor)) minor = 0;
    if (std::tie(major, minor) <= highest) continue;
    highest = {major, minor};
    best = system;
  }
  return best;
}

struct Hardware {
  std::string model;
  int64_t gpus = 0;
  int64_t memory_bytes = 0;  // of one GPU
};

Hardware ReadHardware(JsonReader& row) {
  std::string type, link;
  int64_t vram_gb = 0;
  Hardware read;
  row.Read("configuration.gpu_type", type);
  row.Read("configuration.interconnect", link);
  row.Read("configuration.num_gpus", read.gpus);
  row.Read("configuration.vram_per_gpu_in_gb", vram_gb);
  read.memory_bytes = std::clamp<int64_t>(vram_gb, 0, kMostVramGb) << 30;
  if (type.empty()) return read;
  const std::string words = absl::StrReplaceAll(type, {{"_", " "}});
  read.model = CanonicalGpuName(words, read.memory_bytes);
  // "H100" with "sxm5" is a form of its own.
  const std::string form = CanonicalGpuName(absl::StrCat(words, " ", link), read.memory_bytes);
  if (GpuIsModel(form, read.model)) read.model = form;
  return read;
}

// Returns the dollars in a text such as "1.50"; 0 for any other.
double Dollars(const std::string& text) {
  double usd = 0;
  return absl::SimpleAtod(text, &usd) && std::isfinite(usd) && usd > 0 ? usd : 0;
}

// Returns when the market ends the instance, in Unix milliseconds; 0 when that is not in the row,
// and nothing when it cannot be read, which is no reason to lose sight of the machine.
std::optional<int64_t> EndIn(const nlohmann::json& row) {
  if (!row.is_object() || !row.contains("auto_delete") || row["auto_delete"].is_null()) return 0;
  const nlohmann::json& end = row["auto_delete"];
  if (!end.is_object()) return std::nullopt;
  if (!end.contains("date_threshold") || end["date_threshold"].is_null()) return 0;
  const nlohmann::json& at = end["date_threshold"];
  if (!at.is_string()) return std::nullopt;
  absl::Time time;
  if (at == "") return 0;
  if (!absl::ParseTime(absl::RFC3339_full, at.get<std::string>(), &time, nullptr)) {
    return std::nullopt;
  }
  return std::max<int64_t>(0, absl::ToUnixMillis(time));
}

nlohmann::json AutoDelete(absl::Time at) {
  return {{"date_threshold", absl::FormatTime("%Y-%m-%d%ET%H:%M:%SZ", at, absl::UTCTimeZone())}};
}

class ShadeformProvider : public RestMarket {
 public:
  ShadeformProvider(std::shared_ptr<Http> http, ProviderAccess access)
      : RestMarket(kShape, std::move(http), std::move(access), StatusOfAnswer) {}

  ProviderTraits traits() const override {
    // Each cloud bills in its own way, which the answers do not tell; begun hours are the dearest.
    return {.expiry = {.at_create = true, .can_move = true},
            .has_spot = true,
            .ready_within = absl::Minutes(25),
            .billing_quantum = absl::Hours(1)};
  }

  absl::StatusOr<std::vector<Offer>> ListOffers(const Requirements& requirements) override {
    if (requirements.volume.has_value()) return std::vector<Offer>();
    constexpr absl::string_view kDoing = "list Shadeform's types";
    ASSIGN_OR_RETURN(const std::vector<nlohmann::json> rows,
                     ListRows(api(), kDoing, "/v1/instances/types?available=true", kTypes));
    OfferList offers(kName, requirements);
    absl::Status unread;
    size_t read = 0;
    for (const nlohmann::json& json : rows) {
      JsonReader row(json, kTypes.part);
      AddOffers(row, requirements.spot, offers);
      if (row.status().ok()) ++read;
      unread.Update(row.status());
    }
    // One cloud's mistake does not hide the offers of the others.
    if (read == 0 && !unread.ok()) return Annotate(unread, kDoing);
    return offers.Finish();
  }

  absl::StatusOr<Instance> Rent(const Offer& offer, const RentOptions& options,
                                absl::string_view label) override {
    const std::string doing = absl::StrCat("rent ", offer.description, " from ", kTitle);
    absl::StatusOr<nlohmann::json> body = CreateBody(offer, options, label);
    if (!body.ok()) return Annotate(body.status(), doing);
    const absl::StatusOr<std::string> key = EnsureSshKey(api(), kKeys, options.ssh_public_key);
    if (!key.ok()) return Annotate(BeforeCreate(key.status()), doing);
    (*body)["ssh_key_id"] = *key;
    ASSIGN_OR_RETURN(const HttpResponse response, api().Ask({.doing = doing,
                                                             .kind = CallKind::kCreate,
                                                             .method = "POST",
                                                             .path = "/v1/instances/create",
                                                             .body = *std::move(body)}));
    const absl::StatusOr<std::string> id = ParseAnswer<std::string>(
        response.body, "the answer",
        [](JsonReader& answer, std::string& read) { answer.RequireId("id", read); });
    if (!id.ok()) return Annotate(id.status(), doing);
    Instance instance = RentedInstance(offer, *id, label, "creating");
    instance.spot = offer.spot;
    if (options.expires_at != absl::InfiniteFuture()) {
      instance.ends_ms = absl::ToUnixMillis(options.expires_at);
    }
    return instance;
  }

  absl::Status MoveExpiry(const InstanceId& id, absl::Time expires_at) override {
    const std::string doing = Doing("move the end of", id);
    RETURN_IF_ERROR(CheckId(id, doing));
    return api()
        .Ask({.doing = doing,
              .kind = CallKind::kRepeat,
              .method = "POST",
              .path = PathOf(kUpdate, id),
              .body = {{"auto_delete", AutoDelete(expires_at)}}})
        .status();
  }

 private:
  // Adds the offers of one type, unless a field is wrong.
  static void AddOffers(JsonReader& row, bool spot, OfferList& offers) {
    std::string cloud, type, kind, maker;
    double cents = 0;
    int64_t disk_gb = 0;
    row.RequireId("cloud", cloud);
    row.RequireId("shade_instance_type", type);
    row.Require("hourly_price", cents);
    row.Require("deployment_type", kind);
    row.Require("configuration.gpu_manufacturer", maker);
    row.Read("configuration.storage_in_gb", disk_gb);
    const Hardware hardware = ReadHardware(row);
    std::vector<std::string> systems;
    if (const auto* options = row.RequireArray("configuration.os_options"); options != nullptr) {
      for (const nlohmann::json& option : *options) {
        if (option.is_string()) systems.push_back(option.get<std::string>());
      }
    }
    const std::string system = BestSystem(systems);
    const int64_t disk_bytes = std::clamp<int64_t>(disk_gb, 0, 1'000'000) * kDiskGb;
    // A start script means something on virtual machines alone.
    const bool fits = kind == "vm" && maker == "nvidia" && !system.empty() && hardware.gpus >= 1 &&
                      hardware.gpus <= 1024 &&
                      offers.Takes(hardware.gpus, hardware.model, hardware.memory_bytes) &&
                      offers.TakesDisk(disk_bytes);
    row.RequireEach("availability", "region", [&](JsonReader& place) {
      std::string region, shown, rental = kOnDemand, spot_usd;
      bool available = false;
      place.RequireId("region", region);
      place.Require("available", available);
      place.Read("display_name", shown);
      place.Read("rental_type", rental);
      place.Read("hourly_price", spot_usd);
      if (!place.status().ok() || !row.status().ok() || !fits || !available) return;
      // A machine by the hour and one that can be taken away are two entries with two prices.
      if (rental != (spot ? kSpot : kOnDemand)) return;
      const double usd = spot ? Dollars(spot_usd) : cents / 100;
      const std::string country = CountryOf(shown);
      const bool here = offers.TakesPlace(region, country) || offers.TakesPlace(cloud, country);
      const std::string ref = absl::StrJoin({cloud, region, type, rental, system}, "|");
      if (!here || !(usd > 0) || std::count(ref.begin(), ref.end(), '|') != 4) return;
      Offer& offer = offers.Add();
      offer.ref = ref;
      offer.description = absl::StrCat(hardware.gpus, "x ", hardware.model, " in ",
                                       Region(cloud, region), spot ? " (spot)" : "");
      offer.price_usd_per_hour = usd;
      offer.gpu_name = hardware.model;
      offer.gpu_count = static_cast<int>(hardware.gpus);
      offer.gpu_memory_bytes = hardware.memory_bytes;
      offer.region = Region(cloud, region);
      offer.disk_bytes = disk_bytes;
      offer.spot = spot;
      // Grace machines; the list does not tell the processor.
      offer.arm64 =
          absl::StartsWith(hardware.model, "GH") || absl::StartsWith(hardware.model, "GB");
      offer.takes_volume = false;
      offer.place = Place(cloud, region, type);
    });
  }

  void Complete(JsonReader& row, Instance& instance) const override {
    std::string cloud, region, type, details, host, user, rental, usd;
    double cents = 0;
    row.Read("cloud", cloud);
    row.Read("region", region);
    row.Read("shade_instance_type", type);
    row.Read("status_details", details);
    row.Read("hourly_price", cents);
    row.Read("rental_terms.rental_type", rental);
    row.Read("rental_terms.hourly_price", usd);
    const Hardware hardware = ReadHardware(row);
    instance.gpu_name = hardware.model;
    instance.gpu_count = GpuCount(hardware.gpus);
    instance.spot = rental == kSpot;
    instance.price_usd_per_hour = cents > 0 ? cents / 100 : 0;
    if (instance.spot && Dollars(usd) > 0) instance.price_usd_per_hour = Dollars(usd);
    if (!cloud.empty() && !region.empty()) {
      instance.region = Region(cloud, region);
      if (!type.empty()) instance.place = Place(cloud, region, type);
    }
    if (!details.empty() && instance.state != State::kRunning) {
      instance.status = PrintableText(absl::StrCat(instance.status, ": ", details), 120);
    }
    instance.tells_end = false;  // the list does not
    if (instance.state != State::kRunning) return;
    // Until a machine has an address, its other fields are empty or zero.
    int64_t port = 0;
    row.Read("ip", host);
    row.Read("ssh_user", user);
    row.Read("ssh_port", port);
    if (host.empty() || port == 0) return;
    if (user.empty()) user = kUser;
    if (!IsSafeHost(host)) row.Fail("ip", "is no address");
    if (!IsSafeUser(user)) row.Fail("ssh_user", "is no user name");
    if (port < 1 || port > 65535) row.Fail("ssh_port", "is no port");
    instance.address = SshAddress{.host = host, .port = static_cast<int>(port), .user = user};
  }

  void LookFurther(const nlohmann::json& row, Instance& instance) const override {
    const std::optional<int64_t> end = EndIn(row);
    instance.tells_end = end.has_value();
    instance.ends_ms = end.value_or(0);
  }

  // Returns the body of a create, without the key.
  static absl::StatusOr<nlohmann::json> CreateBody(const Offer& offer, const RentOptions& options,
                                                   absl::string_view label) {
    const std::vector<std::string> parts = absl::StrSplit(offer.ref, '|');
    const bool ours = offer.provider == kName && parts.size() == 5 &&
                      std::none_of(parts.begin(), parts.end(),
                                   [](const std::string& part) { return part.empty(); });
    if (!ours) return ForeignOffer(offer, kTitle);
    RETURN_IF_ERROR(CheckPlainMachine(offer, options, kTitle));
    RentOptions scripted = options;
    scripted.host_key = {};  // its sshd runs before the script
    ASSIGN_OR_RETURN(const std::string script, CloudInitData(scripted, kTitle, kMaxScriptBytes));
    nlohmann::json body = {{"cloud", parts[0]},
                           {"region", parts[1]},
                           {"shade_instance_type", parts[2]},
                           {"shade_cloud", true},
                           {"name", label},
                           {"os", parts[4]},
                           {"tags", nlohmann::json::array({absl::StrCat(kLeaseTag, ":", label)})}};
    // The older description does not have the field, and machines by the hour are what it means.
    if (parts[3] == kSpot) body["rental_type"] = kSpot;
    if (!script.empty()) {
      body["launch_configuration"] = {
          {"type", "script"},
          {"script_configuration", {{"base64_script", absl::Base64Escape(script)}}}};
    }
    if (options.expires_at != absl::InfiniteFuture()) {
      body["auto_delete"] = AutoDelete(options.expires_at);
    }
    return body;
  }
};

}  // namespace

std::unique_ptr<Provider> MakeShadeformProvider(std::shared_ptr<Http> http, ProviderAccess access) {
  return std::make_unique<ShadeformProvider>(std::move(http), std::move(access));
}

}  // namespace gpuctl
