#include "agent/limits/self_release.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "agent/base/platform.h"
#include "agent/limits/node_limits_store.h"
#include "common/base/clock.h"
#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

gpuctl::v1::NodeLimits Limits(const std::string& provider, const std::string& id) {
  gpuctl::v1::NodeLimits limits;
  limits.set_provider(provider);
  limits.set_instance_id(id);
  limits.set_release_base_url("https://api.test/");
  limits.set_self_release(true);
  return limits;
}

TEST(SelfReleaseTest, RunpodsPodAsksForItsOwnEnd) {
  const auto request = ReleaseRequest(Limits("runpod", "pod1"),
                                      {{{"RUNPOD_API_KEY", "k-1_x"}, {"RUNPOD_POD_ID", "pod1"}}});
  ASSERT_OK(request);
  EXPECT_EQ(request->method, "POST");
  EXPECT_EQ(request->url, "https://api.test/v2/pods/pod1/action");
  EXPECT_EQ(request->body, "{\"action\":\"terminate\"}");
  EXPECT_THAT(request->headers, UnorderedElementsAre(Pair("Content-Type", "application/json"),
                                                     Pair("Authorization", "Bearer k-1_x")));
}

TEST(SelfReleaseTest, VastsInstanceIsDeleted) {
  const auto request = ReleaseRequest(Limits("vast", "12345"),
                                      {{{"CONTAINER_API_KEY", "k"}, {"CONTAINER_ID", "12345"}}});
  ASSERT_OK(request);
  EXPECT_EQ(request->method, "DELETE");
  EXPECT_EQ(request->url, "https://api.test/api/v0/instances/12345/");
  EXPECT_EQ(request->body, "");
}

