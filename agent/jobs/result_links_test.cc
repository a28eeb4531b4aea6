// Results behind symlinks: lists for pull, and what a removal would lose.
#include "agent/results/result_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "agent/jobs/artifacts.h"
#include "agent/jobs/job_removal.h"
#include "common/base/fake_clock.h"
#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ResultLinksTest : public ::testing::Test {
 protected:
  ResultLinksTest() : job_(dir_.Sub("jobs/j-1")) {
    StoredSpec stored;
    stored.spec.set_job_id("j-1");
    stored.spec_digest = SpecDigest(stored.spec);
    dir_.Write("jobs/j-1/spec.json", FormatStoredSpec(stored));
    EXPECT_OK(MakeDirectories(job_.work));
    request_.set_job_id("j-1");
    request_.set_behind_links(true);
  }
  void LinkWork(const std::string& path, const std::string& target) {
    EXPECT_OK(MakeDirectories(DirName(JoinPath(job_.work, path))));
    EXPECT_EQ(symlink(target.c_str(), JoinPath(job_.work, path).c_str()), 0);
  }
  std::string Outside(const std::string& name) const { return dir_.Sub("outside/" + name); }

  gpuctl::v1::ListArtifactsReply List(const std::string& pattern,
                                      const std::vector<std::string>& checkpoints = {}) {
    request_.set_pattern(pattern);
    request_.clear_checkpoint_patterns();
    for (const std::string& each : checkpoints) request_.add_checkpoint_patterns(each);
    const auto reply = ListArtifacts(job_, request_, clock_);
    EXPECT_OK(reply);
    return reply.value_or(gpuctl::v1::ListArtifactsReply());
  }
  // Returns "path < symlink" for each file.
  std::vector<std::string> Files(const std::string& pattern) {
    std::vector<std::string> files;
    const gpuctl::v1::ListArtifactsReply reply = List(pattern);
    for (const auto& file : reply.files()) {
      files.push_back(file.behind().empty() ? file.path()
                                            : absl::StrCat(file.path(), " < ", file.behind()));
    }
    return files;
  }
  std::vector<std::string> Left(const std::vector<std::string>& patterns) {
    gpuctl::v1::RemoveJobReply reply;
    EXPECT_OK(ListLeft(job_, patterns, reply));
    std::vector<std::string> left;
    for (const auto& file : reply.left())
      left.push_back(absl::StrCat(file.path(), " ", file.size()));
    return left;
  }

  TempDir dir_;
  FakeClock clock_{absl::FromUnixSeconds(4'000'000'000)};
  JobPaths job_;
  gpuctl::v1::ListArtifactsRequest request_;
};

TEST_F(ResultLinksTest, APatternFollowsTheSymlinksThatItNames) {
  dir_.Write("outside/out/a.json", "1");
  dir_.Write("outside/out/deep/b.json", "1");
  dir_.Write("outside/run/best/c.json", "1");
  LinkWork("outputs", Outside("out"));
  LinkWork("runs/x", Outside("run"));
  EXPECT_THAT(Files("outputs/**"), ElementsAre("work/outputs/a.json < work/outputs",
                                               "work/outputs/deep/b.json < work/outputs"));
  EXPECT_THAT(Files("outputs/*.json"), ElementsAre("work/outputs/a.json < work/outputs"));
  EXPECT_THAT(Files("runs/*/best/*"), ElementsAre("work/runs/x/best/c.json < work/runs/x"));
  EXPECT_THAT(Files("**"), IsEmpty());
  EXPECT_THAT(Files("runs/**"), IsEmpty());
  // A client that cannot pull behind symlinks does not get such names.
  request_.set_behind_links(false);
  EXPECT_THAT(Files("outputs/**"), IsEmpty());
}

TEST_F(ResultLinksTest, WhatIsFoundElsewhereIsFoundOnce) {
  dir_.Write("jobs/j-1/work/runs/a/x.json", "1");
  dir_.Write("jobs/j-1/work/store/y.json", "1");
  LinkWork("runs/latest", "a");
  LinkWork("results", "store");
  EXPECT_THAT(Files("runs/*/*.json"), ElementsAre("work/runs/a/x.json"));
  EXPECT_THAT(Files("results/*.json"), ElementsAre("work/results/y.json < work/results"));
}

TEST_F(ResultLinksTest, CirclesAndTheWholeWorldAreNotFollowed) {
  dir_.Write("outside/a/f", "1");
  LinkWork("up", "..");
  LinkWork("root", "/");
  LinkWork("self", "self");
  LinkWork("here", ".");
  LinkWork("a", Outside("a"));
  ASSERT_EQ(symlink(Outside("a").c_str(), Outside("a/again").c_str()), 0);
  ASSERT_EQ(symlink(dir_.path().c_str(), Outside("a/top").c_str()), 0);
  EXPECT_THAT(Files("*/*/*/*/*/f"), IsEmpty());
  EXPECT_THAT(Files("a/*/*"), IsEmpty());
  EXPECT_THAT(Files("a/f"), ElementsAre("work/a/f < work/a"));
  EXPECT_THAT(Files("up/*"), IsEmpty());
  EXPECT_THAT(Files("root/*"), IsEmpty());
}

TEST_F(ResultLinksTest, CheckpointsBehindSymlinks) {
  dir_.Write("outside/out/checkpoint-1/weights", "123");
  dir_.Write("outside/checkpoint-2/weights", "1234");
  LinkWork("outputs", Outside("out"));
  LinkWork("more/checkpoint-2", Outside("checkpoint-2"));
  const auto reply = List("", {"outputs/checkpoint-*", "more/checkpoint-*"});
  std::vector<std::string> found;
  for (const auto& checkpoint : reply.checkpoints()) {
    found.push_back(
        absl::StrCat(checkpoint.path(), " ", checkpoint.size(), " < ", checkpoint.behind()));
  }
  EXPECT_THAT(found,
              testing::UnorderedElementsAre("work/outputs/checkpoint-1 3 < work/outputs",
                                            "work/more/checkpoint-2 4 < work/more/checkpoint-2"));
}

TEST_F(ResultLinksTest, TheTrainersCheckpointsBehindASymlink) {
  dir_.Write("outside/ckpt/step-2/state", "abc");
  dir_.Write("outside/ckpt/step-2/manifest.json",
             R"({"format":1,"step":2,"files":[{"path":"state","size":3,"sha256":")" +
                 std::string(64, '0') + R"("}]})");
  ASSERT_EQ(symlink(Outside("ckpt").c_str(), job_.checkpoints.c_str()), 0);
  const auto reply = List("");
  ASSERT_EQ(reply.checkpoints_size(), 1);
  EXPECT_EQ(reply.checkpoints(0).behind(), "ckpt");
}

