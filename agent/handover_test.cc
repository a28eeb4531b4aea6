#include "agent/handover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <string>

#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::IsEmpty;

TEST(HandoverTest, PassesSecretsThroughAPipeWithoutAName) {
  TempDir dir;
  const absl::StatusOr<UniqueFd> handover = MakeHandover(RootPaths(dir.path()));
  ASSERT_OK(handover);
  EXPECT_THAT(*ListDirectory(dir.path()), IsEmpty());
  const std::map<std::string, Secrets> secrets = {
      {"j-1", {{"TOKEN", std::string("a\0b", 3)}, {"EMPTY", ""}}}, {"j-2", {{"TOKEN", "c"}}}};
  EXPECT_THAT(ReceiveHandover(*handover), IsEmpty());
  ASSERT_OK(HandOver(*handover, secrets));
  EXPECT_EQ(ReceiveHandover(*handover), secrets);
  EXPECT_THAT(ReceiveHandover(*handover), IsEmpty());
}

TEST(HandoverTest, WhatIsTornIsLeftOut) {
  TempDir dir;
  const absl::StatusOr<UniqueFd> handover = MakeHandover(RootPaths(dir.path()));
  ASSERT_OK(handover);
  const std::map<std::string, Secrets> first = {{"j-1", {{"TOKEN", "a"}}}};
  ASSERT_OK(HandOver(*handover, first));
  EXPECT_FALSE(HandOver(*handover, {{"j-2", {{"TOKEN", std::string(2 << 20, 'x')}}}}).ok());
  EXPECT_EQ(ReceiveHandover(*handover), first);
  ASSERT_EQ(write(handover->get(), "\xff\xff\xff\xff junk", 9), 9);
  EXPECT_THAT(ReceiveHandover(*handover), IsEmpty());
  EXPECT_THAT(ReceiveHandover(UniqueFd()), IsEmpty());
}

}  // namespace
}  // namespace gpuctl
