#include "provisioning/huggingface/huggingface_provider.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "provisioning/market/gpu_models.h"
#include "provisioning/market/offers.h"
#include "provisioning/market/rent_options.h"
#include "provisioning/rest/refusals.h"
#include "provisioning/rest/rest_market.h"

namespace gpuctl {
namespace {

constexpr char kName[] = "huggingface";
constexpr char kTitle[] = "Hugging Face";
constexpr char kLeaseLabel[] = "gpuctl-lease";
constexpr char kEndsLabel[] = "gpuctl-ends";  // Unix seconds
constexpr char kImage[] = "pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel";
// For GPUs that older CUDA does not know.
constexpr char kNewestImage[] = "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-devel";
// Without a time the market ends a job after half an hour.
constexpr absl::Duration kDefaultLife = absl::Hours(24);
constexpr absl::Duration kShortestLife = absl::Minutes(1);

using Code = absl::StatusCode;
constexpr Refusal kRefusals[] = {
    {404, "", "not found", Code::kNotFound, Code::kInvalidArgument},
    {0, "", "credit", Code::kOk, Code::kResourceExhausted},
    {403, "", "limit", Code::kOk, Code::kResourceExhausted},
    {403, "", "quota", Code::kOk, Code::kResourceExhausted},
    {0, "", "not available", Code::kOk, Code::kAborted},
    {0, "", "unavailable", Code::kOk, Code::kAborted},
    {0, "", "capacity", Code::kOk, Code::kAborted},
};

absl::Status StatusOfAnswer(const HttpResponse& response, bool creating) {
  MarketError error = ParseWhatFits<MarketError>(
      response.body,
      [](JsonReader& answer, MarketError& said) { answer.Read("error", said.message); });
  // A proxy has no words of the market's.
  for (const auto& [name, value] : response.headers) {
    if (name == "x-error-code") error.code = value;
    if (name == "x-error-message" && error.message.empty()) error.message = value;
  }
  return StatusOfRefusal(response, error, kRefusals, creating);
}

using State = Instance::State;
constexpr StateWord kStates[] = {{"RUNNING", State::kRunning},
                                 {"COMPLETED", State::kStopping, true},
                                 {"CANCELED", State::kStopping, true},
                                 {"ERROR", State::kStopping, true},
                                 {"DELETED", State::kStopping, true}};
constexpr absl::string_view kMore[] = {"status.message", "status.cancelReason"};
constexpr Paging kPaging = {.by = Paging::By::kLinkHeader};
constexpr MarketShape kShape = {
    .name = kName,
    .title = kTitle,
    .machine = "job",
    .base_url = "https://huggingface.co",
    .instance = {.label = "labels.name",
                 .tags = "labels",
                 .lease_tag = kLeaseLabel,
                 .status = "status.stage",
                 .states = kStates,
                 .more = kMore,
                 .created = "createdAt"},
    .list_path = "/api/jobs/{account}?stage=RUNNING&stage=SCHEDULING",
    .list = {.what = "the list of jobs", .part = "job", .id = "id", .paging = kPaging},
    .describe = {.path = "/api/jobs/{account}/{id}"},
    .end = {.path = "/api/jobs/{account}/{id}/cancel"}};
constexpr ListShape kHardware = {.what = "the list of hardware", .part = "flavor", .id = "name"};

// The user of the key.
struct Identity {
  std::string id;
  std::string name;  // the namespace of its jobs
  std::optional<bool> can_pay;
  std::string role;  // of the token: read, write, fineGrained
};

struct Flavor {
  std::string name;
  std::string type;  // gpu, neuron; empty: it has no accelerator
  std::string model;
  std::string maker;
  int64_t count = 0;
  std::string vram;  // of all of them
  std::string disk;
  std::string unit;
  double usd = 0;
  double micro_usd = 0;
};

void ReadFlavor(JsonReader& row, Flavor& flavor) {
  row.RequireId("name", flavor.name);
  row.Read("ephemeralStorage", flavor.disk);
  row.Read("unitLabel", flavor.unit);
  row.Read("unitCostUSD", flavor.usd);
  row.Read("unitCostMicroUSD", flavor.micro_usd);
  row.ReadObject("accelerator", "accelerator", [&](JsonReader& accelerator) {
    accelerator.Read("type", flavor.type);
    accelerator.Read("model", flavor.model);
    accelerator.Read("manufacturer", flavor.maker);
    accelerator.ReadLooseInt("quantity", flavor.count);
    accelerator.Read("vram", flavor.vram);
    row.Check(accelerator.status());
  });
}

// Returns the number of GB in "24 GB" or "1.5 TB"; 0 for any other text.
double GigabytesIn(absl::string_view text) {
  const std::vector<absl::string_view> words = absl::StrSplit(text, ' ', absl::SkipEmpty());
  double number = 0;
  if (words.size() != 2 || !absl::SimpleAtod(words[0], &number) || !(number > 0) || number > 1e6) {
    return 0;
  }
  if (words[1] == "GB" || words[1] == "GiB") return number;
  return words[1] == "TB" || words[1] == "TiB" ? number * 1000 : 0;
}

// Reads "ssh://USER@HOST" or "ssh://USER@HOST:PORT"; absent for any other text.
std::optional<SshAddress> ParseSshUrl(absl::string_view url) {
  SshAddress address;
  if (!absl::ConsumePrefix(&url, "ssh://")) return std::nullopt;
  url = absl::StripSuffix(url, "/");
  const std::vector<absl::string_view> parts = absl::StrSplit(url, '@');
  if (parts.size() != 2) return std::nullopt;
  const std::vector<absl::string_view> place = absl::StrSplit(parts[1], ':');
  if (place.size() > 2 || !IsSafeUser(parts[0]) || !IsSafeHost(place[0])) return std::nullopt;
  if (place.size() == 2 &&
      (!absl::SimpleAtoi(place[1], &address.port) || address.port < 1 || address.port > 65535)) {
    return std::nullopt;
  }
  address.user = std::string(parts[0]);
  address.host = std::string(place[0]);
  return address;
}

bool IsLabelValue(absl::string_view text) {
  return text.size() <= 100 && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("._-", c);
         });
}

