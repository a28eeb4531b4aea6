#include <time.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/base/quantity.h"
#include "client/self_test/parts.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kSleep = absl::Milliseconds(200);
// A loaded machine may sleep longer, and a wall clock is adjusted a little all the time.
constexpr absl::Duration kSlack = absl::Seconds(3);

// Returns the time that this computer has been awake since it started; negative: not known.
absl::Duration AwakeSinceBoot() {
#if defined(__APPLE__)
  constexpr clockid_t kAwake = CLOCK_UPTIME_RAW;
#else
  constexpr clockid_t kAwake = CLOCK_MONOTONIC;
#endif
  timespec now = {};
  if (clock_gettime(kAwake, &now) != 0) return absl::Seconds(-1);
  return absl::DurationFromTimespec(now);
}

}  // namespace

Judgement JudgeClocks(const ClockFindings& found) {
  const std::string wall =
      absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", found.wall, absl::UTCTimeZone());
  constexpr char kSetIt[] =
      "set the clock: macOS: sudo sntp -sS time.apple.com; Linux: timedatectl set-ntp true";
  if (found.wall < absl::FromCivil(absl::CivilYear(2025), absl::UTCTimeZone()) ||
      found.wall > absl::FromCivil(absl::CivilYear(2100), absl::UTCTimeZone())) {
    return {false, absl::StrCat("the wall clock says ", wall), kSetIt};
  }
  // A clock that is being adjusted may pass a little less than the sleep.
  if (found.boot_passed < found.slept / 2 || found.boot_passed > found.slept + kSlack) {
    return {false,
            absl::StrCat("the clock that counts since boot passed ",
                         absl::ToInt64Milliseconds(found.boot_passed), " ms in a sleep of ",
                         absl::ToInt64Milliseconds(found.slept), " ms"),
            "look at the load of this computer, and try again; in a virtual machine, at its clock "
            "source"};
  }
  const absl::Duration apart = found.wall_passed - found.boot_passed;
  if (apart > kSlack || apart < -kSlack) {
    return {false,
            absl::StrCat("the wall clock moved by ", absl::ToInt64Milliseconds(found.wall_passed),
                         " ms while ", absl::ToInt64Milliseconds(found.boot_passed),
                         " ms passed: it is being set"),
            absl::StrCat("wait until it is right, and try again; else ", kSetIt)};
  }
  const absl::Duration suspended = found.since_boot - found.awake;
  const std::string since = HumanDuration(found.since_boot);
  if (found.awake < absl::ZeroDuration() || suspended < -kSlack) {
    return {true, absl::StrCat(wall, ", up for ", since, "; its suspended time is not known"), ""};
  }
  return {true,
          absl::StrCat(wall, ", up for ", since, ", of it suspended: ",
                       suspended < absl::Seconds(1) ? "nothing" : HumanDuration(suspended),
                       "; durations count that"),
          ""};
}

void TestClocks(Reporter& report) {
  Clock& clock = report.clock();
  ClockFindings found;
  const absl::Time wall = clock.Now();
  const absl::Duration boot = clock.SinceBoot();
  found.slept = kSleep;
  clock.SleepFor(kSleep);
  found.boot_passed = clock.SinceBoot() - boot;
  found.wall = clock.Now();
  found.wall_passed = found.wall - wall;
  found.since_boot = clock.SinceBoot();
  found.awake = AwakeSinceBoot();
  report.Add("clocks", JudgeClocks(found));
}

}  // namespace gpuctl
