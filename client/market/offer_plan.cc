#include "client/market/offer_plan.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/base/exit_codes.h"
#include "client/base/gpu_memory.h"
#include "client/base/quantity.h"
#include "client/keys/ask_markets.h"
#include "client/market/volume_view.h"
#include "provisioning/market/gpu_models.h"
#include "provisioning/rental/reconcile.h"

namespace gpuctl {
namespace {

constexpr char kEndsBefore[] = "ends before the ";

constexpr size_t kNearestShown = 3;
constexpr int kTooSmall = 3;  // distance of offers with too little or unknown memory
constexpr int64_t kGb = 1'000'000'000;

bool CanMount(const Offer& offer, const Volume& volume) {
  if (offer.provider != volume.provider || !offer.takes_volume) return false;
  return volume.place.empty() ? offer.region == volume.region : offer.place == volume.place;
}

std::string Identity(const Offer& offer) {
  return absl::StrCat(offer.provider, "\n", offer.ref, "\n", offer.spot ? "spot" : "");
}

// Of offers of one provider at one price, the order is the provider's.
bool Cheaper(const Offer& a, const Offer& b) {
  return std::tie(a.price_usd_per_hour, a.provider) < std::tie(b.price_usd_per_hour, b.provider);
}

// Returns the nominal memory of one GPU, to find other models that would fit. 0: not known.
int64_t MemoryOf(const Requirements::Gpu& gpu) {
  if (gpu.min_memory_bytes > 0) return gpu.min_memory_bytes;
  struct Nominal {
    const char* model;
    int64_t gb;
  };
  constexpr Nominal kNominal[] = {
      {"B300", 288},        {"B200", 180},        {"GB200", 186},    {"H200", 141},
      {"GH200", 96},        {"H100", 80},         {"A100-80GB", 80}, {"A100-40GB", 40},
      {"A800", 80},         {"L40S", 48},         {"L40", 48},       {"L4", 24},
      {"RTX-PRO-6000", 96}, {"RTX-6000-Ada", 48}, {"RTX-5090", 32},  {"RTX-4090", 24},
      {"RTX-3090", 24},     {"RTX-A6000", 48},    {"A40", 48},       {"A30", 24},
      {"A10", 24},          {"A10G", 24},         {"V100-32GB", 32}, {"V100-16GB", 16},
      {"T4", 16},           {"P100", 16},         {"P40", 24}};
  for (const Nominal& nominal : kNominal) {
    if (gpu.name == nominal.model || GpuIsModel(gpu.name, nominal.model)) return nominal.gb * kGb;
  }
  return 0;
}

bool IsModel(const Requirements::Gpu& asked, const Offer& offer) {
  return offer.gpu_name.empty() || GpuSatisfies(asked, offer.gpu_name, offer.gpu_memory_bytes);
}

bool HasCount(const Requirements::Gpu& asked, const Offer& offer) {
  return offer.gpu_count == 0 || offer.gpu_count == asked.count;
}

// Returns the distance of an unfit offer from a fitting one: 0 the same GPUs, 1 another number of
// them, 2 other GPUs with enough memory, else kTooSmall.
int Distance(const Requirements& requirements, const Offer& offer) {
  if (requirements.gpus.empty()) return 0;
  int distance = kTooSmall;
  for (const Requirements::Gpu& asked : requirements.gpus) {
    if (IsModel(asked, offer)) distance = std::min(distance, HasCount(asked, offer) ? 0 : 1);
    // 7/8 of the memory is enough: drivers and markets round differently.
    const int64_t needed = MemoryOf(asked) * asked.count;
    // Where its memory is not known, nothing says that another one is too small.
    if (needed == 0 || offer.gpu_memory_bytes * offer.gpu_count >= needed / 8 * 7) {
      distance = std::min(distance, 2);
    }
  }
  return distance;
}

bool Nearer(const Requirements& requirements, const Offer& a, const Offer& b) {
  const int near_a = Distance(requirements, a), near_b = Distance(requirements, b);
  if (near_a != near_b) return near_a < near_b;
  // When all are too small, the largest is nearest.
  const int64_t size_a = a.gpu_memory_bytes * a.gpu_count;
  const int64_t size_b = b.gpu_memory_bytes * b.gpu_count;
  if (near_a == kTooSmall && size_a != size_b) return size_a > size_b;
  return Cheaper(a, b);
}

// Returns the requirements with fewer conditions. Keeps the disk, because it is part of the price.
Requirements Relaxed(const Requirements& requirements, bool any_gpu) {
  Requirements relaxed = requirements;
  relaxed.max_price_usd_per_hour.reset();
  relaxed.regions.clear();
  relaxed.volume.reset();
  relaxed.needed_for = absl::ZeroDuration();
  if (any_gpu) relaxed.gpus.clear();
  return relaxed;
}

void AddLeftOut(const std::vector<OffersAnswer>& answers, const Requirements& requirements,
                std::set<std::string>& seen, OfferPlan& plan) {
  for (const OffersAnswer& answer : answers) {
    if (!answer.ok()) continue;
    for (const Offer& offer : *answer) {
      if (!seen.insert(Identity(offer)).second) continue;
      std::string reason = WhyNot(requirements, offer);
      if (reason.empty() && !requirements.regions.empty()) {
        reason = absl::StrCat("in ", offer.region.empty() ? "another region" : offer.region,
                              ", not in ", absl::StrJoin(requirements.regions, " or "));
      }
      if (reason.empty() && requirements.needed_for > absl::ZeroDuration()) {
        reason = absl::StrCat(kEndsBefore, HumanDuration(requirements.needed_for),
                              " that the run's time and the wait for its results may take");
      }
      if (reason.empty()) reason = "its provider left it out";
      plan.left_out.push_back({offer, std::move(reason)});
    }
  }
}

// Returns why machines with the offer's processor do not fit; an empty reason when they do.
const Requirements::Unserved& UnservedBy(const Requirements& requirements, const Offer& offer) {
  return offer.arm64 ? requirements.arm64 : requirements.x86_64;
}

std::string Nearest(const OfferPlan& plan) {
  std::vector<std::string> texts;
  std::set<std::string> shown;
  for (const LeftOut& left_out : plan.left_out) {
    const Offer& offer = left_out.offer;
    // Show each kind of GPU once per provider.
    if (!shown.insert(absl::StrCat(offer.provider, DescribeGpus(offer))).second) continue;
    texts.push_back(absl::StrCat(DescribeGpus(offer), " at ", offer.provider, ", ",
                                 DescribePrice(offer.price_usd_per_hour),
                                 offer.region.empty() ? "" : absl::StrCat(" in ", offer.region)));
    if (texts.size() == kNearestShown) break;
  }
  return absl::StrJoin(texts, "; ");
}

std::string DescribeGpu(const Requirements::Gpu& gpu) {
  std::string text = gpu.name;
  if (text.empty()) {
    text = absl::StrCat(FormatBytes(gpu.min_memory_bytes),
                        gpu.max_memory_bytes > 0
                            ? absl::StrCat("..", FormatBytes(gpu.max_memory_bytes))
                            : " or more");
    if (gpu.min_memory_bytes == 0) text = "any GPU";
  }
  return absl::StrCat(text, ":", gpu.count);
}

}  // namespace

Requirements RequirementsOf(const RunSpec& spec) {
  Requirements requirements;
  for (const GpuRequirement& gpu : spec.gpu) {
    requirements.gpus.push_back({gpu.name, gpu.count, gpu.min_memory_bytes, gpu.max_memory_bytes});
  }
  requirements.disk_bytes = spec.disk_bytes;
  requirements.max_price_usd_per_hour = spec.max_price_usd_per_hour;
  requirements.regions = spec.regions;
  requirements.spot = spec.spot;
  requirements.scheduler = spec.slurm;
  requirements.nodes = std::max(1, spec.nodes);
  return requirements;
}

std::string WhyNot(const Requirements& requirements, const Offer& offer) {
  if (offer.spot != requirements.spot) {
    return offer.spot ? "can be taken away (spot)" : "is no spot offer";
  }
  if (!requirements.gpus.empty()) {
    bool model = false, fits = false;
    for (const Requirements::Gpu& asked : requirements.gpus) {
      model = model || IsModel(asked, offer);
      fits = fits || (IsModel(asked, offer) && HasCount(asked, offer));
    }
    if (!model) return "another GPU";
    if (!fits) return absl::StrCat(offer.gpu_count, offer.gpu_count == 1 ? " GPU" : " GPUs");
  }
  if (requirements.volume.has_value() && !CanMount(offer, *requirements.volume)) {
    return absl::StrCat("cannot mount the volume ", DescribeVolume(*requirements.volume));
  }
  if (requirements.max_price_usd_per_hour.has_value() &&
      offer.price_usd_per_hour > *requirements.max_price_usd_per_hour) {
    return absl::StrFormat("over %.2f USD/h", *requirements.max_price_usd_per_hour);
  }
  if (offer.disk_bytes > 0 && offer.disk_bytes < requirements.disk_bytes) {
    return absl::StrCat("at most ", FormatBytes(offer.disk_bytes), " of disk");
  }
  // The last, so that it is the only thing that is wrong with such an offer.
  return UnservedBy(requirements, offer).reason;
}

void ServeOnly(const NodePrograms& programs, Requirements& requirements) {
  const bool x86_64 = programs.For(NodePlatform::kLinuxX86_64) != nullptr;
  const bool arm64 = programs.For(NodePlatform::kLinuxAarch64) != nullptr;
  if (!x86_64 && !arm64) return;
  const auto lack = [&programs](absl::string_view processor, NodePlatform platform) {
    return Requirements::Unserved{
        absl::StrCat("its processor is ", processor, ", and there are node programs for ",
                     PlatformNames(programs.platforms()), " only"),
        FetchHint({platform})};
  };
  if (!x86_64) requirements.x86_64 = lack("x86-64", NodePlatform::kLinuxX86_64);
  if (!arm64) requirements.arm64 = lack("arm64", NodePlatform::kLinuxAarch64);
}

OfferPlan AskMarkets(const std::vector<Market>& asked, const Requirements& requirements,
                     bool explain, const std::string& times_path) {
  OfferPlan plan;
  std::vector<std::shared_ptr<Provider>> markets;
  for (const Market& market : asked) markets.push_back(market.provider);
  AnswerTimes times(times_path);
  std::set<std::string> seen;
  std::vector<std::shared_ptr<Provider>> answering;
  std::vector<OffersAnswer> answers = AskMarketsForOffers(markets, requirements, times);
  for (size_t i = 0; i < markets.size(); ++i) {
    MarketAnswer& market = plan.markets.emplace_back();
    market.market = std::string(markets[i]->name());
    market.status = answers[i].status();
    if (!answers[i].ok()) continue;
    answering.push_back(markets[i]);
    for (const Offer& offer : *answers[i]) {
      // Offers that do not fit are left out with a reason, below.
      if (std::string reason = WhyNot(requirements, offer); !reason.empty()) {
        if (reason == UnservedBy(requirements, offer).reason) plan.unserved = {offer, reason};
        continue;
      }
      if (!seen.insert(Identity(offer)).second) continue;
      plan.offers.push_back(offer);
      ++market.offers;
    }
  }
  std::stable_sort(plan.offers.begin(), plan.offers.end(), Cheaper);
  if (plan.offers.empty() || explain) {
    AddLeftOut(answers, requirements, seen, plan);
    AddLeftOut(AskMarketsForOffers(answering, Relaxed(requirements, /*any_gpu=*/false), times),
               requirements, seen, plan);
    if (plan.offers.empty() && plan.left_out.empty() && !requirements.gpus.empty()) {
      AddLeftOut(AskMarketsForOffers(answering, Relaxed(requirements, /*any_gpu=*/true), times),
                 requirements, seen, plan);
    }
  }
  times.Keep();
  std::stable_sort(plan.left_out.begin(), plan.left_out.end(),
                   [&requirements](const LeftOut& a, const LeftOut& b) {
                     return Nearer(requirements, a.offer, b.offer);
                   });
  return plan;
}

namespace {

// True when an offer was left out for its price alone.
bool OnlyTooDear(const OfferPlan& plan, Requirements requirements) {
  if (!requirements.max_price_usd_per_hour.has_value()) return false;
  const double limit = *requirements.max_price_usd_per_hour;
  requirements.max_price_usd_per_hour.reset();
  return std::any_of(plan.left_out.begin(), plan.left_out.end(), [&](const LeftOut& left_out) {
    const Offer& offer = left_out.offer;
    return offer.price_usd_per_hour > limit && WhyNot(requirements, offer).empty();
  });
}

}  // namespace

absl::Status CheckPlan(const OfferPlan& plan, const Requirements& requirements) {
  if (!plan.offers.empty()) return absl::OkStatus();
  std::vector<std::string> failures;
  bool all_refused = true, all_of_other_times = true;
  for (const MarketAnswer& market : plan.markets) {
    if (market.status.ok()) continue;
    failures.push_back(absl::StrCat(market.market, ": ", market.status.message()));
    all_refused = all_refused && (absl::IsUnauthenticated(market.status) ||
                                  absl::IsPermissionDenied(market.status));
    all_of_other_times = all_of_other_times && market.other_time;
  }
  if (!failures.empty() && failures.size() == plan.markets.size()) {
    const std::string message = absl::StrCat("ask for offers: ", absl::StrJoin(failures, "; "));
    if (all_refused) {
      return WithExitCode(
          WithHint(absl::UnauthenticatedError(message), "gpuctl login PROVIDER takes another key"),
          kExitCredentials);
    }
    if (all_of_other_times) {
      return WithHint(absl::FailedPreconditionError(message), "set the clock, then try again");
    }
    return WithExitCode(
        WithHint(absl::UnavailableError(message),
                 "try again in a minute; --trace shows what was asked and answered"),
        kExitProvider);
  }
  if (plan.unserved.has_value()) {
    const Offer& offer = plan.unserved->offer;
    return WithExitCode(
        WithHint(absl::NotFoundError(absl::StrCat(
                     "nothing on offer is ", DescribeRequirements(requirements), " but ",
                     DescribeGpus(offer), " at ", offer.provider, ", and ", plan.unserved->reason)),
                 UnservedBy(requirements, offer).hint),
        kExitUsage);
  }
  const std::string nearest = Nearest(plan);
  std::string message = absl::StrCat("nothing on offer is ", DescribeRequirements(requirements),
                                     nearest.empty() ? "" : absl::StrCat("; nearest: ", nearest));
  if (!failures.empty()) {
    absl::StrAppend(&message, "; no answer from ", absl::StrJoin(failures, "; "));
  }
  const bool too_short =
      !plan.left_out.empty() && absl::StartsWith(plan.left_out.front().reason, kEndsBefore);
  if (too_short) absl::StrAppend(&message, ", which ", plan.left_out.front().reason);
  return WithExitCode(
      WithHint(
          WithCause(absl::NotFoundError(message),
                    OnlyTooDear(plan, requirements) ? kPriceLimit : ""),
          too_short
              ? "--time and --salvage say how long the run and the wait for its results may be"
              : "ask for another GPU, price or region; gpuctl offers --explain lists what was left "
                "out"),
      kExitCapacity);
}

void LeaveOutMarketsOfOtherTimes(const std::vector<Market>& markets, OfferPlan& plan) {
  for (const Market& market : markets) {
    const std::optional<absl::Duration> ahead =
        market.skew == nullptr ? std::nullopt : market.skew->Get();
    if (!ahead.has_value() || absl::AbsDuration(*ahead) <= kClockIsWrong) continue;
    plan.offers.erase(
        std::remove_if(plan.offers.begin(), plan.offers.end(),
                       [&](const Offer& offer) { return offer.provider == market.name; }),
        plan.offers.end());
    for (MarketAnswer& answer : plan.markets) {
      if (answer.market != market.name || !answer.status.ok()) continue;
      answer.offers = 0;
      answer.other_time = true;
      answer.status = absl::FailedPreconditionError(
          absl::StrCat("this computer's clock is ", HumanDuration(absl::AbsDuration(*ahead)),
                       *ahead > absl::ZeroDuration() ? " ahead of " : " behind ", market.name,
                       "'s: costs and limits could not be judged"));
    }
  }
}

int LeaveOutBadPlaces(const std::vector<ExcludedPlace>& bad, OfferPlan& plan) {
  std::vector<Offer> good;
  int left_out = 0;
  for (Offer& offer : plan.offers) {
    const auto place = std::find_if(bad.begin(), bad.end(), [&offer](const ExcludedPlace& one) {
      return !offer.place.empty() && one.place == offer.place;
    });
    if (place == bad.end()) {
      good.push_back(std::move(offer));
      continue;
    }
    ++left_out;
    plan.left_out.push_back(
        {std::move(offer), absl::StrCat("a bad machine lately: ", place->reason)});
  }
  plan.offers = std::move(good);
  return left_out;
}

std::vector<Offer> InOrderOfChoice(const OfferPlan& plan, const Requirements& requirements,
                                   const std::vector<std::string>& bad_places) {
  std::vector<std::pair<size_t, Offer>> ranked;
  for (const Offer& offer : plan.offers) {
    if (!offer.place.empty() &&
        std::find(bad_places.begin(), bad_places.end(), offer.place) != bad_places.end()) {
      continue;
    }
    size_t rank = 0;
    while (rank < requirements.gpus.size() &&
           !(IsModel(requirements.gpus[rank], offer) && HasCount(requirements.gpus[rank], offer))) {
      ++rank;
    }
    ranked.emplace_back(rank, offer);
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Offer> offers;
  for (auto& entry : ranked) offers.push_back(std::move(entry.second));
  return offers;
}

std::string DescribeRequirements(const Requirements& requirements) {
  std::vector<std::string> gpus;
  for (const Requirements::Gpu& gpu : requirements.gpus) gpus.push_back(DescribeGpu(gpu));
  std::string text = gpus.empty() ? "what was asked for" : absl::StrJoin(gpus, " or ");
  if (requirements.max_price_usd_per_hour.has_value()) {
    absl::StrAppend(&text, ", at most ", DescribePrice(*requirements.max_price_usd_per_hour));
  }
  if (requirements.disk_bytes > 0) {
    absl::StrAppend(&text, ", with ", FormatBytes(requirements.disk_bytes), " of disk");
  }
  if (!requirements.regions.empty()) {
    absl::StrAppend(&text, ", in ", absl::StrJoin(requirements.regions, " or "));
  }
  if (requirements.volume.has_value()) {
    absl::StrAppend(&text, ", where the volume ", DescribeVolume(*requirements.volume), " is");
    // Another instance of the user's may occupy the machine of this volume.
    if (!requirements.volume->place.empty() && requirements.volume->in_use.value_or(false)) {
      absl::StrAppend(&text, " (in use now)");
    }
  }
  return absl::StrCat(text, requirements.spot ? ", spot" : "");
}

std::string DescribeGpus(const Offer& offer) {
  if (!offer.gpu_name.empty()) return absl::StrCat(offer.gpu_name, ":", offer.gpu_count);
  if (offer.gpu_count == 0) return offer.description.empty() ? offer.ref : offer.description;
  return absl::StrCat(offer.gpu_count, " GPU of ", FormatGpuMemory(offer.gpu_memory_bytes));
}

std::string DescribePrice(double usd_per_hour) {
  return absl::StrFormat("%.*f USD/h", usd_per_hour < 0.1 ? 3 : 2, usd_per_hour);
}

}  // namespace gpuctl