std::string Place(absl::string_view flavor) { return absl::StrCat(kName, "/", flavor); }

class HuggingfaceProvider : public RestMarket {
 public:
  HuggingfaceProvider(std::shared_ptr<Http> http, ProviderAccess access, Clock& clock)
      : RestMarket(kShape, std::move(http), std::move(access), StatusOfAnswer), clock_(clock) {}

  ProviderTraits traits() const override {
    return {.ends_itself = ReleaseRouteOf(kName).way,
            .expiry = {.at_create = true, .can_move = false},
            .takes_image = true,
            .ready_within = absl::Minutes(15),
            .billing_quantum = absl::Minutes(1),
            .leave_out_for = absl::Hours(2)};
  }

  absl::StatusOr<std::string> AccountId() override {
    ASSIGN_OR_RETURN(const Identity* const who, Who());
    return who->id;
  }

  absl::StatusOr<std::vector<Offer>> ListOffers(const Requirements& requirements) override {
    if (requirements.spot || requirements.volume.has_value()) return std::vector<Offer>();
    constexpr absl::string_view kDoing = "list Hugging Face's hardware";
    RETURN_IF_ERROR(CheckMayRent(kDoing));
    ASSIGN_OR_RETURN(const std::vector<Flavor> flavors,
                     ListOf(api(), kDoing, "/api/jobs/hardware", kHardware, ReadFlavor));
    OfferList offers(kName, requirements);
    std::string other_unit;
    bool priced = false;
    for (const Flavor& flavor : flavors) {
      const double vram = GigabytesIn(flavor.vram);
      if (flavor.type != "gpu" || (!flavor.maker.empty() && flavor.maker != "Nvidia") ||
          flavor.count < 1 || flavor.count > 1024 || vram <= 0) {
        continue;
      }
      if (flavor.unit != "minute") {
        other_unit = PrintableText(flavor.unit, 40);
        continue;
      }
      priced = true;
      // Two numbers for one price: of two that differ, the dearer one is believed.
      const double usd = 60 * std::max(flavor.usd, flavor.micro_usd / 1e6);
      if (!(usd > 0) || !std::isfinite(usd)) continue;
      const auto memory =
          static_cast<int64_t>(vram / static_cast<double>(flavor.count) * (int64_t{1} << 30));
      const std::string gpu = CanonicalGpuName(flavor.model, memory);
      const auto disk = static_cast<int64_t>(GigabytesIn(flavor.disk) * kDiskGb);
      if (!offers.Takes(flavor.count, gpu, memory) || !offers.TakesDisk(disk) ||
          !offers.TakesPlace("", "")) {
        continue;
      }
      Offer& offer = offers.Add();
      offer.ref = flavor.name;
      offer.description = absl::StrCat(flavor.count, "x ", gpu, " (", flavor.name, ")");
      offer.price_usd_per_hour = usd;
      offer.gpu_name = gpu;
      offer.gpu_count = static_cast<int>(flavor.count);
      offer.gpu_memory_bytes = memory;
      offer.disk_bytes = disk;
      offer.takes_volume = false;
      offer.place = Place(flavor.name);
    }
    if (!priced && !other_unit.empty()) {
      return absl::UnknownError(
          absl::StrCat(kDoing, ": its prices are for one \"", other_unit, "\", not for a minute"));
    }
    return offers.Finish();
  }

