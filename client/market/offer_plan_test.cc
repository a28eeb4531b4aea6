#include "client/market/offer_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/base/exit_codes.h"
#include "tests/support/fake_market.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Offer MakeOffer(const std::string& ref, const std::string& gpu, int count, int64_t memory_gb,
                double price, const std::string& region = "US") {
  Offer offer;
  offer.ref = ref;
  offer.gpu_name = gpu;
  offer.gpu_count = count;
  offer.gpu_memory_bytes = memory_gb * 1'000'000'000;
  offer.price_usd_per_hour = price;
  offer.region = region;
  offer.place = ref;
  return offer;
}

Requirements Wish(const std::string& text) {
  RunSpec spec;
  spec.gpu.push_back(ParseGpuRequirement(text).value());
  return RequirementsOf(spec);
}

std::vector<std::string> Refs(const std::vector<Offer>& offers) {
  std::vector<std::string> refs;
  for (const Offer& offer : offers) refs.push_back(offer.ref);
  return refs;
}

// Asks markets that live longer than the answer.
OfferPlan Ask(std::initializer_list<Provider*> markets, const Requirements& requirements,
              bool explain) {
  std::vector<Market> asked;
  for (Provider* const market : markets) {
    asked.push_back({std::string(market->name()),
                     std::shared_ptr<Provider>(market, [](Provider*) {}), "", nullptr});
  }
  return AskMarkets(asked, requirements, explain, /*times_path=*/"");
}

class PlanTest : public ::testing::Test {
 protected:
  FakeMarket runpod_{
      "runpod",
      {MakeOffer("r1", "H100-SXM", 1, 80, 2.99), MakeOffer("r2", "H100-PCIe", 1, 80, 2.39),
       MakeOffer("r3", "RTX-4090", 1, 24, 0.74)}};
  FakeMarket vast_{
      "vast",
      {MakeOffer("v1", "H100-SXM", 1, 80, 1.87, "SE"), MakeOffer("v2", "H100-SXM", 2, 80, 3.9),
       MakeOffer("v3", "A100-80GB", 1, 80, 1.1)}};
  FakeMarket broken_{"lambda", absl::UnavailableError("no connection")};
  FakeMarket locked_{"lambda", absl::UnauthenticatedError("bad key")};
};

TEST_F(PlanTest, MergesCheapestFirst) {
  const OfferPlan plan = Ask({&runpod_, &vast_}, Wish("H100:1"), false);
  EXPECT_THAT(Refs(plan.offers), ElementsAre("v1", "r2", "r1"));
  EXPECT_THAT(plan.left_out, IsEmpty());
  ASSERT_EQ(plan.markets.size(), 2u);
  EXPECT_EQ(plan.markets[0].offers, 2);
  EXPECT_EQ(plan.markets[1].offers, 1);
  EXPECT_EQ(runpod_.asked().size(), 1u);
  EXPECT_OK(CheckPlan(plan, Wish("H100:1")));
}

