// A rental market with given offers.
#ifndef GPUCTL_TESTS_SUPPORT_FAKE_MARKET_H_
#define GPUCTL_TESTS_SUPPORT_FAKE_MARKET_H_

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "provisioning/market/gpu_models.h"
#include "provisioning/market/provider.h"

namespace gpuctl {

// A market for tests of planning only: nothing can be rented.
class FakeMarket : public Provider {
 public:
  FakeMarket(std::string name, std::vector<Offer> offers)
      : name_(std::move(name)), offers_(std::move(offers)) {
    for (Offer& offer : offers_) offer.provider = name_;
  }
  FakeMarket(std::string name, absl::Status failure)
      : name_(std::move(name)), failure_(std::move(failure)) {}

  absl::string_view name() const override { return name_; }
  ProviderTraits traits() const override { return {}; }

  absl::StatusOr<std::vector<Offer>> ListOffers(const Requirements& requirements) override {
    asked_.push_back(requirements);
    if (!failure_.ok()) return failure_;
    std::vector<Offer> fitting;
    for (const Offer& offer : offers_) {
      if (Fits(requirements, offer)) fitting.push_back(offer);
    }
    return fitting;
  }
  absl::StatusOr<Instance> Rent(const Offer&, const RentOptions&, absl::string_view) override {
    return absl::AbortedError("nothing can be rented here");
  }
  absl::StatusOr<Instance> Describe(const InstanceId&) override {
    return absl::NotFoundError("nothing is rented here");
  }
  absl::StatusOr<std::vector<Instance>> ListInstances() override { return std::vector<Instance>(); }
  absl::Status Terminate(const InstanceId&) override { return absl::OkStatus(); }

  absl::StatusOr<std::vector<Volume>> ListVolumes() override {
    if (!failure_.ok()) return failure_;
    return volumes_;
  }

  FakeMarket& Have(const Volume& volume) {
    volumes_.push_back(volume);
    volumes_.back().provider = name_;
    return *this;
  }
  const std::vector<Requirements>& asked() const { return asked_; }

 private:
  static bool Fits(const Requirements& requirements, const Offer& offer) {
    if (requirements.max_price_usd_per_hour.has_value() &&
        offer.price_usd_per_hour > *requirements.max_price_usd_per_hour) {
      return false;
    }
    if (!requirements.regions.empty() &&
        std::find(requirements.regions.begin(), requirements.regions.end(), offer.region) ==
            requirements.regions.end()) {
      return false;
    }
    return requirements.gpus.empty() ||
           std::any_of(requirements.gpus.begin(), requirements.gpus.end(), [&](const auto& gpu) {
             return GpuSatisfies(gpu, offer.gpu_name, offer.gpu_memory_bytes);
           });
  }

  const std::string name_;
  const absl::Status failure_;
  std::vector<Offer> offers_;
  std::vector<Volume> volumes_;
  std::vector<Requirements> asked_;
};

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_FAKE_MARKET_H_
