#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/base/exit_codes.h"
#include "client/streams/mirror.h"
#include "client/verbs/verbs.h"
#include "common/base/clock.h"
#include "common/files/files.h"
#include "tests/support/client_world.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

TEST(RmTest, ForgetTakesARunThatHasEndedOutOfTheList) {
  ClientWorld world(Clock::Real());
  RunStore& store = *world.context.Store().value();
  RunRow row;
  row.run_id = "r-1";
  row.name = "amber-fox-1";
  row.job_id = "j-1";
  row.target.provider = "ssh";
  row.target.name = "me@bxo:22";  // no node ever had it
  row.created_ms = 1;
  ASSERT_OK(store.Insert(row));
  RunEnd end;
  end.exit_code = kExitFailed;
  ASSERT_OK(store.SetEnd("r-1", end));
  const std::string mirror = world.context.Paths().value().MirrorDir("r-1");
  ASSERT_OK(MakeDirectories(mirror));
  const auto rm = [&world](std::vector<std::string> args) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const auto code = CmdRm(world.context, std::move(args));
    (void)::testing::internal::GetCapturedStdout();
    (void)::testing::internal::GetCapturedStderr();
    return code;
  };
  ASSERT_OK(rm({"amber-fox-1"}));
  EXPECT_EQ(store.List().value().size(), 1u);
  ASSERT_OK(rm({"--forget", "--dry-run", "amber-fox-1"}));
  EXPECT_EQ(store.List().value().size(), 1u);
  ASSERT_OK(rm({"--forget", "amber-fox-1"}));
  EXPECT_TRUE(store.List().value().empty());
  EXPECT_FALSE(PathExists(mirror));
  EXPECT_FALSE(world.known("me@bxo:22"));
}

TEST(RmTest, ForgetRefusesARunWhoseLaunchIsAtWork) {
  ClientWorld world(Clock::Real());
  RunStore& store = *world.context.Store().value();
  RunRow row;
  row.run_id = "r-1";
  row.name = "amber-fox-1";
  row.job_id = "j-1";
  row.target.provider = "ssh";
  row.target.name = "me@box:22";
  row.created_ms = 1;
  ASSERT_OK(store.Insert(row));
  const std::string dir = world.context.Paths().value().MirrorDir("r-1");
  auto launching = Mirror::Open(dir, 0);
  ASSERT_OK(launching);
  const auto refused = CmdRm(world.context, {"--forget", "amber-fox-1"});
  ASSERT_OK(refused);
  EXPECT_NE(*refused, kExitOk);
  EXPECT_EQ(store.List().value().size(), 1u);
  EXPECT_TRUE(PathExists(dir));
  // Nothing of it is on a node yet, but it will be.
  ::testing::internal::CaptureStderr();
  const auto not_gone = CmdRm(world.context, {"amber-fox-1"});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("it is being launched"));
  ASSERT_OK(not_gone);
  EXPECT_NE(*not_gone, kExitOk);
  launching->reset();
  const auto forgotten = CmdRm(world.context, {"--forget", "amber-fox-1"});
  ASSERT_OK(forgotten);
  EXPECT_EQ(*forgotten, kExitOk);
  EXPECT_TRUE(store.List().value().empty());
}

}  // namespace
}  // namespace gpuctl
