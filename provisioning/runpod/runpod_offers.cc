#include "provisioning/runpod/runpod_offers.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "provisioning/market/gpu_models.h"
#include "provisioning/market/offers.h"
#include "provisioning/market/regions.h"
#include "provisioning/market/rent_options.h"
#include "provisioning/runpod/runpod_api.h"

namespace gpuctl {
namespace {

// Returns the country: "US" of US-TX-3, "RO" of EU-RO-1, "CA" of CA-MTL-1.
std::string CountryOfDataCenter(absl::string_view id) {
  const std::vector<absl::string_view> parts = absl::StrSplit(id, '-');
  const std::string first = CountryCode(parts[0]);
  if (!first.empty() && parts[0] != "AP" && parts[0] != "OC" && parts[0] != "SA") return first;
  return parts.size() > 1 ? CountryCode(parts[1]) : "";
}

// Returns the reference. The GPU type comes last, because its name may contain anything.
std::string FormatRef(const RunpodRef& ref) {
  return absl::StrCat(ref.cloud, "|", ref.data_center, "|", ref.gpu_count, "|", ref.gpu_id);
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

void AddOffers(const Requirements& requirements, const RunpodGpuType& type, bool secure, int count,
               std::vector<Offer>& offers) {
  const std::optional<double> price =
      secure ? type.secure_usd_per_hour : type.community_usd_per_hour;
  const std::optional<int64_t> most = secure ? type.secure_max_count : type.community_max_count;
  if (!type.manufacturer.empty() && type.manufacturer != "NVIDIA") return;
  if (!price.has_value() || *price <= 0 || most.value_or(count) < count) return;
  const int64_t memory_bytes = std::clamp<int64_t>(type.memory_gb, 0, 100'000) * 1'000'000'000;
  const std::string gpu_name = CanonicalGpuName(type.id, memory_bytes);
  if (!AsksFor(requirements, count, gpu_name, memory_bytes)) return;
  const char* const cloud = RunpodCloud(secure);
  std::vector<RunpodGpuType::DataCenter> centers = type.data_centers;
  // Hosts outside the data centres are not in the list of data centres.
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
    offer.provider = kRunpodName;
    offer.ref = FormatRef({cloud, center.id, count, type.id});
    offer.description = absl::StrCat(count, " x ", type.name, " (", secure ? "secure" : "community",
                                     ")", center.id.empty() ? "" : absl::StrCat(" in ", center.id));
    offer.price_usd_per_hour = *price * count + RunpodDiskUsdPerHour(DiskGb(requirements.disk_bytes,
                                                                            kRunpodDefaultDiskGb));
    offer.gpu_name = gpu_name;
    offer.gpu_count = count;
    offer.gpu_memory_bytes = memory_bytes;
    offer.region = center.id;
    offer.cuda_version = HighestVersion(type.cuda_versions);
    offer.takes_volume = secure && !center.id.empty();
    offer.place = RunpodPlace(cloud, center.id, type.id);
    offers.push_back(std::move(offer));
  }
}

}  // namespace

const char* RunpodCloud(bool secure) { return secure ? "SECURE" : "COMMUNITY"; }

bool IsRunpodCloud(absl::string_view name) {
  return name == RunpodCloud(true) || name == RunpodCloud(false);
}

absl::StatusOr<RunpodRef> ParseRunpodRef(const Offer& offer) {
  const std::vector<std::string> parts = absl::StrSplit(offer.ref, absl::MaxSplits('|', 3));
  RunpodRef ref;
  if (offer.provider != kRunpodName || parts.size() != 4 || parts[3].empty() ||
      !IsRunpodCloud(parts[0]) || !absl::SimpleAtoi(parts[2], &ref.gpu_count) ||
      ref.gpu_count < 1) {
    return ForeignOffer(offer, "Runpod");
  }
  ref.cloud = parts[0];
  ref.data_center = parts[1];
  ref.gpu_id = parts[3];
  return ref;
}

absl::StatusOr<std::vector<Offer>> ListRunpodOffers(const RestApi& api,
                                                    const Requirements& requirements) {
  std::vector<Offer> offers;
  for (const int count : AskedGpuCounts(requirements)) {
    for (const bool secure : {true, false}) {
      // Machines of hosts cannot reach a network volume.
      if (requirements.volume.has_value() && !secure) continue;
      ASSIGN_OR_RETURN(const std::vector<RunpodGpuType> types,
                       api.Get("list Runpod's GPUs",
                               absl::StrCat("/v2/catalog/gpus?include=AVAILABILITY&product=POD",
                                            "&cloud=", RunpodCloud(secure), "&count=", count),
                               ParseRunpodCatalog));
      for (const RunpodGpuType& type : types) AddOffers(requirements, type, secure, count, offers);
    }
  }
  KeepAffordable(requirements, offers);
  return offers;
}

std::string RunpodPlace(absl::string_view cloud, absl::string_view data_center,
                        absl::string_view gpu_id) {
  return absl::StrCat(kRunpodName, "/", data_center.empty() ? cloud : data_center, "/", gpu_id);
}

}  // namespace gpuctl
