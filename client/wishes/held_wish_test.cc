// What was asked for a run outlives its holder, and one process at a time does it.
#include "client/wishes/held_wish.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "client/wishes/wish_text.h"
#include "common/base/clock.h"
#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class HeldWishTest : public ::testing::Test {
 protected:
  HeldWishTest() : context_(Clock::Real()) { setenv("GPUCTL_STATE_DIR", dir_.path().c_str(), 1); }
  ~HeldWishTest() override { unsetenv("GPUCTL_STATE_DIR"); }

  static Wish WishFor(const std::string& run_id) {
    Wish wish;
    wish.run_id = run_id;
    wish.dir = "/w";
    wish.pull = true;
    wish.keep = 3;
    wish.down = true;
    return wish;
  }
  std::vector<std::string> Locks() {
    return ListDirectory(JoinPath(dir_.path(), "locks")).value_or(std::vector<std::string>());
  }

  TempDir dir_;
  CommandContext context_;
};

TEST_F(HeldWishTest, AWishOutlivesItsHolder) {
  std::string id;
  {
    const absl::StatusOr<HeldWish> held = HeldWish::Make(context_, WishFor("r-1"));
    ASSERT_OK(held);
    id = held->wish().wish_id;
    EXPECT_TRUE(IsHeld(context_, held->wish()).value());
    EXPECT_TRUE(absl::IsUnavailable(HeldWish::Take(context_, id).status()));
    EXPECT_THAT(TakeWishesOf(context_, "r-1").value(), IsEmpty());
  }
  absl::StatusOr<HeldWish> taken = HeldWish::Take(context_, id);
  ASSERT_OK(taken);
  EXPECT_EQ(taken->wish().dir, "/w");
  EXPECT_TRUE(taken->wish().pull && taken->wish().down);
  EXPECT_EQ(taken->wish().keep, 3);
  EXPECT_OK(taken->Done());
  EXPECT_TRUE(absl::IsNotFound(HeldWish::Take(context_, id).status()));
  EXPECT_THAT(WishesOf(context_, "").value(), IsEmpty());
  EXPECT_THAT(Locks(), IsEmpty());
}

TEST_F(HeldWishTest, ADroppedWishIsNobodysAndLeavesNoFile) {
  std::optional<HeldWish> held(HeldWish::Make(context_, WishFor("r-1")).value());
  { const HeldWish other = HeldWish::Make(context_, WishFor("r-2")).value(); }
  EXPECT_OK(DropWishesOf(context_, "r-1"));
  EXPECT_THAT(WishesOf(context_, "r-1").value(), IsEmpty());
  EXPECT_THAT(WishesOf(context_, "r-2").value(), SizeIs(1));
  held.reset();
  EXPECT_THAT(Locks(), SizeIs(1)) << "that of the other one";
}

TEST_F(HeldWishTest, AWishIsGivenUpForAnother) {
  HeldWish first = HeldWish::Make(context_, WishFor("r-1")).value();
  const Wish former = first.wish();
  first = HeldWish::Make(context_, WishFor("r-1")).value();
  EXPECT_FALSE(IsHeld(context_, former).value());
  EXPECT_TRUE(IsHeld(context_, first.wish()).value());
}

TEST_F(HeldWishTest, TheWordOfAListIsForWhatNoGpuctlDoes) {
  Wish pulls = WishFor("r-1");
  pulls.down = false;
  const std::vector<KnownWish> held = {{WishFor("r-1"), WishDoer::kGpuctl}};
  EXPECT_EQ(WishWord(held), "");
  EXPECT_EQ(WishWord({{pulls, WishDoer::kNobody}}), "");
  EXPECT_EQ(WishWord({{pulls, WishDoer::kKeep}}), "pull by keep");
  EXPECT_EQ(WishWord({{WishFor("r-1"), WishDoer::kNobody}, {pulls, WishDoer::kNobody}}),
            "down by nobody");
  EXPECT_EQ(WishWord({{pulls, WishDoer::kKeep}, {WishFor("r-1"), WishDoer::kKeep}}),
            "down by keep");
}

}  // namespace
}  // namespace gpuctl