TEST_F(PlanTest, AFailingMarketIsNamedBesideTheOthersOffers) {
  const OfferPlan plan = Ask({&broken_, &vast_}, Wish("H100:1"), false);
  EXPECT_THAT(Refs(plan.offers), ElementsAre("v1"));
  EXPECT_EQ(plan.markets[0].market, "lambda");
  EXPECT_THAT(plan.markets[0].status, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_OK(CheckPlan(plan, Wish("H100:1")));
}

TEST_F(PlanTest, ExplainsWhatWasLeftOut) {
  Requirements wish = Wish("H100:1");
  wish.max_price_usd_per_hour = 2.5;
  wish.regions = {"US"};
  const OfferPlan plan = Ask({&runpod_, &vast_}, wish, true);
  EXPECT_THAT(Refs(plan.offers), ElementsAre("r2"));
  std::vector<std::string> reasons;
  for (const LeftOut& left_out : plan.left_out) {
    reasons.push_back(left_out.offer.ref + ": " + left_out.reason);
  }
  EXPECT_THAT(reasons, ElementsAre("v1: in SE, not in US", "r1: over 2.50 USD/h", "v2: 2 GPUs"));
}

TEST_F(PlanTest, AVolumeKeepsARunWhereItIs) {
  Requirements wish = Wish("H100:1");
  Volume volume;
  volume.provider = "runpod";
  volume.id = "vol-1";
  volume.name = "sets";
  volume.region = "US";
  wish.volume = volume;
  OfferPlan plan = Ask({&runpod_, &vast_}, wish, true);
  EXPECT_THAT(Refs(plan.offers), ElementsAre("r2", "r1"));
  std::vector<std::string> reasons;
  for (const LeftOut& left_out : plan.left_out) {
    reasons.push_back(left_out.offer.ref + ": " + left_out.reason);
  }
  EXPECT_THAT(reasons,
              ElementsAre("v1: cannot mount the volume sets (vol-1 at runpod, US)", "v2: 2 GPUs"));

  // The volume is not in another region; a volume on a machine needs that machine.
  wish.volume->region = "EU";
  plan = Ask({&runpod_}, wish, false);
  EXPECT_THAT(plan.offers, IsEmpty());
  EXPECT_THAT(std::string(CheckPlan(plan, wish).message()),
              HasSubstr("nothing on offer is H100:1, where the volume sets (vol-1 at runpod, EU) "
                        "is; nearest: H100-PCIe:1 at runpod"));
  wish.volume->provider = "vast";
  wish.volume->place = "v1";
  EXPECT_THAT(Refs(Ask({&runpod_, &vast_}, wish, false).offers), ElementsAre("v1"));
  EXPECT_THAT(DescribeRequirements(wish), Not(HasSubstr("in use")));
  wish.volume->in_use = true;
  EXPECT_THAT(DescribeRequirements(wish), HasSubstr("is (in use now)"));
}

TEST_F(PlanTest, NothingFitsNamesTheNearest) {
  Requirements wish = Wish("H100:1");
  wish.max_price_usd_per_hour = 1.5;
  const OfferPlan plan = Ask({&runpod_, &vast_, &broken_}, wish, false);
  EXPECT_THAT(plan.offers, IsEmpty());
  const absl::Status status = CheckPlan(plan, wish);
  EXPECT_EQ(ExitCodeOf(status), kExitCapacity);
  EXPECT_EQ(status.message(),
            "nothing on offer is H100:1, at most 1.50 USD/h; nearest: H100-SXM:1 at vast, 1.87 "
            "USD/h in SE; H100-PCIe:1 at runpod, 2.39 USD/h in US; H100-SXM:1 at runpod, 2.99 "
            "USD/h in US; no answer from lambda: no connection");
  EXPECT_EQ(CauseOf(status), kPriceLimit);
  // A price that would not help is not what is wrong.
  wish.spot = true;
  EXPECT_EQ(CauseOf(CheckPlan(Ask({&runpod_, &vast_}, wish, false), wish)), "");
  wish = Wish("H200:1");
  wish.max_price_usd_per_hour = 1.5;
  EXPECT_EQ(CauseOf(CheckPlan(Ask({&runpod_, &vast_}, wish, false), wish)), "");
}

TEST_F(PlanTest, AnotherModelIsNearestWhenThereIsNoneOfThatKind) {
  const Requirements wish = Wish("H200:1");
  const absl::Status status = CheckPlan(Ask({&runpod_, &vast_}, wish, false), wish);
  EXPECT_EQ(ExitCodeOf(status), kExitCapacity);
  // Enough memory ranks before a low price.
  EXPECT_THAT(std::string(status.message()), HasSubstr("nearest: H100-SXM:2 at vast, 3.90 USD/h"));
}

TEST_F(PlanTest, TheLargestIsNearestWhereAllAreTooSmall) {
  const Requirements wish = Wish("B300:1");
  const absl::Status status = CheckPlan(Ask({&runpod_}, wish, false), wish);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("nearest: H100-PCIe:1 at runpod, 2.39 USD/h in US; H100-SXM:1"));
}

