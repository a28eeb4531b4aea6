#include "agent/jobs/artifacts.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/results/foreign_checkpoints.h"
#include "common/base/fake_clock.h"
#include "common/base/unique_fd.h"
#include "common/job/job_layout.h"
#include "common/job/lifecycle.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;
using ::testing::StartsWith;

class ListArtifactsTest : public ::testing::Test {
 protected:
  ListArtifactsTest() : job_(dir_.Sub("j-1")) { request_.set_job_id("j-1"); }
  TempDir dir_;
  FakeClock clock_;
  JobPaths job_;
  gpuctl::v1::ListArtifactsRequest request_;
};

TEST_F(ListArtifactsTest, UnknownJobIsNotFound) {
  EXPECT_THAT(ListArtifacts(job_, request_, clock_), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(ListArtifactsTest, OnlyCompleteCheckpointsAndMatchingFiles) {
  dir_.Write("j-1/spec.json", "{}");
  dir_.Write("j-1/work/out/deep/a.json", "12345");
  dir_.Write("j-1/work/b.txt", "x");
  dir_.Write("j-1/ckpt/step-00000002/state", "abc");
  dir_.Write("j-1/ckpt/step-00000002/manifest.json",
             R"({"format":1,"step":2,"files":[{"path":"state","size":3,"sha256":")" +
                 std::string(64, '0') + R"("}]})");
  dir_.Write("j-1/ckpt/.tmp-step-00000004/state", "abc");
  dir_.Write("j-1/ckpt/step-00000006/state", "no manifest");
  request_.set_pattern("out/**/*.json");
  const auto reply = ListArtifacts(job_, request_, clock_);
  ASSERT_OK(reply);
  ASSERT_THAT(reply->checkpoints(), SizeIs(1));
  EXPECT_EQ(reply->checkpoints(0).path(), "ckpt/step-00000002");
  EXPECT_EQ(reply->checkpoints(0).size(), 3);
  ASSERT_THAT(reply->files(), SizeIs(1));
  EXPECT_EQ(reply->files(0).path(), "work/out/deep/a.json");
  EXPECT_EQ(reply->files(0).size(), 5);
}

TEST_F(ListArtifactsTest, FilesBesideTheCheckpoints) {
  dir_.Write("j-1/spec.json", "{}");
  dir_.Write("j-1/work/model.pt", "work");
  dir_.Write("j-1/ckpt/model.pt", "12345");
  dir_.Write("j-1/ckpt/step-00000002/state", "abc");
  dir_.Write("j-1/ckpt/step-00000002/not-named", "x");
  dir_.Write("j-1/ckpt/step-00000002/manifest.json",
             R"({"format":1,"step":2,"files":[{"path":"state","size":3,"sha256":")" +
                 std::string(64, '0') + R"("}]})");
  dir_.Write("j-1/ckpt/.tmp-step-00000004/state", "abc");
  dir_.Write("j-1/ckpt/torn/state", "no manifest");
  ASSERT_EQ(symlink("/etc/passwd", dir_.Sub("j-1/ckpt/link").c_str()), 0);
  EXPECT_THAT(ListArtifacts(job_, request_, clock_)->files(), SizeIs(0));
  request_.set_beside_checkpoints(true);
  request_.set_page_bytes(1);
  std::vector<std::string> paths;
  for (bool more = true; more;) {
    const auto page = ListArtifacts(job_, request_, clock_);
    ASSERT_OK(page);
    EXPECT_THAT(page->checkpoints(), SizeIs(paths.empty() ? 1 : 0));
    ASSERT_THAT(page->files(), SizeIs(1));
    EXPECT_EQ(page->files(0).behind(), "");
    paths.push_back(page->files(0).path());
    request_.set_after(paths.back());
    more = page->more();
  }
  EXPECT_THAT(paths,
              ElementsAre("ckpt/model.pt", "ckpt/step-00000002/not-named", "ckpt/torn/state"));
}

// Makes directories in each other below `path`, too deep for a path of the system, and a file in
// the last one.
void MakeTooDeep(const std::string& path) {
  const std::string name(200, 'd');
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY));
  for (int depth = 0; depth < 25; ++depth) {
    ASSERT_EQ(mkdirat(fd.get(), name.c_str(), 0700), 0);
    fd.reset(openat(fd.get(), name.c_str(), O_RDONLY | O_DIRECTORY));
    ASSERT_TRUE(fd.valid());
  }
  const UniqueFd file(openat(fd.get(), "model.pt", O_WRONLY | O_CREAT, 0600));
  ASSERT_TRUE(file.valid());
}