TEST_F(ResultLinksTest, ResultsThatCannotBeReachedAreNamed) {
  dir_.Write("outside/final.pt", "12345");
  dir_.Write("outside/cache/f", "1");
  LinkWork("outputs/final.pt", Outside("final.pt"));
  LinkWork("outputs/cache", Outside("cache"));
  LinkWork("outputs/old", "/usr/bin/env");
  LinkWork("outputs/none", Outside("none"));
  LinkWork("other", Outside("cache"));
  const auto reply = List("outputs/**");
  EXPECT_THAT(std::vector<std::string>(reply.unreached().begin(), reply.unreached().end()),
              ElementsAre("work/outputs/cache", "work/outputs/final.pt"));
  const auto checkpoints = List("", {"outputs/*.pt"});
  EXPECT_EQ(checkpoints.unreached_size(), 1);
}

TEST_F(ResultLinksTest, ARemovalKnowsWhatLiesBehindSymlinks) {
  dir_.Write("outside/out/a", "12345");
  dir_.Write("outside/cache/f", "123");
  dir_.Write("jobs/j-1/work/own", "1");
  LinkWork("cache", Outside("cache"));
  LinkWork("local", "own");
  LinkWork("outputs", Outside("out"));
  LinkWork("usr", "/usr/bin/env");
  EXPECT_THAT(Left({"outputs/**"}), ElementsAre("work/cache 3", "work/outputs/a 5", "work/own 1"));
  EXPECT_THAT(Left({}), ElementsAre("work/cache 3", "work/outputs 5", "work/own 1"));
}

}  // namespace
}  // namespace gpuctl
