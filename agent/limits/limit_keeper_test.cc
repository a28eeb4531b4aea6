#include "agent/limits/limit_keeper.h"

#include <gtest/gtest.h>

namespace gpuctl {
namespace {

using Type = LifecycleEvent::Type;

LifecycleEvent Event(Type type, int64_t time_ms, const std::string& boot, int64_t ticks = 0) {
  LifecycleEvent event;
  event.type = type;
  event.time_ms = time_ms;
  event.boot_id = boot;
  event.start_time_ticks = ticks;
  return event;
}

TEST(RunningTimeTest, ARunningAttemptCountsByTheBootClock) {
  Lifecycle lifecycle;
  lifecycle.events = {Event(Type::kStarted, 0, "boot", 5000)};
  // It started 50 s after boot, at 100 ticks a second. Wall time does not matter.
  EXPECT_EQ(RunningTime(lifecycle, "boot", absl::Seconds(80), 100), absl::Seconds(30));
}

TEST(RunningTimeTest, EndedAttemptsAddUp) {
  Lifecycle lifecycle;
  lifecycle.events = {
      Event(Type::kStarted, 1000, "old", 1), Event(Type::kLost, 11'000, "boot"),
      Event(Type::kRetry, 11'000, ""),       Event(Type::kStarted, 20'000, "boot", 1000),
      Event(Type::kExited, 25'000, ""),      Event(Type::kStarted, 30'000, "boot", 2000)};
  EXPECT_EQ(RunningTime(lifecycle, "boot", absl::Seconds(27), 100),
            absl::Seconds(10) + absl::Seconds(5) + absl::Seconds(7));
}

TEST(RunningTimeTest, ClocksThatWentBackCountAsNothing) {
  Lifecycle lifecycle;
  lifecycle.events = {Event(Type::kStarted, 10'000, "boot", 1), Event(Type::kExited, 4000, "")};
  EXPECT_EQ(RunningTime(lifecycle, "boot", absl::Seconds(100), 100), absl::ZeroDuration());
}

TEST(RunningTimeTest, AnAttemptOfAnotherBootThatNobodySawEndCountsAsNothing) {
  Lifecycle lifecycle;
  lifecycle.events = {Event(Type::kStarted, 10'000, "old", 1)};
  EXPECT_EQ(RunningTime(lifecycle, "boot", absl::Seconds(100), 100), absl::ZeroDuration());
}

}  // namespace
}  // namespace gpuctl