TEST_F(ListArtifactsTest, WhatCannotBeReadIsNamed) {
  dir_.Write("j-1/spec.json", "{}");
  dir_.Write("j-1/work/out/a", "1");
  dir_.Write("j-1/work/other/a", "1");
  dir_.Write("j-1/ckpt/deep/model.pt", "1");
  for (const char* place : {"work/out", "work/other", "ckpt/deep"}) {
    ASSERT_NO_FATAL_FAILURE(MakeTooDeep(dir_.Sub(absl::StrCat("j-1/", place))));
  }
  request_.set_pattern("out/**");
  const auto named = ListArtifacts(job_, request_, clock_);
  ASSERT_OK(named);
  ASSERT_THAT(named->files(), SizeIs(1));
  EXPECT_EQ(named->files(0).path(), "work/out/a");
  EXPECT_THAT(named->unreached(), ElementsAre(StartsWith("work/out/ddd")));
  request_.set_pattern("");
  request_.set_beside_checkpoints(true);
  const auto beside = ListArtifacts(job_, request_, clock_);
  ASSERT_OK(beside);
  ASSERT_THAT(beside->files(), SizeIs(1));
  EXPECT_EQ(beside->files(0).path(), "ckpt/deep/model.pt");
  EXPECT_THAT(beside->unreached(), ElementsAre(StartsWith("ckpt/deep/ddd")));
}

TEST_F(ListArtifactsTest, ManyFilesComeInPages) {
  dir_.Write("j-1/spec.json", "{}");
  for (const char* directory : {"a", "a-b", "a/deep", "b"}) {
    for (int i = 0; i < 50; ++i) dir_.Write(absl::StrCat("j-1/work/", directory, "/f", i), "1");
  }
  request_.set_pattern("**");
  const auto all = ListArtifacts(job_, request_, clock_);
  ASSERT_OK(all);
  EXPECT_FALSE(all->more());
  ASSERT_THAT(all->files(), SizeIs(200));
  gpuctl::v1::ListArtifactsReply paged;
  request_.set_page_bytes(1000);
  int pages = 0;
  for (bool more = true; more; ++pages) {
    const auto page = ListArtifacts(job_, request_, clock_);
    ASSERT_OK(page);
    ASSERT_GT(page->files_size(), 0);
    more = page->more();
    paged.MergeFrom(*page);
    request_.set_after(page->files(page->files_size() - 1).path());
  }
  EXPECT_GT(pages, 5);
  ASSERT_THAT(paged.files(), SizeIs(200));
  for (int i = 0; i < 200; ++i) EXPECT_EQ(paged.files(i).path(), all->files(i).path());
}

TEST_F(ListArtifactsTest, TheTrainerThatWasSentIsNoResult) {
  StoredSpec stored;
  stored.spec.set_job_id("j-1");
  stored.spec_digest = SpecDigest(stored.spec);
  dir_.Write("j-1/spec.json", FormatStoredSpec(stored));
  dir_.Write("j-1/work/.gpuctl/trainer.json", "{}");
  dir_.Write("j-1/work/.gpuctl/trainer-kit/gpuctl-trainer", "x");
  dir_.Write("j-1/work/.gpuctl/trainer-kit/lib/weights.bin", "x");
  request_.set_pattern("**/*");
  request_.add_checkpoint_patterns("**/lib");
  const auto reply = ListArtifacts(job_, request_, clock_);
  ASSERT_OK(reply);
  ASSERT_THAT(reply->files(), SizeIs(1));
  EXPECT_EQ(reply->files(0).path(), "work/.gpuctl/trainer.json");
  EXPECT_THAT(reply->checkpoints(), SizeIs(0));
}

absl::Time ChangeTimeOf(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(lstat(path.c_str(), &info), 0) << path;
#if defined(__APPLE__)
  return absl::TimeFromTimespec(info.st_ctimespec);
#else
  return absl::TimeFromTimespec(info.st_ctim);
#endif
}

