#include "provisioning/local/local_provider.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace gpuctl {
namespace {

constexpr char kLocal[] = "local";

class LocalProvider : public Provider {
 public:
  absl::string_view name() const override { return kLocal; }
  ProviderTraits traits() const override { return {}; }

  absl::StatusOr<std::vector<Offer>> ListOffers(const Requirements&) override {
    Offer offer;
    offer.provider = kLocal;
    offer.ref = kLocal;
    offer.description = "this machine";
    return std::vector<Offer>{std::move(offer)};
  }

  absl::StatusOr<Instance> Rent(const Offer& offer, const RentOptions&,
                                absl::string_view) override {
    if (offer.provider != kLocal || offer.ref != kLocal) {
      return absl::InvalidArgumentError(
          absl::StrCat("use this machine: offer ", offer.ref, " is ", offer.provider, "'s"));
    }
    return ThisMachine();
  }

  absl::StatusOr<Instance> Describe(const InstanceId& id) override {
    if (id == kLocal) return ThisMachine();
    return absl::NotFoundError(
        absl::StrCat("describe ", id, ": the local provider has only ", kLocal));
  }

  absl::StatusOr<std::vector<Instance>> ListInstances() override { return std::vector<Instance>(); }
  absl::Status Terminate(const InstanceId&) override { return absl::OkStatus(); }

 private:
  static Instance ThisMachine() {
    Instance instance;
    instance.id = kLocal;
    instance.state = Instance::State::kRunning;
    return instance;
  }
};

}  // namespace

std::unique_ptr<Provider> MakeLocalProvider() { return std::make_unique<LocalProvider>(); }

}  // namespace gpuctl