TEST(SelfReleaseTest, TheKeyBesideOurIdIsTaken) {
  const Environment other = {{"RUNPOD_API_KEY", "other"}, {"RUNPOD_POD_ID", "pod2"}};
  const Environment nameless = {{"RUNPOD_API_KEY", "nameless"}};
  const Environment ours = {{"RUNPOD_API_KEY", "ours"}, {"RUNPOD_POD_ID", "pod1"}};
  const auto key = [](const absl::StatusOr<HttpsRequest>& request) {
    return request.ok() ? request->headers.back().second : "";
  };
  const auto limits = Limits("runpod", "pod1");
  EXPECT_EQ(key(ReleaseRequest(limits, {other, nameless, ours})), "Bearer ours");
  EXPECT_EQ(key(ReleaseRequest(limits, {{}, nameless})), "Bearer nameless");
  EXPECT_THAT(ReleaseRequest(limits, {other, nameless}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("that of pod2")));
  EXPECT_THAT(ReleaseRequest(limits, {{}}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no RUNPOD_API_KEY")));
}

TEST(SelfReleaseTest, WhatCannotOrMayNotBeReleasedSaysWhy) {
  const std::vector<Environment> sources = {{{"RUNPOD_API_KEY", "k"}, {"CONTAINER_API_KEY", "k"}}};
  EXPECT_THAT(ReleaseRequest(Limits("lambda", "i1"), sources),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("lambda gives")));
  auto left = Limits("runpod", "pod1");
  left.set_self_release(false);
  EXPECT_THAT(ReleaseRequest(left, sources), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(ReleaseRequest(Limits("runpod", "../x"), sources),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(ReleaseRequest(Limits("runpod", "p"), {{{"RUNPOD_API_KEY", "a\r\nb"}}}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  auto plain = Limits("runpod", "pod1");
  plain.set_release_base_url("http://api.test");
  EXPECT_THAT(ReleaseRequest(plain, sources), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(SelfReleaseTest, AStartCommandEndsAndASystemShutsDown) {
  const auto by_exit = ReleaseOf(Limits("test-exit", "x"), {}, /*root=*/false);
  ASSERT_OK(by_exit);
  EXPECT_EQ(by_exit->way, EndsItself::kByExit);
  EXPECT_EQ(by_exit->InWords(), "end the start command");
  const auto shutdown = ReleaseOf(Limits("test-shutdown", "x"), {}, /*root=*/true);
  ASSERT_OK(shutdown);
  EXPECT_EQ(shutdown->InWords(), "run gpuctl-test-shutdown");
  EXPECT_EQ(ReleaseOf(Limits("test-shutdown", "x"), {}, /*root=*/false)->InWords(),
            "run sudo -n sh -c 'gpuctl-test-shutdown'");
  for (const char* market : {"test-exit", "test-shutdown"}) {
    auto left = Limits(market, "x");
    left.set_self_release(false);
    EXPECT_THAT(ReleaseOf(left, {}, true), StatusIs(absl::StatusCode::kFailedPrecondition));
  }
}

// A start command that waits in another directory would end the machine as one that nobody claims.
TEST(SelfReleaseTest, AStartCommandMustLookIntoTheAgentsRoot) {
  TempDir dir;
  const RootPaths paths(dir.path());
  EXPECT_THAT(CanRelease(Limits("huggingface", "x"), paths),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("does not look into")));
  ASSERT_OK(WriteFileAtomic(paths.boot, "{}"));
  EXPECT_OK(CanRelease(Limits("huggingface", "x"), paths));
}

class OwnEndTest : public ::testing::Test {
 protected:
  void Store(const std::string& market) {
    auto limits = Limits(market, "i1");
    limits.set_revision(1);
    limits.set_rate_usd_per_hour(2);
    limits.set_cost_usd(20);
    limits.set_idle_s(600);
    limits.set_salvage_s(3600);
    limits.set_lease_s(72 * 3600);
    ASSERT_OK(StoreNodeLimits(paths_, limits, StampNow(BootId(), Clock::Real())));
  }
  std::string Outcome() { return ReadReleaseNote(paths_).outcome; }
  TempDir dir_;
  const RootPaths paths_{dir_.Sub("node")};
};

TEST_F(OwnEndTest, TheFileThatTheStartCommandWaitsFor) {
  ASSERT_OK(MakeDirectories(paths_.root));
  Store("test-exit");
  EXPECT_EQ(RunRelease(paths_.root, "", /*dry_run=*/true), 0);
  EXPECT_FALSE(PathExists(JoinPath(paths_.root, kReleasedFile)));
  EXPECT_EQ(RunRelease(paths_.root, "", /*dry_run=*/false), 0);
  EXPECT_TRUE(PathExists(JoinPath(paths_.root, kReleasedFile)));
  EXPECT_EQ(Outcome(), "the start command may end");
  alarm(0);
}

TEST_F(OwnEndTest, TheCommandOfAShutdownRuns) {
  ASSERT_OK(MakeDirectories(paths_.root));
  Store("test-shutdown");
  const std::string path = getenv("PATH") == nullptr ? "" : getenv("PATH");
  // Where the user is not root, sudo stands before it.
  dir_.Write("bin/sudo", "#!/bin/sh\nshift\nexec \"$@\"\n", 0755);
  setenv("PATH", absl::StrCat(dir_.Sub("bin"), ":", path).c_str(), 1);
  EXPECT_EQ(RunRelease(paths_.root, "", /*dry_run=*/false), 1);
  EXPECT_EQ(Outcome(), "exit 127");
  dir_.Write("bin/gpuctl-test-shutdown", "#!/bin/sh\n: >" + dir_.Sub("down") + "\n", 0755);
  EXPECT_EQ(RunRelease(paths_.root, "", /*dry_run=*/false), 0);
  EXPECT_EQ(Outcome(), "exit 0");
  EXPECT_TRUE(PathExists(dir_.Sub("down")));
  EXPECT_EQ(ReadReleaseNote(paths_).requests, 2);
  setenv("PATH", path.c_str(), 1);
  alarm(0);
}

TEST(SelfReleaseTest, ReadsTheFileThatShellsRead) {
  EXPECT_THAT(ParseShellEnvironment("# x\nexport A=\"1 2\"\nB='3'\n  C=4\nnothing\n=5\n"),
              UnorderedElementsAre(Pair("A", "1 2"), Pair("B", "3"), Pair("C", "4")));
}

}  // namespace
}  // namespace gpuctl
