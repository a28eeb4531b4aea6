#include "client/keys/ask_markets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "absl/synchronization/notification.h"
#include "client/base/left_thread.h"
#include "common/base/clock.h"
#include "tests/support/fake_market.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

Offer SomeOffer(const std::string& ref) {
  Offer offer;
  offer.ref = ref;
  offer.gpu_name = "H100-SXM";
  offer.gpu_count = 1;
  offer.gpu_memory_bytes = 80'000'000'000;
  offer.price_usd_per_hour = 2;
  return offer;
}

// Answers when it may.
class SlowMarket : public FakeMarket {
 public:
  SlowMarket(std::string name, absl::Notification& may_answer)
      : FakeMarket(std::move(name), {SomeOffer("slow")}), may_answer_(may_answer) {}
  absl::StatusOr<std::vector<Offer>> ListOffers(const Requirements& requirements) override {
    may_answer_.WaitForNotification();
    return FakeMarket::ListOffers(requirements);
  }

 private:
  absl::Notification& may_answer_;
};

class AskMarketsTest : public ::testing::Test {
 protected:
  AskMarketsTest() { unsetenv("GPUCTL_MARKET_PATIENCE"); }
  ~AskMarketsTest() override {
    if (!may_answer_.HasBeenNotified()) may_answer_.Notify();
    while (LeavableThreadsRun()) Clock::Real().SleepFor(absl::Milliseconds(1));
  }
  std::shared_ptr<Provider> fast_ =
      std::make_shared<FakeMarket>("fast", std::vector<Offer>{SomeOffer("quick")});
  std::shared_ptr<Provider> empty_ = std::make_shared<FakeMarket>("empty", std::vector<Offer>{});
  std::shared_ptr<Provider> broken_ =
      std::make_shared<FakeMarket>("broken", absl::UnavailableError("no connection"));
  absl::Notification may_answer_;
  std::shared_ptr<Provider> slow_ = std::make_shared<SlowMarket>("slow", may_answer_);
  AnswerTimes times_{""};
};

TEST_F(AskMarketsTest, OneThatHangsIsLeftBehind) {
  times_.Note("slow", absl::Milliseconds(20));
  const std::vector<OffersAnswer> answers =
      AskMarketsForOffers({slow_, fast_, broken_}, Requirements(), times_);
  ASSERT_THAT(answers, SizeIs(3));
  EXPECT_THAT(answers[0],
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("did not answer")));
  ASSERT_OK(answers[1]);
  EXPECT_THAT(*answers[1], SizeIs(1));
  EXPECT_THAT(answers[2], StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(LeavableThreadsRun());
  EXPECT_EQ(times_.Usual("slow"), absl::Milliseconds(20));  // what it takes now is not known
  EXPECT_NE(times_.Usual("fast"), std::nullopt);
  EXPECT_EQ(times_.Usual("broken"), std::nullopt);
}

TEST_F(AskMarketsTest, NobodyIsLeftBehindBeforeThereIsAnOffer) {
  times_.Note("slow", absl::ZeroDuration());
  std::thread later([this] {
    Clock::Real().SleepFor(absl::Seconds(2));
    may_answer_.Notify();
  });
  const std::vector<OffersAnswer> answers =
      AskMarketsForOffers({slow_, empty_, broken_}, Requirements(), times_);
  later.join();
  ASSERT_OK(answers[0]);
  EXPECT_THAT(*answers[0], SizeIs(1));
}

TEST_F(AskMarketsTest, PatienceGrowsWithWhatIsUsual) {
  EXPECT_EQ(PatienceFor(std::nullopt, absl::Seconds(1)), absl::Seconds(10));
  EXPECT_EQ(PatienceFor(absl::Milliseconds(400), absl::Milliseconds(300)),
            absl::Milliseconds(1300));
  EXPECT_EQ(PatienceFor(absl::Seconds(4), absl::Milliseconds(300)), absl::Seconds(6));
  setenv("GPUCTL_MARKET_PATIENCE", "20s", 1);
  EXPECT_EQ(PatienceFor(absl::Seconds(4), absl::Milliseconds(300)), absl::Seconds(20));
  EXPECT_OK(CheckMarketPatience());
  setenv("GPUCTL_MARKET_PATIENCE", "soon", 1);
  EXPECT_THAT(CheckMarketPatience(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("GPUCTL_MARKET_PATIENCE: ")));
  unsetenv("GPUCTL_MARKET_PATIENCE");
}

TEST_F(AskMarketsTest, TimesAreKept) {
  const TempDir dir;
  const std::string path = dir.Sub("cache/times.json");
  {
    AnswerTimes times(path);
    EXPECT_EQ(times.Usual("vast"), std::nullopt);
    times.Note("vast", absl::Seconds(1));
    times.Note("vast", absl::Seconds(3));
    times.Note("vast", absl::Seconds(2));
    EXPECT_EQ(times.Usual("vast"), absl::Milliseconds(2800));
    times.Keep();
  }
  EXPECT_EQ(AnswerTimes(path).Usual("vast"), absl::Milliseconds(2800));
  for (const char* wrong : {"", "[1]", "{\"vast\": \"long\"}", "{\"vast\": 1e99}", "\xff"}) {
    std::ofstream(path) << wrong;
    EXPECT_EQ(AnswerTimes(path).Usual("vast"), std::nullopt) << wrong;
  }
  std::ofstream(path) << "{\"vast\": -5, \"lambda\": 9000000000}";
  EXPECT_EQ(AnswerTimes(path).Usual("vast"), absl::ZeroDuration());
  EXPECT_EQ(AnswerTimes(path).Usual("lambda"), absl::Minutes(1));
}

}  // namespace
}  // namespace gpuctl