TEST_F(PlanTest, TheCheapestIsNearestToASmallOrAnUnknownCard) {
  for (const char* name : {"T4:1", "RTX-3060:1"}) {
    const Requirements wish = Wish(name);
    const absl::Status status = CheckPlan(Ask({&runpod_, &vast_}, wish, false), wish);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("nearest: RTX-4090:1 at runpod, 0.74 USD/h"))
        << name;
  }
}

TEST_F(PlanTest, OffersBesideThePointAreLeftOutWhoeverListsThem) {
  class Careless : public FakeMarket {
   public:
    using FakeMarket::FakeMarket;
    absl::StatusOr<std::vector<Offer>> ListOffers(const Requirements&) override {
      return FakeMarket::ListOffers({});
    }
  };
  Careless market("vast",
                  {MakeOffer("big", "H100-SXM", 8, 80, 16), MakeOffer("dear", "H100-SXM", 1, 80, 9),
                   MakeOffer("good", "H100-SXM", 1, 80, 2), MakeOffer("other", "T4", 1, 16, 0.1)});
  Requirements wish = Wish("H100:1");
  wish.max_price_usd_per_hour = 3;
  EXPECT_THAT(Refs(Ask({&market}, wish, false).offers), ElementsAre("good"));
}

TEST_F(PlanTest, ExitCodesWhenNobodyAnswers) {
  const Requirements wish = Wish("H100:1");
  absl::Status status = CheckPlan(Ask({&broken_}, wish, false), wish);
  EXPECT_EQ(ExitCodeOf(status), kExitProvider);
  status = CheckPlan(Ask({&locked_}, wish, false), wish);
  EXPECT_EQ(ExitCodeOf(status), kExitCredentials);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("lambda: bad key")));
  status = CheckPlan(Ask({&locked_, &broken_}, wish, false), wish);
  EXPECT_EQ(ExitCodeOf(status), kExitProvider);
}

TEST_F(PlanTest, FirstChoiceFirstAndBadPlacesNever) {
  RunSpec spec;
  spec.gpu = {ParseGpuRequirement("H100:1").value(), ParseGpuRequirement("A100-80GB:1").value()};
  const Requirements wish = RequirementsOf(spec);
  const OfferPlan plan = Ask({&runpod_, &vast_}, wish, false);
  EXPECT_THAT(Refs(plan.offers), ElementsAre("v3", "v1", "r2", "r1"));
  EXPECT_THAT(Refs(InOrderOfChoice(plan, wish, {})), ElementsAre("v1", "r2", "r1", "v3"));
  EXPECT_THAT(Refs(InOrderOfChoice(plan, wish, {"v1"})), ElementsAre("r2", "r1", "v3"));
}

NodePrograms ProgramsFor(const std::vector<NodePlatform>& platforms) {
  NodePrograms programs;
  for (const NodePlatform platform : platforms) {
    PlatformPrograms one;
    one.platform = platform;
    programs.Add(one);
  }
  return programs;
}

