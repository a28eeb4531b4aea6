// The promises of every Provider, as one suite. A provider's test derives from
// ProviderContractHarness and instantiates the suite.
#ifndef GPUCTL_TESTS_CONTRACT_PROVIDER_CONTRACT_H_
#define GPUCTL_TESTS_CONTRACT_PROVIDER_CONTRACT_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "provisioning/market/provider.h"

namespace gpuctl {

struct ProviderContractHarness {
  std::string name;
  std::function<std::unique_ptr<Provider>()> make;
  RentOptions options = {};  // for every machine that the suite rents
  Requirements requirements = {};
};

inline void PrintTo(const ProviderContractHarness& harness, std::ostream* out) {
  *out << harness.name;
}

class ProviderContract : public ::testing::TestWithParam<ProviderContractHarness> {
 protected:
  void SetUp() override {
    provider_ = GetParam().make();
    ASSERT_NE(provider_, nullptr);
  }
  Offer FirstOffer() {
    const absl::StatusOr<std::vector<Offer>> offers =
        provider_->ListOffers(GetParam().requirements);
    EXPECT_TRUE(offers.ok()) << offers.status();
    EXPECT_FALSE(offers->empty());
    return offers->front();
  }
  std::unique_ptr<Provider> provider_;
};

TEST_P(ProviderContract, OffersCarryItsNameAndComeCheapestFirst) {
  const auto offers = provider_->ListOffers(GetParam().requirements);
  ASSERT_TRUE(offers.ok()) << offers.status();
  ASSERT_FALSE(offers->empty());
  double price = 0;
  for (const Offer& offer : *offers) {
    EXPECT_EQ(offer.provider, provider_->name());
    EXPECT_FALSE(offer.ref.empty());
    EXPECT_EQ(offer.spot, GetParam().requirements.spot);
    EXPECT_GE(offer.price_usd_per_hour, price);
    price = offer.price_usd_per_hour;
  }
}

TEST_P(ProviderContract, DescribesWhatItRented) {
  const auto rented =
      provider_->Rent(FirstOffer(), GetParam().options, "gpuctl-00ff12ab-0123456789ab");
  ASSERT_TRUE(rented.ok()) << rented.status();
  EXPECT_FALSE(rented->id.empty());
  const auto described = provider_->Describe(rented->id);
  ASSERT_TRUE(described.ok()) << described.status();
  EXPECT_EQ(described->id, rented->id);
  EXPECT_TRUE(provider_->Terminate(rented->id).ok());
}

TEST_P(ProviderContract, RefusesOffersThatAreNotItsOwn) {
  Offer offer = FirstOffer();
  offer.provider = "somebody-else";
  offer.ref = "nothing-of-ours";
  const absl::StatusCode code =
      provider_->Rent(offer, GetParam().options, "gpuctl-00ff12ab-0123456789ab").status().code();
  EXPECT_TRUE(code == absl::StatusCode::kInvalidArgument || code == absl::StatusCode::kAborted);
}

TEST_P(ProviderContract, SaysSoWhenAnInstanceIsGone) {
  EXPECT_EQ(provider_->Describe("no-such-instance").status().code(), absl::StatusCode::kNotFound);
}

TEST_P(ProviderContract, TerminatesTwice) {
  const auto rented =
      provider_->Rent(FirstOffer(), GetParam().options, "gpuctl-00ff12ab-0123456789ab");
  ASSERT_TRUE(rented.ok()) << rented.status();
  EXPECT_TRUE(provider_->Terminate(rented->id).ok());
  // A service may still know it, or not any more.
  const absl::Status again = provider_->Terminate(rented->id);
  EXPECT_TRUE(again.ok() || absl::IsNotFound(again)) << again;
  EXPECT_EQ(provider_->Describe(rented->id).status().code(), absl::StatusCode::kNotFound);
}

TEST_P(ProviderContract, ListsWhatBillsAndNothingElse) {
  const auto rented =
      provider_->Rent(FirstOffer(), GetParam().options, "gpuctl-00ff12ab-0123456789ab");
  ASSERT_TRUE(rented.ok()) << rented.status();
  const auto before = provider_->ListInstances();
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_EQ(before->size(), 1u);
  ASSERT_TRUE(provider_->Terminate(rented->id).ok());
  const auto after = provider_->ListInstances();
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_TRUE(after->empty());
}

TEST_P(ProviderContract, TakesALoginWhereItsTraitsSaySo) {
  const ProviderTraits traits = provider_->traits();
  RentOptions options = GetParam().options;
  options.registry_login = RegistryLogin{"ghcr.io", "ada", "pass-word-1"};
  if (traits.takes_image) options.image = "ghcr.io/ada/tool:1";
  const absl::Status checked = provider_->CheckLogin(*options.registry_login);
  const auto rented = provider_->Rent(FirstOffer(), options, "gpuctl-00ff12ab-0123456789ab");
  EXPECT_EQ(checked.ok(), traits.takes_login) << checked;
  EXPECT_EQ(rented.ok(), traits.takes_login) << rented.status();
  EXPECT_EQ(checked.ToString().find("pass-word-1"), std::string::npos);
  if (!rented.ok()) {
    EXPECT_EQ(rented.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(provider_->ListInstances()->empty());
    return;
  }
  EXPECT_TRUE(traits.takes_image);
  // A login that an instance uses stays, as do those of other owners.
  EXPECT_EQ(provider_->RemoveUnusedLogins("00ff12ab").value_or(-1), 0);
  EXPECT_TRUE(provider_->Terminate(rented->id).ok());
  EXPECT_EQ(provider_->RemoveUnusedLogins("00ff12ac").value_or(-1), 0);
  const int removed = provider_->RemoveUnusedLogins("00ff12ab").value_or(-1);
  EXPECT_GE(removed, 0);
  EXPECT_LE(removed, 1);
  EXPECT_EQ(provider_->RemoveUnusedLogins("00ff12ab").value_or(-1), 0);
}

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_CONTRACT_PROVIDER_CONTRACT_H_
