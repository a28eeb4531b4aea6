#include "agent/limits/self_release.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/support/matchers.h"

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

TEST(SelfReleaseTest, ReadsTheFileThatShellsRead) {
  EXPECT_THAT(ParseShellEnvironment("# x\nexport A=\"1 2\"\nB='3'\n  C=4\nnothing\n=5\n"),
              UnorderedElementsAre(Pair("A", "1 2"), Pair("B", "3"), Pair("C", "4")));
}

}  // namespace
}  // namespace gpuctl