  absl::StatusOr<Instance> Rent(const Offer& offer, const RentOptions& options,
                                absl::string_view label) override {
    const std::string doing = absl::StrCat("rent ", offer.description, " from ", kTitle);
    const absl::Time now = clock_.Now();
    const absl::StatusOr<nlohmann::json> body = CreateBody(offer, options, label, now);
    if (!body.ok()) return Annotate(body.status(), doing);
    RETURN_IF_ERROR(BeforeCreate(CheckMayRent(doing)));
    ASSIGN_OR_RETURN(const std::string path, WithAccount("/api/jobs/{account}", doing));
    ASSIGN_OR_RETURN(const HttpResponse response, api().Ask({.doing = doing,
                                                             .kind = CallKind::kCreate,
                                                             .method = "POST",
                                                             .path = path,
                                                             .body = *body}));
    const absl::StatusOr<nlohmann::json> json = ParseJson(response.body);
    if (!json.ok()) return Annotate(json.status(), doing);
    const absl::StatusOr<MarketRow> made = RowOf(*json);
    if (!made.ok()) return Annotate(made.status(), doing);
    if (made->gone) {
      const std::string why = absl::StrCat(doing, ": the job is ", made->instance.status);
      // NO_CREDITS, NO_SUBSCRIPTION, RESOURCE_GROUP_LIMIT
      std::string reason;
      JsonReader(*json, "job").Read("status.cancelReason", reason);
      return reason.empty() ? absl::AbortedError(why) : absl::ResourceExhaustedError(why);
    }
    Instance instance = RentedInstance(offer, made->instance.id, label, made->instance.status);
    instance.ends_ms = made->instance.ends_ms;
    return instance;
  }

  // A job that is over already may refuse the request in words that nobody has published: a look
  // tells.
  absl::Status Terminate(const InstanceId& id) override {
    const std::string doing = Doing("terminate", id);
    RETURN_IF_ERROR(CheckId(id, doing));
    ASSIGN_OR_RETURN(const std::string path, WithAccount(PathOf(shape().end, id), doing));
    const absl::Status asked =
        api()
            .Ask({.doing = doing, .kind = CallKind::kRepeat, .method = "POST", .path = path})
            .status();
    if (asked.ok() || absl::IsNotFound(asked) || absl::IsUnauthenticated(asked) ||
        absl::IsPermissionDenied(asked) || absl::IsDeadlineExceeded(asked) || IsBusy(asked)) {
      return asked;
    }
    const absl::Status look = Describe(id).status();
    return absl::IsNotFound(look) ? look : absl::UnavailableError(asked.message());
  }

 private:
  absl::StatusOr<std::string> AccountInPath() override {
    ASSIGN_OR_RETURN(const Identity* const who, Who());
    return who->name;
  }

  // Returns the user of the key. The market limits this question, so it is asked once.
  absl::StatusOr<const Identity*> Who() {
    if (!who_.has_value()) {
      ASSIGN_OR_RETURN(who_, api().Get<Identity>("look up the account at Hugging Face",
                                                 "/api/whoami-v2", ParseIdentity));
    }
    return &*who_;
  }

  static absl::StatusOr<Identity> ParseIdentity(absl::string_view body) {
    return ParseAnswer<Identity>(body, "the answer", [](JsonReader& answer, Identity& who) {
      answer.RequireId("id", who.id);
      answer.RequireId("name", who.name);
      answer.Read("canPay", who.can_pay);
      answer.Read("auth.accessToken.role", who.role);
      if (!IsLabelValue(who.name) || absl::StartsWith(who.name, ".")) {
        answer.Fail("name", "is no name of a user");
      }
    });
  }

