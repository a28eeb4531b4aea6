#include "agent/restart/staged.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "agent/base/held_root.h"
#include "agent/hold/kept_layout.h"
#include "agent/limits/node_limits_store.h"
#include "agent/restart/start_again.h"
#include "common/base/fake_clock.h"
#include "common/files/files.h"
#include "common/job/lifecycle.h"
#include "common/release/release_route.h"
#include "common/transfer/error_detail.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using gpuctl::v1::ErrorDetail;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The directory of a lease, whose allocation 17 waits.
class StagedTest : public ::testing::Test {
 protected:
  StagedTest() : directory_(dir_.Sub("results/lease")) {
    for (const char* file : {"gpuctl-shim", "version", "api_level"}) {
      dir_.Write(absl::StrCat("bundle/", file), "1\n");
    }
    dir_.Write("bundle/gpuctl-agent", "#!/bin/sh\n", 0755);
    dir_.Write("results/lease/token", "secret\n");
    EXPECT_EQ(chmod(directory_.c_str(), 0700), 0);
    dir_.Write("results/.seen-by-nodes", "");
    request_.mutable_spec()->set_job_id("j-1");
    request_.mutable_spec()->add_argv("true");
    Sign();
  }
  void Sign() { request_.set_spec_digest(SpecDigest(request_.spec())); }
  absl::StatusOr<std::string> Make() { return MakeStaged(directory_, "17", dir_.Sub("bundle")); }
  RootPaths Copy() { return RootPaths(JoinPath(directory_, "17-staged")); }
  absl::StatusOr<gpuctl::v1::Job> Accept() { return AcceptStaged(Copy(), "n-1", request_, clock_); }
  ErrorDetail::Kind KindOfRefusal() { return DetailOf(Accept().status()).kind(); }
  // What the batch script does.
  int Start(int restart = 0) {
    const std::string root = dir_.Sub(absl::StrCat("17-", restart));
    dir_.Write(absl::StrCat("17-", restart, "/", kHeldFile), "");
    EXPECT_EQ(chmod(root.c_str(), 0700), 0);
    setenv(kResultsTokenVariable, "secret", 1);
    return RunStartAgain(root, directory_);
  }
  JobPaths Started(int restart = 0) {
    return RootPaths(dir_.Sub(absl::StrCat("17-", restart))).Job("j-1");
  }

  TempDir dir_;
  FakeClock clock_;
  const std::string directory_;
  gpuctl::v1::StartJobRequest request_;
};

TEST_F(StagedTest, ARunBeginsWithTheFirstStart) {
  const std::string made = Make().value();
  EXPECT_EQ(made, Copy().root);
  EXPECT_EQ(Make().value(), made);
  dir_.Write("results/lease/17-staged/node_id", "n-1\n");
  const gpuctl::v1::Job job = Accept().value();
  EXPECT_EQ(job.state(), gpuctl::v1::JOB_STATE_PENDING);
  // An answer that was lost is asked for again.
  EXPECT_OK(Accept().status());
  const Lifecycle waits = ReadLifecycle(Copy().Job("j-1")).value();
  ASSERT_NE(QueuedEvent(waits), nullptr);
  EXPECT_EQ(QueuedEvent(waits)->reason, kSchedulerReason);
  ASSERT_OK(WriteFileAtomic(Copy().Job("j-1").time_limit, "900\n"));
  EXPECT_EQ(NewestCopy(directory_).value(), Copy().root);
  ASSERT_EQ(Start(), 0);
  EXPECT_TRUE(PathExists(Started().spec));
  EXPECT_EQ(ReadFileToString(Started().time_limit).value(), "900\n");
  EXPECT_EQ(ReadFileToString(dir_.Sub("17-0/node_id")).value(), "n-1\n");
  EXPECT_TRUE(PathExists(dir_.Sub("17-0/bin/current/gpuctl-agent")));
  // Nobody takes it back now, and nobody takes it twice.
  EXPECT_TRUE(absl::IsNotFound(TakeBackStaged(Copy(), "j-1")));
  EXPECT_TRUE(absl::IsNotFound(TakeStaged(Copy())));
}

TEST_F(StagedTest, WhatIsTakenBackDoesNotBegin) {
  ASSERT_OK(Make().status());
  ASSERT_OK(Accept().status());
  ASSERT_OK(TakeBackStaged(Copy(), "j-1"));
  EXPECT_EQ(Start(), 0);
  EXPECT_FALSE(PathExists(Started().spec));
  EXPECT_FALSE(PathExists(Copy().Job("j-1").spec));
}

