#include "provisioning/runpod/runpod_spot.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "provisioning/market/gpu_models.h"
#include "provisioning/market/offers.h"
#include "provisioning/market/rent_options.h"
#include "provisioning/runpod/runpod_graphql.h"
#include "provisioning/runpod/runpod_offers.h"

namespace gpuctl {
namespace {

constexpr char kPrefix[] = "SPOT-";
// The factor between our bid and the lowest accepted one. Others bid, too, and the lowest bidder
// loses first.
constexpr double kBidMargin = 1.05;
// The rounding error of adding up a price and splitting it again.
constexpr double kEpsilon = 1e-9;

// Returns the pod that the answer to a rent names.
absl::StatusOr<RunpodSpotPod> PodOf(const HttpResponse& response) {
  const MarketError error = FindRunpodGraphqlError(response.body);
  const absl::Status refusal = StatusOfRunpodRefusal(response, error, /*creating=*/true);
  if (response.status / 100 != 2) return refusal;
  absl::StatusOr<RunpodSpotPod> pod = ParseRunpodSpotPod(response.body);
  if (error.message.empty()) return pod;
  // A pod may have been made beside an error.
  if (pod.ok()) return absl::UnknownError(absl::StrCat(refusal.message(), ": pod ", pod->id));
  // For an error that is not known, too.
  return refusal;
}

void AddOffers(const Requirements& requirements, const RunpodSpotType& type, bool secure, int count,
               std::vector<Offer>& offers) {
  if (!type.min_bid_usd_per_hour.has_value() || *type.min_bid_usd_per_hour <= 0 ||
      type.stock == "None" || absl::StartsWith(type.id, "AMD")) {
    return;
  }
  const int64_t memory_bytes = std::clamp<int64_t>(type.memory_gb, 0, 100'000) * 1'000'000'000;
  const std::string gpu_name = CanonicalGpuName(type.id, memory_bytes);
  if (!AsksFor(requirements, count, gpu_name, memory_bytes)) return;
  const double disk = RunpodDiskUsdPerHour(DiskGb(requirements.disk_bytes, kRunpodDefaultDiskGb));
  const double least = *type.min_bid_usd_per_hour;
  double bid = least * kBidMargin;
  if (requirements.max_price_usd_per_hour.has_value()) {
    const double most = (*requirements.max_price_usd_per_hour - disk) / count;
    bid = std::max(least, std::min(bid, most));
  }
  const char* const cloud = RunpodCloud(secure);
  Offer offer;
  offer.provider = kRunpodName;
  offer.ref = absl::StrFormat("%s%s|%.6f|%d|%s", kPrefix, cloud, least, count, type.id);
  offer.description = absl::StrCat(count, " x ", PrintableText(type.name, 60), " (",
                                   secure ? "secure" : "community", ", spot)");
  offer.price_usd_per_hour = bid * count + disk;
  offer.gpu_name = gpu_name;
  offer.gpu_count = count;
  offer.gpu_memory_bytes = memory_bytes;
  offer.spot = true;
  offer.takes_volume = false;  // its data centre is not known before
  offer.place = absl::StrCat(kRunpodName, "/spot-", cloud, "-", type.id);
  offers.push_back(std::move(offer));
}

}  // namespace

std::optional<RunpodSpotRef> ParseRunpodSpotRef(const Offer& offer) {
  const std::vector<std::string> parts = absl::StrSplit(offer.ref, absl::MaxSplits('|', 3));
  RunpodSpotRef ref;
  if (offer.provider != kRunpodName || parts.size() != 4 || !absl::StartsWith(parts[0], kPrefix) ||
      !absl::SimpleAtod(parts[1], &ref.min_bid_usd_per_hour) || ref.min_bid_usd_per_hour <= 0 ||
      !absl::SimpleAtoi(parts[2], &ref.gpu_count) || ref.gpu_count < 1 || parts[3].empty()) {
    return std::nullopt;
  }
  ref.cloud = parts[0].substr(sizeof(kPrefix) - 1);
  if (!IsRunpodCloud(ref.cloud)) return std::nullopt;
  ref.gpu_id = parts[3];
  return ref;
}

absl::StatusOr<std::vector<Offer>> ListRunpodSpotOffers(const RestApi& api,
                                                        const Requirements& requirements) {
  constexpr absl::string_view kDoing = "list Runpod's spot prices";
  std::vector<Offer> offers;
  if (!requirements.regions.empty()) return offers;
  for (const int count : AskedGpuCounts(requirements)) {
    for (const bool secure : {true, false}) {
      ASSIGN_OR_RETURN(const HttpResponse response,
                       api.Send({.doing = kDoing,
                                 .kind = CallKind::kRead,
                                 .method = "POST",
                                 .path = kRunpodGraphqlPath,
                                 .body = RunpodSpotQuery(count, secure)}));
      const MarketError error = FindRunpodGraphqlError(response.body);
      if (response.status != 200 || !error.message.empty()) {
        return Annotate(StatusOfRunpodRefusal(response, error, /*creating=*/false), kDoing);
      }
      const absl::StatusOr<std::vector<RunpodSpotType>> types = ParseRunpodSpotTypes(response.body);
      if (!types.ok()) return Annotate(types.status(), kDoing);
      for (const RunpodSpotType& type : *types) {
        AddOffers(requirements, type, secure, count, offers);
      }
    }
  }
  KeepAffordable(requirements, offers);
  return offers;
}

absl::StatusOr<Instance> RentRunpodSpot(const RestApi& api, absl::string_view doing,
                                        const Offer& offer, const RunpodSpotRef& ref,
                                        const RentOptions& options, const RunpodCreate& create) {
  const double most = options.bid_usd_per_hour.value_or(offer.price_usd_per_hour);
  const double disk = RunpodDiskUsdPerHour(create.disk_gb);
  const double bid = (most - disk) / ref.gpu_count;
  if (bid < ref.min_bid_usd_per_hour - kEpsilon) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: a bid of $%.3f/h for a GPU; it takes $%.3f", doing, bid, ref.min_bid_usd_per_hour));
  }
  ASSIGN_OR_RETURN(
      const HttpResponse response,
      api.Send({.doing = doing,
                .kind = CallKind::kCreate,
                .method = "POST",
                .path = kRunpodGraphqlPath,
                .body = RunpodSpotMutation(create, std::max(bid, ref.min_bid_usd_per_hour))}));
  const absl::StatusOr<RunpodSpotPod> pod = PodOf(response);
  if (!pod.ok()) return Annotate(pod.status(), doing);
  Instance instance = RentedInstance(offer, pod->id, create.name, "accepted");
  instance.price_usd_per_hour = pod->cost_usd_per_hour > 0 ? pod->cost_usd_per_hour + disk : most;
  instance.spot = true;
  return instance;
}

}  // namespace gpuctl