  // Returns an error where the market is known to refuse every rent.
  absl::Status CheckMayRent(absl::string_view doing) {
    const absl::StatusOr<const Identity*> who = Who();
    if (!who.ok()) return Annotate(who.status(), doing);
    if ((*who)->role == "read") {
      return absl::PermissionDeniedError(
          absl::StrCat(doing,
                       ": the token may only read; one that may write or run jobs is made at "
                       "https://huggingface.co/settings/tokens"));
    }
    if ((*who)->can_pay.value_or(true)) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat(doing, ": the account ", (*who)->name,
                     " cannot pay yet; https://huggingface.co/settings/billing takes a card"));
  }

  void Complete(JsonReader& row, Instance& instance) const override {
    std::string url, ends;
    row.Read("status.sshUrl", url);
    if (instance.state == State::kRunning && !url.empty()) {
      instance.address = ParseSshUrl(url);
      if (!instance.address.has_value()) row.Fail("status.sshUrl", "is no address");
    }
    std::string flavor;
    row.Read("flavor", flavor);
    if (!flavor.empty()) instance.place = Place(flavor);
    // What the market says counts, else what it was asked for. From when it counts is not
    // published: from the create is the sooner end.
    double timeout_s = 0;
    row.Read("timeout", timeout_s);
    row.Read(absl::StrCat("labels.", kEndsLabel), ends);
    int64_t ends_s = 0;
    if (timeout_s > 0 && timeout_s < 1e9 && instance.created_ms > 0) {
      instance.ends_ms = instance.created_ms + static_cast<int64_t>(timeout_s * 1000);
    } else if (absl::SimpleAtoi(ends, &ends_s) && ends_s > 0 && ends_s < 100'000'000'000) {
      instance.ends_ms = ends_s * 1000;
    }
    instance.tells_end = instance.ends_ms > 0;
  }

  // Returns the body of a create.
  absl::StatusOr<nlohmann::json> CreateBody(const Offer& offer, const RentOptions& options,
                                            absl::string_view label, absl::Time now) const {
    if (offer.provider != kName || offer.ref.empty() || !IsLabelValue(offer.ref)) {
      return ForeignOffer(offer, kTitle);
    }
    if (options.registry_login.has_value()) RETURN_IF_ERROR(CheckLogin(*options.registry_login));
    if (!options.volume_id.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("no volume of ", kTitle, " can be mounted"));
    }
    if (offer.disk_bytes != 0 && options.disk_bytes > offer.disk_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("its disk has ", offer.disk_bytes / kDiskGb, " GB and cannot be larger"));
    }
    if (!IsLabelValue(label)) return absl::InvalidArgumentError("the label is none");
    RETURN_IF_ERROR(CheckEnvNames(options.env));
    const bool endless = options.expires_at == absl::InfiniteFuture();
    const absl::Duration life = endless ? kDefaultLife : options.expires_at - now;
    if (life < kShortestLife) {
      return absl::InvalidArgumentError("the time at which it is to end is over");
    }
    const int64_t seconds = absl::ToInt64Seconds(absl::Ceil(life, absl::Seconds(1)));
    const bool newest = absl::StrContains(offer.ref, "rtx-pro");
    const std::string script =
        options.start_script.empty() ? "while :; do sleep 60; done" : options.start_script;
    return nlohmann::json{{"dockerImage", !options.image.empty() ? options.image
                                          : newest               ? kNewestImage
                                                                 : kImage},
                          {"command", {"sh", "-c", script}},
                          {"environment", options.env},
                          {"flavor", offer.ref},
                          {"timeoutSeconds", seconds},
                          {"ssh", {{"enabled", true}}},
                          {"labels",
                           {{"name", label},
                            {kLeaseLabel, label},
                            {kEndsLabel, absl::StrCat(absl::ToUnixSeconds(now) + seconds)}}}};
  }

  Clock& clock_;
  std::optional<Identity> who_;
};

}  // namespace

std::unique_ptr<Provider> MakeHuggingfaceProvider(std::shared_ptr<Http> http, ProviderAccess access,
                                                  Clock& clock) {
  return std::make_unique<HuggingfaceProvider>(std::move(http), std::move(access), clock);
}

}  // namespace gpuctl