// An agent that died between two steps, or whose disk was full, has left a job without its mark.
TEST_F(StagedTest, WhatAnEarlierCallLeftUndoneIsDoneByTheNext) {
  ASSERT_OK(Make().status());
  ASSERT_OK(Accept().status());
  ASSERT_OK(RemoveTree(JoinPath(Copy().root, kStagedWord)));
  ASSERT_OK(Accept().status());
  // Taken back, and the job is still there.
  ASSERT_EQ(rename(JoinPath(Copy().root, kStagedWord).c_str(),
                   JoinPath(Copy().root, "staged.back").c_str()),
            0);
  ASSERT_OK(Accept().status());
  ASSERT_EQ(Start(), 0);
  EXPECT_TRUE(PathExists(Started().spec));
  // Once begun, it gets no mark for another start.
  ASSERT_OK(Accept().status());
  EXPECT_TRUE(absl::IsNotFound(TakeStaged(Copy())));
}

// Its client, if it lives, finds the node that it knows, and starts its run there.
TEST_F(StagedTest, AStartForWhichNoRunWaitsIsTheNodeThatTheClientKnows) {
  ASSERT_OK(Make().status());
  gpuctl::v1::NodeLimits limits;
  limits.set_revision(1);
  limits.set_idle_s(600);
  ASSERT_OK(StoreNodeLimits(Copy(), limits, {"b-1", 5, 5}));
  EXPECT_EQ(Start(), 0);
  EXPECT_EQ(ReadFileToString(dir_.Sub("17-0/node_id")).value(),
            ReadFileToString(Copy().node_id).value());
  EXPECT_EQ(ReadNodeLimits(RootPaths(dir_.Sub("17-0")))->limits.idle_s(), 600);
  EXPECT_TRUE(PathExists(dir_.Sub("17-0/bin/current/gpuctl-agent")));
}

TEST_F(StagedTest, AStoppedRunDoesNotBegin) {
  ASSERT_OK(Make().status());
  ASSERT_OK(Accept().status());
  ASSERT_OK(NoteStopped(directory_, "j-1", "user"));
  EXPECT_EQ(KindOfRefusal(), ErrorDetail::KIND_SWEPT);
  EXPECT_EQ(Start(), 1);
  EXPECT_FALSE(PathExists(Started().spec));
  EndAllKept(Copy(), clock_);
  const Lifecycle over = ReadLifecycle(Copy().Job("j-1")).value();
  EXPECT_TRUE(IsOver(over));
  EXPECT_EQ(LastStateEvent(over)->reason, "user");
}

TEST_F(StagedTest, AStartThatFailsIsToldAsThat) {
  request_.mutable_spec()->set_manifest_digest(std::string(64, 'a'));
  Sign();
  ASSERT_OK(Make().status());
  EXPECT_EQ(KindOfRefusal(), ErrorDetail::KIND_CONTENT_MISSING);
  dir_.Write(absl::StrCat("results/lease/again/blobs/trees/", std::string(64, 'a'), ".manifest"),
             "");
  ASSERT_OK(MakeDirectories(
      dir_.Sub(absl::StrCat("results/lease/again/blobs/trees/", std::string(64, 'a')))));
  ASSERT_OK(Accept().status());
  EXPECT_EQ(Start(), 1);
  EndAllKept(Copy(), clock_);
  const Lifecycle over = ReadLifecycle(Copy().Job("j-1")).value();
  ASSERT_TRUE(IsOver(over));
  EXPECT_THAT(LastStateEvent(over)->reason, StartsWith(kNotStartedPrefix));
}

TEST_F(StagedTest, WhatCannotBeginAloneIsRefused) {
  ASSERT_OK(Make().status());
  request_.mutable_spec()->add_secret_names("TOKEN");
  EXPECT_THAT(Accept().status().message(), HasSubstr("secrets"));
  request_.mutable_spec()->clear_secret_names();
  request_.mutable_spec()->clear_argv();
  EXPECT_TRUE(absl::IsInvalidArgument(Accept().status()));
  request_.mutable_spec()->add_argv("true");
  request_.set_expected_node_id("n-2");
  EXPECT_EQ(KindOfRefusal(), ErrorDetail::KIND_NODE_CHANGED);
  request_.clear_expected_node_id();
  ASSERT_OK(Accept().status());
  request_.mutable_spec()->add_argv("more");
  Sign();
  EXPECT_TRUE(absl::IsAlreadyExists(Accept().status()));
  request_.mutable_spec()->set_job_id("j-2");
  Sign();
  EXPECT_THAT(Accept().status().message(), HasSubstr("another run waits"));
}

TEST_F(StagedTest, NothingIsLeftWhereNodesMayNotSeeIt) {
  ASSERT_OK(RemoveTree(dir_.Sub("results/.seen-by-nodes")));
  EXPECT_THAT(Make().status().message(), HasSubstr("no node has been seen to share"));
  NoteSeenByNode(directory_);
  EXPECT_OK(Make().status());
  ASSERT_EQ(chmod(directory_.c_str(), 0777), 0);
  EXPECT_TRUE(absl::IsPermissionDenied(Make().status()));
}

TEST_F(StagedTest, NothingIsLeftForOneThatHasBegun) {
  dir_.Write("results/lease/17-0/node_id", "n-1\n");
  EXPECT_THAT(Make().status().message(), HasSubstr("has begun"));
}

}  // namespace
}  // namespace gpuctl
