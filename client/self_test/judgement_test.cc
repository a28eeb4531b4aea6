#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <nlohmann/json.hpp>

#include "client/self_test/part_process.h"
#include "client/self_test/parts.h"
#include "common/base/fake_clock.h"
#include "common/process/process.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

KeyStoreFindings GoodStore() {
  KeyStoreFindings found;
  found.system_store = "the ring";
  found.same = found.gone = true;
  found.secret = "GPUCTL_SELF_TEST_x";
  return found;
}

TEST(JudgeKeyStore, ASecretThatComesAndGoesIsGood) {
  const Judgement judged = JudgeKeyStore(GoodStore());
  EXPECT_TRUE(judged.ok);
  EXPECT_THAT(judged.found, HasSubstr("stored in the ring, read back and removed"));
}

TEST(JudgeKeyStore, WithoutASystemsStoreFilesAreNormal) {
  KeyStoreFindings found = GoodStore();
  found.system_store = "";
  EXPECT_TRUE(JudgeKeyStore(found).ok);
  EXPECT_THAT(JudgeKeyStore(found).found, HasSubstr("files of mode 0600"));
}

TEST(JudgeKeyStore, ARefusalCountsOnlyWhereThereIsAlwaysAStore) {
  KeyStoreFindings found = GoodStore();
  found.system = absl::FailedPreconditionError("run it: it failed");
  EXPECT_TRUE(JudgeKeyStore(found).ok);
  EXPECT_THAT(JudgeKeyStore(found).found, HasSubstr("does not answer"));
  found.always_there = true;
  const Judgement judged = JudgeKeyStore(found);
  EXPECT_FALSE(judged.ok);
  EXPECT_THAT(judged.fix, HasSubstr("security unlock-keychain"));
}

TEST(JudgeKeyStore, EachLieIsAFailure) {
  KeyStoreFindings found = GoodStore();
  found.system = absl::DataLossError("the ring took a secret and gives another back");
  EXPECT_THAT(JudgeKeyStore(found).found, HasSubstr("gives another back"));
  for (const auto& spoil : std::vector<std::function<void(KeyStoreFindings&)>>{
           [](KeyStoreFindings& f) { f.system = absl::DataLossError("x"); },
           [](KeyStoreFindings& f) { f.stored = absl::PermissionDeniedError("x"); },
           [](KeyStoreFindings& f) { f.same = false; },
           [](KeyStoreFindings& f) { f.removed = absl::InternalError("x"); },
           [](KeyStoreFindings& f) { f.gone = false; }}) {
    found = GoodStore();
    spoil(found);
    EXPECT_FALSE(JudgeKeyStore(found).ok);
    EXPECT_THAT(JudgeKeyStore(found).fix, HasSubstr("GPUCTL_KEY_STORE=file"));
  }
}