// One offer of each processor, otherwise alike.
TEST_F(PlanTest, AProcessorWithoutProgramsIsLeftOutWithTheCommandThatBringsThem) {
  Offer arm = MakeOffer("arm", "GH200", 1, 96, 1.5);
  arm.arm64 = true;
  FakeMarket runpod("runpod", {arm});
  FakeMarket vast("vast", {MakeOffer("x86", "GH200", 1, 96, 3)});
  const struct {
    std::vector<NodePlatform> programs;
    std::vector<std::string> offers;
  } kCases[] = {
      {{NodePlatform::kLinuxX86_64, NodePlatform::kLinuxAarch64}, {"arm", "x86"}},
      {{NodePlatform::kLinuxX86_64}, {"x86"}},
      {{NodePlatform::kLinuxX86_64, NodePlatform::kMacArm64}, {"x86"}},
      {{NodePlatform::kLinuxAarch64, NodePlatform::kMacArm64}, {"arm"}},
      // Nothing can be delivered at all; the launch says that.
      {{NodePlatform::kMacArm64}, {"arm", "x86"}},
      {{}, {"arm", "x86"}},
  };
  for (const auto& one : kCases) {
    Requirements wish = Wish("GH200:1");
    ServeOnly(ProgramsFor(one.programs), wish);
    EXPECT_EQ(Refs(Ask({&runpod, &vast}, wish, true).offers), one.offers)
        << PlatformNames(one.programs);
  }
  Requirements wish = Wish("GH200:1");
  ServeOnly(ProgramsFor({NodePlatform::kLinuxX86_64}), wish);
  OfferPlan plan = Ask({&runpod, &vast}, wish, true);
  ASSERT_EQ(plan.left_out.size(), 1u);
  EXPECT_EQ(plan.left_out[0].reason,
            "its processor is arm64, and there are node programs for linux-x86_64 only");
  EXPECT_OK(CheckPlan(plan, wish));
  // Nothing else fits.
  plan = Ask({&runpod}, wish, false);
  const absl::Status status = CheckPlan(plan, wish);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound,
                               HasSubstr("nothing on offer is GH200:1 but GH200:1 at ")));
  EXPECT_THAT(HintOf(status), HasSubstr("gpuctl node fetch linux-aarch64"));
  EXPECT_EQ(ExitCodeOf(status), kExitUsage);
  // Programs would not help an offer that does not fit either.
  wish.max_price_usd_per_hour = 1;
  EXPECT_EQ(ExitCodeOf(CheckPlan(Ask({&runpod}, wish, false), wish)), kExitCapacity);
}

TEST_F(PlanTest, UnknownHardwareIsNotHeldAgainstAnOffer) {
  Offer unknown;
  unknown.ref = "u";
  EXPECT_EQ(WhyNot(Wish("H100:1"), unknown), "");
  Offer spot = MakeOffer("s", "H100-SXM", 1, 80, 1);
  spot.spot = true;
  EXPECT_THAT(WhyNot(Wish("H100:1"), spot), HasSubstr("spot"));
  Requirements wish = Wish("24GB..40GB");
  EXPECT_EQ(WhyNot(wish, MakeOffer("m", "RTX-4090", 1, 24, 1)), "");
  EXPECT_EQ(WhyNot(wish, MakeOffer("m", "H100-SXM", 1, 80, 1)), "another GPU");
  wish.disk_bytes = 100'000'000'000;
  Offer small = MakeOffer("d", "RTX-4090", 1, 24, 1);
  small.disk_bytes = 50'000'000'000;
  EXPECT_THAT(WhyNot(wish, small), HasSubstr("50.0 GB of disk"));
}

TEST_F(PlanTest, LeavesOutMarketsByWhoseClockOursIsWrong) {
  const auto skews = [](absl::Duration of_vast) {
    std::vector<Market> markets(3);
    for (size_t i = 0; i < markets.size(); ++i) {
      markets[i].name = std::vector<std::string>{"runpod", "vast", "lambda"}[i];
      const auto skew = std::make_shared<ClockSkew>();
      if (i == 1) skew->Set(of_vast);
      if (i < 2) markets[i].skew = skew;  // lambda's was never asked, runpod's answer had no date
    }
    return markets;
  };
  OfferPlan plan = Ask({&runpod_, &vast_}, Wish("H100:1"), false);
  LeaveOutMarketsOfOtherTimes(skews(absl::Minutes(-10)), plan);
  EXPECT_THAT(Refs(plan.offers), ElementsAre("v1", "r2", "r1"));
  LeaveOutMarketsOfOtherTimes(skews(absl::Hours(-1)), plan);
  EXPECT_THAT(Refs(plan.offers), ElementsAre("r2", "r1"));
  EXPECT_THAT(plan.markets[1].status,
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("1h 00m behind vast's")));
  EXPECT_EQ(plan.markets[1].offers, 0);
  EXPECT_OK(CheckPlan(plan, Wish("H100:1")));
  plan = Ask({&vast_}, Wish("H100:1"), false);
  LeaveOutMarketsOfOtherTimes(skews(absl::Hours(9600)), plan);
  const absl::Status none = CheckPlan(plan, Wish("H100:1"));
  EXPECT_THAT(none, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("ahead of vast's")));
  EXPECT_EQ(HintOf(none), "set the clock, then try again");
}

}  // namespace
}  // namespace gpuctl
