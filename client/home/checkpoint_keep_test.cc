#include "client/home/checkpoint_keep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "common/tree/tree.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using gpuctl::v1::CheckpointInfo;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

CheckpointInfo Listed(int step) {
  CheckpointInfo checkpoint;
  checkpoint.set_path(absl::StrCat("work/c-", step));
  checkpoint.set_step(step);
  checkpoint.set_modified_ms(1000 + step);
  return checkpoint;
}

TEST(NextToBringTest, TheNewestThatIsWantedAmongThoseKept) {
  const std::vector<CheckpointInfo> listed = {Listed(1), Listed(2), Listed(3), Listed(4)};
  std::set<int64_t> home;
  const auto next = [&](int keep) {
    const CheckpointInfo* found = NextToBring(
        listed, keep, [&](const CheckpointInfo& each) { return home.count(each.step()) == 0; });
    return found == nullptr ? -1 : found->step();
  };
  EXPECT_EQ(next(2), 4);
  home.insert(4);
  EXPECT_EQ(next(2), 3);
  EXPECT_EQ(next(1), -1);
  home.insert(3);
  EXPECT_EQ(next(2), -1);
  EXPECT_EQ(next(0), 2);
  EXPECT_EQ(NextToBring({}, 0, [](const CheckpointInfo&) { return true; }), nullptr);
}

PulledItem Home(PulledItem::Kind kind, int step, int64_t node_ms, int64_t home_ms) {
  PulledItem item;
  item.kind = kind;
  item.step = step;
  item.node_modified_ms = node_ms;
  item.time_ms = home_ms;
  return item;
}

std::vector<int64_t> StepsOf(const std::vector<PulledItem>& items) {
  std::vector<int64_t> steps;
  for (const PulledItem& item : items) steps.push_back(item.step);
  return steps;
}

TEST(NewestFirstTest, TheNodesOrderAndNotThatOfTheDownloads) {
  constexpr auto kForeign = PulledItem::Kind::kForeign;
  constexpr auto kTrainer = PulledItem::Kind::kTrainer;
  // A watching pull brought the newest first, so the oldest came home last.
  EXPECT_THAT(
      StepsOf(NewestFirst({Home(kForeign, 30, 1'003, 5'001), Home(kForeign, 20, 1'002, 5'002),
                           Home(kForeign, 10, 1'001, 5'003)})),
      ElementsAre(30, 20, 10));
  // Written within one millisecond.
  EXPECT_THAT(
      StepsOf(NewestFirst({Home(kForeign, 20, 1'001, 5'002), Home(kForeign, 10, 1'001, 5'003)})),
      ElementsAre(20, 10));
  // The node's clock was set back between two checkpoints of the trainer.
  EXPECT_THAT(
      StepsOf(NewestFirst({Home(kTrainer, 10, 9'000, 5'002), Home(kTrainer, 20, 1'001, 5'003)})),
      ElementsAre(20, 10));
  EXPECT_THAT(StepsOf(NewestFirst({Home(kTrainer, 1, 1'001, 0), Home(kForeign, 2, 1'002, 0),
                                   Home(PulledItem::Kind::kFiles, -1, 2'000, 0),
                                   Home(kTrainer, 3, 1'003, 0)})),
              ElementsAre(3, 2, 1));
}

class ToRemoveTest : public ::testing::Test {
 protected:
  void Brought(int step, bool ours = true) {
    const std::string name = absl::StrCat("home/c-", step);
    dir_.Write(name + "/weights", "abc");
    PulledItem item = DescribePulled(dir_.Sub(name), ScanTree(dir_.Sub(name)).value(), false);
    item.kind = PulledItem::Kind::kForeign;
    item.from = absl::StrCat("work/c-", step);
    item.step = step;
    item.node_modified_ms = 1000 + step;
    item.ours = ours;
    items_.push_back(item);
  }
  std::vector<int64_t> Steps(int keep) {
    std::vector<int64_t> steps;
    for (const PulledItem& item : ToRemove(items_, dir_.Sub("home"), keep)) {
      steps.push_back(item.step);
    }
    return steps;
  }
  TempDir dir_;
  std::vector<PulledItem> items_;
};

TEST_F(ToRemoveTest, OlderOnesBeyondThoseKept) {
  // Downloaded newest first.
  for (const int step : {5, 4, 3, 7}) Brought(step);
  EXPECT_THAT(Steps(0), IsEmpty());
  EXPECT_THAT(Steps(1), ElementsAre(5, 4, 3));
  EXPECT_THAT(Steps(2), ElementsAre(4, 3));
  EXPECT_THAT(Steps(4), IsEmpty());
}

TEST_F(ToRemoveTest, OnlyOursAndUntouchedOnesInThisPlace) {
  for (const int step : {1, 2, 3, 4, 5}) Brought(step, step != 1);
  dir_.Write("home/c-2/weights", "abd");
  dir_.Write("home/c-3/notes", "mine");
  EXPECT_THAT(Steps(1), ElementsAre(4));
  EXPECT_THAT(ToRemove(items_, dir_.Sub("hom"), 1), IsEmpty());
  // A missing checkpoint does not count.
  ASSERT_OK(RemoveTree(dir_.Sub("home/c-5")));
  EXPECT_THAT(Steps(1), IsEmpty());
}

TEST_F(ToRemoveTest, WhatIsHomeIsTheContentTheNodeHasNow) {
  Brought(5);
  CheckpointInfo checkpoint = Listed(5);
  EXPECT_TRUE(IsHome(items_, checkpoint, dir_.Sub("home/c-5")));
  EXPECT_FALSE(IsHome(items_, checkpoint, dir_.Sub("elsewhere/c-5")));
  checkpoint.set_modified_ms(2000);
  EXPECT_FALSE(IsHome(items_, checkpoint, dir_.Sub("home/c-5")));
}

}  // namespace
}  // namespace gpuctl