ClockFindings GoodClocks() {
  ClockFindings found;
  found.wall = absl::FromUnixSeconds(1'800'000'000);
  found.slept = absl::Milliseconds(200);
  found.wall_passed = found.boot_passed = absl::Milliseconds(210);
  found.since_boot = absl::Hours(20);
  found.awake = absl::Hours(5);
  return found;
}

TEST(JudgeClocks, TellsTheTimeThatTheComputerSlept) {
  EXPECT_TRUE(JudgeClocks(GoodClocks()).ok);
  EXPECT_THAT(JudgeClocks(GoodClocks()).found, HasSubstr("suspended: 15h"));
  ClockFindings found = GoodClocks();
  found.awake = found.since_boot;
  EXPECT_THAT(JudgeClocks(found).found, HasSubstr("suspended: nothing"));
  found.awake = absl::Seconds(-1);
  EXPECT_THAT(JudgeClocks(found).found, HasSubstr("is not known"));
}

TEST(JudgeClocks, EachWrongClockIsAFailure) {
  for (const auto& spoil : std::vector<std::function<void(ClockFindings&)>>{
           [](ClockFindings& f) { f.wall = absl::UnixEpoch(); },
           [](ClockFindings& f) { f.wall = absl::FromUnixSeconds(5'000'000'000); },
           [](ClockFindings& f) { f.boot_passed = absl::ZeroDuration(); },
           [](ClockFindings& f) { f.boot_passed = absl::Seconds(20); },
           [](ClockFindings& f) { f.wall_passed = absl::Hours(1); },
           [](ClockFindings& f) { f.wall_passed = -absl::Hours(1); }}) {
    ClockFindings found = GoodClocks();
    spoil(found);
    EXPECT_FALSE(JudgeClocks(found).ok);
    EXPECT_NE(JudgeClocks(found).fix, "");
  }
}

TEST(JudgeDrawing, TheCursorTellsHowWideALineIs) {
  const std::vector<DrawnLine> right = {{"abc", 3, 4}, {"", 0, 1}};
  EXPECT_TRUE(JudgeDrawing(right, 80, 24, true, true).ok);
  const Judgement wider = JudgeDrawing({{"abc", 3, 4}, {"━━", 2, 5}}, 80, 24, true, true);
  EXPECT_FALSE(wider.ok);
  EXPECT_THAT(wider.found, HasSubstr("should be 2 columns wide takes 4"));
  EXPECT_THAT(wider.fix, HasSubstr("ambiguous width"));
  const Judgement silent = JudgeDrawing({{"abc", 3, std::nullopt}}, 80, 24, false, false);
  EXPECT_TRUE(silent.ok);
  EXPECT_THAT(silent.found, HasSubstr("not UTF-8"));
  EXPECT_THAT(silent.found, HasSubstr("does not tell"));
  EXPECT_THAT(JudgeDrawing({}, 10, 3, true, true).found, HasSubstr("too small"));
}

TEST(TestCheck, IsTheSameBehindItsJson) {
  const TestCheck bad{"a \"name\"", false, "found\nit", "fix it", absl::Milliseconds(12)};
  const std::optional<TestCheck> back = CheckFromJson(CheckToJson(bad).dump());
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->name, bad.name);
  EXPECT_FALSE(back->ok);
  EXPECT_EQ(back->found, bad.found);
  EXPECT_EQ(back->fix, bad.fix);
  EXPECT_EQ(back->took, bad.took);
  for (const char* other : {"", "[]", "{}", "7", "{\"name\":1,\"ok\":true}", "sshd: words"}) {
    EXPECT_FALSE(CheckFromJson(other).has_value()) << other;
  }
}

TEST(Reporter, ACheckTakesTheTimeSinceTheOneBefore) {
  FakeClock clock;
  std::vector<TestCheck> checks;
  Reporter report(clock, [&](const TestCheck& check) { checks.push_back(check); });
  clock.Advance(absl::Seconds(2));
  report.Ok("a", "x");
  clock.Advance(absl::Seconds(3));
  report.Fail("b", "y", "z");
  ASSERT_EQ(checks.size(), 2u);
  EXPECT_EQ(checks[0].took, absl::Seconds(2));
  EXPECT_EQ(checks[1].took, absl::Seconds(3));
  EXPECT_EQ(checks[1].fix, "z");
}

TEST(TestPlace, WhatLiesElsewhereHasItsRandomPart) {
  const TestPlace place{"/tmp/gpuctl-self-test-aB3xYz"};
  EXPECT_EQ(place.token(), "aB3xYz");
  EXPECT_EQ(place.InStateDir("/s"), "/s/.self-test-aB3xYz");
}

TEST(KillProcesses, EndsThoseWithTheMarkAlone) {
  const std::string mark = "self-test-of-the-unit-test";
  std::vector<pid_t> pids;
  for (const char* name : {mark.c_str(), "another"}) {
    SpawnOptions options;
    options.argv = {"/bin/sh", "-c", "sleep 60; :", name};
    options.new_session = true;
    pids.push_back(Spawn(options).value());
  }
  // It is not there before exec. Its child has its command until that has called exec, too.
  std::vector<pid_t> found;
  for (int tries = 0; found.empty() && tries < 1000; ++tries) {
    Clock::Real().SleepFor(absl::Milliseconds(5));
    for (const FoundProcess& process : FindProcesses(mark)) found.push_back(process.pid);
  }
  EXPECT_THAT(found, ::testing::Contains(pids[0]));
  EXPECT_THAT(found, ::testing::Not(::testing::Contains(pids[1])));
  int status = 0;
  std::thread reaper([&] { waitpid(pids[0], &status, 0); });
  EXPECT_OK(KillProcesses(mark, absl::Seconds(10), Clock::Real()));
  reaper.join();
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(waitpid(pids[1], &status, WNOHANG), 0) << "the other was killed, too";
  kill(-pids[1], SIGKILL);
  waitpid(pids[1], &status, 0);
}

}  // namespace
}  // namespace gpuctl
