#include "client/runs/output_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

LifecycleEvent Dropped(int64_t offset, int64_t bytes, int64_t lines) {
  LifecycleEvent event;
  event.type = LifecycleEvent::Type::kDropped;
  event.output_size = offset;
  event.dropped_bytes = bytes;
  event.dropped_metric_lines = lines;
  return event;
}

TEST(OutputLossTest, AJobThatLostNothingHasNothingToSay) {
  EXPECT_FALSE(LossOf({{LifecycleEvent()}, 0}).any());
  EXPECT_EQ(DescribeLoss(OutputLoss()), "");
}

TEST(OutputLossTest, SaysHowMuchIsMissingAndWhere) {
  const OutputLoss loss =
      LossOf({{Dropped(300, 2048, 0), LifecycleEvent(), Dropped(900, 1024, 2)}, 0});
  EXPECT_EQ(loss.bytes, 3072);
  EXPECT_EQ(loss.metric_lines, 2);
  const std::string text = DescribeLoss(loss);
  EXPECT_THAT(text, HasSubstr("at byte 300, "));
  EXPECT_THAT(text, HasSubstr("at byte 900)"));
  EXPECT_THAT(text, HasSubstr("; 2 lines of metrics"));
}

TEST(OutputLossTest, ManyPlacesAreCounted) {
  Lifecycle lifecycle;
  for (int i = 0; i < 10; ++i) lifecycle.events.push_back(Dropped(i, 1, 0));
  EXPECT_THAT(DescribeLoss(LossOf(lifecycle)), HasSubstr("and 7 more places"));
}

TEST(OutputLossTest, MetricLinesAloneAreTold) {
  const std::string text = DescribeLoss(LossOf({{Dropped(0, 0, 1)}, 0}));
  EXPECT_EQ(text, "1 line of metrics were not stored: too long, or no room on the node");
}

}  // namespace
}  // namespace gpuctl
