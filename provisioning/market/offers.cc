#include "provisioning/market/offers.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "provisioning/market/gpu_models.h"
#include "provisioning/market/regions.h"
#include "provisioning/market/rent_options.h"

namespace gpuctl {

bool IsElsewhere(const Requirements& requirements, absl::string_view provider) {
  return requirements.volume.has_value() && requirements.volume->provider != provider;
}

std::vector<Requirements::Gpu> AskedGpus(const Requirements& requirements) {
  return requirements.gpus.empty() ? std::vector<Requirements::Gpu>(1) : requirements.gpus;
}

std::set<int> AskedGpuCounts(const Requirements& requirements) {
  std::set<int> counts;
  for (const Requirements::Gpu& gpu : AskedGpus(requirements)) counts.insert(gpu.count);
  return counts;
}

bool AsksFor(const Requirements& requirements, int64_t count, absl::string_view gpu_name,
             int64_t memory_bytes) {
  const std::vector<Requirements::Gpu> gpus = AskedGpus(requirements);
  return std::any_of(gpus.begin(), gpus.end(), [&](const Requirements::Gpu& gpu) {
    return gpu.count == count && GpuSatisfies(gpu, gpu_name, memory_bytes);
  });
}

void KeepAffordable(const Requirements& requirements, std::vector<Offer>& offers) {
  if (requirements.max_price_usd_per_hour.has_value()) {
    const double most = *requirements.max_price_usd_per_hour;
    offers.erase(std::remove_if(offers.begin(), offers.end(),
                                [most](const Offer& o) { return o.price_usd_per_hour > most; }),
                 offers.end());
  }
  std::sort(offers.begin(), offers.end(), [](const Offer& a, const Offer& b) {
    return std::tie(a.price_usd_per_hour, a.ref) < std::tie(b.price_usd_per_hour, b.ref);
  });
  // Alternatives may ask for the same machine.
  offers.erase(std::unique(offers.begin(), offers.end(),
                           [](const Offer& a, const Offer& b) { return a.ref == b.ref; }),
               offers.end());
}

bool OfferList::TakesPlace(absl::string_view region, absl::string_view country) const {
  return IsInRegions(requirements_.regions, region, country) &&
         (!requirements_.volume.has_value() || requirements_.volume->region == region);
}

Offer& OfferList::Add() {
  Offer& offer = offers_.emplace_back();
  offer.provider = provider_;
  return offer;
}

std::vector<Offer> OfferList::Finish() {
  KeepAffordable(requirements_, offers_);
  return std::move(offers_);
}

absl::Status ForeignOffer(const Offer& offer, absl::string_view provider_title) {
  return absl::InvalidArgumentError(
      absl::StrCat("offer ", offer.provider, " ", offer.ref, " is none of ", provider_title, "'s"));
}

absl::Status CheckPlainMachine(const Offer& offer, const RentOptions& options,
                               absl::string_view provider_title) {
  if (!options.image.empty() || options.registry_login.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(provider_title, " runs no container images: ", options.image));
  }
  if (!options.volume_id.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no volume of ", provider_title, " can be mounted"));
  }
  if (offer.disk_bytes != 0 && options.disk_bytes > offer.disk_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("its disk has ", offer.disk_bytes / kDiskGb, " GB and cannot be larger"));
  }
  return absl::OkStatus();
}

Instance RentedInstance(const Offer& offer, absl::string_view id, absl::string_view label,
                        absl::string_view status) {
  Instance instance;
  instance.id = std::string(id);
  instance.label = std::string(label);
  instance.status = std::string(status);
  instance.price_usd_per_hour = offer.price_usd_per_hour;
  instance.gpu_name = offer.gpu_name;
  instance.gpu_count = offer.gpu_count;
  instance.region = offer.region;
  instance.place = offer.place;
  return instance;
}

}  // namespace gpuctl