// Tests the node's whole answer about a job that is over.
class EndedJobTest : public ::testing::Test {
 protected:
  EndedJobTest() : job_(dir_.path()) {
    request_.set_job_id("j-1");
    request_.add_checkpoint_patterns("outputs/checkpoint-*");
    StoredSpec stored;
    stored.spec.set_job_id("j-1");
    dir_.Write("spec.json", FormatStoredSpec(stored));
    const std::string unknown = dir_.Write("work/outputs/checkpoint-1/weights", "abc");
    dir_.Write("work/outputs/checkpoint-2/config.json", "{}");
    changed_ = ChangeTimeOf(unknown);
    clock_.JumpWall(changed_ + absl::Seconds(1) - clock_.Now());
  }
  int Listed() { return ListArtifacts(job_, request_, clock_).value().checkpoints_size(); }
  void End(int exit_code, absl::Time when) {
    LifecycleEvent end;
    end.type = LifecycleEvent::Type::kExited;
    end.attempt = 1;
    end.exit_code = exit_code;
    end.time_ms = absl::ToUnixMillis(when);
    dir_.Write("lifecycle.jsonl", FormatLifecycleEvent(end));
  }
  // The user stopped it, and it ended by itself with `exit_code`, or by `signal`.
  void StopAndEnd(absl::Time stopped, int exit_code, int signal, absl::Time when) {
    LifecycleEvent stop;
    stop.type = LifecycleEvent::Type::kStopping;
    stop.attempt = 1;
    stop.reason = kUserReason;
    stop.time_ms = absl::ToUnixMillis(stopped);
    LifecycleEvent end;
    end.type = LifecycleEvent::Type::kExited;
    end.attempt = 1;
    end.exit_code = signal != 0 ? -1 : exit_code;
    end.signal = signal;
    end.reason = kUserReason;
    end.time_ms = absl::ToUnixMillis(when);
    dir_.Write("lifecycle.jsonl", FormatLifecycleEvent(stop) + FormatLifecycleEvent(end));
  }
  TempDir dir_;
  JobPaths job_;
  gpuctl::v1::ListArtifactsRequest request_;
  absl::Time changed_;
  FakeClock clock_;
};

TEST_F(EndedJobTest, NobodyWaitsForTheQuietTimeOfAJobThatEndedWell) {
  EXPECT_EQ(Listed(), 0);
  End(0, changed_ + absl::Seconds(1));
  EXPECT_EQ(Listed(), 2);
}

TEST_F(EndedJobTest, WhatWasNewWhenAJobFailedMustProveItself) {
  End(137, changed_ + absl::Seconds(1));
  EXPECT_EQ(Listed(), 1);
  End(137, changed_ + kCheckpointQuietTime + absl::Seconds(1));
  EXPECT_EQ(Listed(), 2);
}

TEST_F(EndedJobTest, WhatAJobSavedWhenItWasStoppedCountsWithAnyExitCode) {
  const absl::Time stopped = changed_ - absl::Milliseconds(200);
  const absl::Time ended = changed_ + absl::Seconds(1);
  End(143, ended);  // nobody had stopped it
  EXPECT_EQ(Listed(), 1);
  for (const int code : {143, 130, 1, 7}) {
    StopAndEnd(stopped, code, 0, ended);
    EXPECT_EQ(Listed(), 2) << code;
  }
  // When its grace of a minute was over, SIGKILL may have ended a writer.
  StopAndEnd(ended - absl::Minutes(1), 143, 0, ended);
  EXPECT_EQ(Listed(), 1);
  StopAndEnd(ended + absl::Minutes(1), 143, 0, ended);  // the clock was set back
  EXPECT_EQ(Listed(), 1);
}

TEST_F(EndedJobTest, WhatOutlivedTheSignalThatEndedTheShellAroundItCounts) {
  const absl::Time ended = changed_ + absl::Seconds(1);
  StopAndEnd(changed_ - absl::Seconds(3), 0, SIGTERM, ended);
  EXPECT_EQ(Listed(), 2);
  // The signal may have ended its writer.
  StopAndEnd(changed_ - absl::Milliseconds(200), 0, SIGTERM, ended);
  EXPECT_EQ(Listed(), 1);
  StopAndEnd(changed_ - absl::Seconds(3), 0, SIGKILL, ended);
  EXPECT_EQ(Listed(), 1);
}

}  // namespace
}  // namespace gpuctl
