#include "agent/jobs/job_removal.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/base/node_root.h"
#include "agent/jobs/job_table.h"
#include "common/base/fake_clock.h"
#include "common/base/unique_fd.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/job/stream_file.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Type = LifecycleEvent::Type;

class NoLauncher : public ShimLauncher {
 public:
  absl::Status Launch(const JobPaths&, int, const Secrets&) override {
    ++launched;
    return absl::OkStatus();
  }
  void Reap() override {}
  bool IsStarting(const JobPaths& /*job*/) override { return false; }
  bool JobsMayLive() const override { return may_live; }
  bool may_live = true;
  int launched = 0;
};

class JobRemovalTest : public ::testing::Test {
 protected:
  JobRemovalTest()
      : paths_(PrepareNodeRoot(dir_.Sub("node")).value()),
        table_(paths_, "n-1", launcher_, clock_),
        job_(paths_.Job("j-1")) {}

  static gpuctl::v1::StartJobRequest Request() {
    gpuctl::v1::StartJobRequest request;
    request.mutable_spec()->set_job_id("j-1");
    request.mutable_spec()->add_argv("true");
    request.set_spec_digest(SpecDigest(request.spec()));
    return request;
  }
  void Append(Type type) {
    LifecycleEvent event;
    event.type = type;
    event.attempt = 1;
    StreamWriter writer = StreamWriter::Open(job_.lifecycle, PlainShape()).value();
    ASSERT_OK(writer.Append(FormatLifecycleEvent(event)));
  }
  void StartAndEnd() {
    ASSERT_OK(table_.Start(Request()));
    Append(Type::kStarted);
    Append(Type::kExited);
  }
  absl::StatusOr<gpuctl::v1::RemoveJobReply> Remove(bool dry_run = false) {
    gpuctl::v1::RemoveJobRequest request;
    request.set_job_id("j-1");
    request.set_dry_run(dry_run);
    return table_.Remove(request);
  }
  void Write(const std::string& path, const std::string& contents) {
    dir_.Write(absl::StrCat("node/jobs/j-1/", path), contents);
  }
  static std::vector<std::string> Left(const gpuctl::v1::RemoveJobReply& reply) {
    std::vector<std::string> paths;
    for (const auto& left : reply.left()) paths.push_back(left.path());
    return paths;
  }

  TempDir dir_;
  FakeClock clock_;
  NoLauncher launcher_;
  RootPaths paths_;
  JobTable table_;
  JobPaths job_;
};

TEST_F(JobRemovalTest, ARemovedJobLeavesATombstoneAndIsNeverStartedAgain) {
  StartAndEnd();
  const auto removed = Remove();
  ASSERT_OK(removed);
  EXPECT_TRUE(removed->removed());
  EXPECT_FALSE(PathExists(job_.dir));
  EXPECT_EQ(ReadFileToString(JoinPath(paths_.tombstones, "j-1")).value(), "");
  EXPECT_THAT(table_.List(), IsEmpty());
  launcher_.launched = 0;
  EXPECT_TRUE(absl::IsNotFound(table_.Start(Request()).status()));
  EXPECT_EQ(launcher_.launched, 0);
  // A second removal is not an error.
  EXPECT_TRUE(Remove()->removed());
  EXPECT_TRUE(Remove(/*dry_run=*/true)->removed());
}

TEST_F(JobRemovalTest, WhereNothingCanLiveAJobWithoutAnEndGoes) {
  ASSERT_OK(table_.Start(Request()));
  Append(Type::kStarted);  // and then its machine failed
  EXPECT_TRUE(absl::IsFailedPrecondition(Remove().status()));
  launcher_.may_live = false;
  EXPECT_FALSE(Remove(/*dry_run=*/true)->removed());
  EXPECT_TRUE(Remove()->removed());
  EXPECT_FALSE(PathExists(job_.dir));
}

TEST_F(JobRemovalTest, WhatIsNotOverStays) {
  EXPECT_TRUE(absl::IsNotFound(Remove().status()));
  ASSERT_OK(table_.Start(Request()));
  EXPECT_TRUE(absl::IsFailedPrecondition(Remove().status())) << "pending";
  Append(Type::kStarted);
  {
    const auto shim = TryLock(job_.lock);
    ASSERT_OK(shim);
    EXPECT_TRUE(absl::IsFailedPrecondition(Remove().status())) << "running";
    Append(Type::kExited);
    EXPECT_TRUE(absl::IsFailedPrecondition(Remove().status())) << "finishing";
  }
  Append(Type::kRetry);
  EXPECT_TRUE(absl::IsFailedPrecondition(Remove().status())) << "waiting to retry";
  EXPECT_TRUE(PathExists(job_.spec));
}

TEST_F(JobRemovalTest, ASyncThatGoesOnKeepsTheJob) {
  StartAndEnd();
  const auto sync = TryLock(JoinPath(job_.dir, "sync.lock"));
  ASSERT_OK(sync);
  EXPECT_TRUE(absl::IsFailedPrecondition(Remove().status()));
  EXPECT_TRUE(PathExists(job_.spec));
}

// The server died after it made the tombstone and before it removed the last file.
TEST_F(JobRemovalTest, ARemovalThatBrokeOffIsFinished) {
  StartAndEnd();
  ASSERT_EQ(rename(job_.spec.c_str(), JoinPath(paths_.tombstones, "j-1").c_str()), 0);
  JobTable successor(paths_, "n-1", launcher_, clock_);
  successor.Tend();
  EXPECT_FALSE(PathExists(job_.dir));
  // The next request finishes it, too.
  ASSERT_OK(MakeDirectories(job_.work));
  EXPECT_TRUE(Remove()->removed());
  EXPECT_FALSE(PathExists(job_.dir));
}

TEST_F(JobRemovalTest, WhatTheJobMadeIsListed) {
  StartAndEnd();
  Write("work/out/model.bin", "12345");
  Write("work/__pycache__/a.pyc", "x");
  Write("work/.gpuctl/trainer-kit/bin", "x");
  Write("work/.gpuctl/trainer.json", "{}");
  Write("work/.gpuctl/trainer-1.json", "{}");
  Write("work/.gpuctl/trainer-me.json", "{}");
  Write("ckpt/raw.pt", "123");
  Write("ckpt/.tmp-1/part", "x");
  Write("ckpt/step-00000001/a", "1");
  Write("ckpt/step-00000001/manifest.json",
        R"({"format":1,"step":1,"files":[{"path":"a","size":1,"sha256":")" + std::string(64, '0') +
            "\"}]}");
  const auto looked = Remove(/*dry_run=*/true);
  ASSERT_OK(looked);
  EXPECT_FALSE(looked->removed());
  EXPECT_THAT(Left(*looked),
              ElementsAre("work/.gpuctl/trainer-me.json", "work/out/model.bin", "ckpt/raw.pt"));
  EXPECT_EQ(looked->left_count(), 3);
  EXPECT_EQ(looked->left_bytes(), 10);
  EXPECT_TRUE(PathExists(job_.spec));
}

TEST_F(JobRemovalTest, SharedContentIsNotCountedAsFreed) {
  StartAndEnd();
  const auto before = Remove(/*dry_run=*/true);
  ASSERT_OK(before);
  const std::string stored = dir_.Write("store", std::string(100'000, 's'));
  Write("work/own", std::string(200'000, 'o'));
  ASSERT_EQ(link(stored.c_str(), JoinPath(job_.work, "linked").c_str()), 0);
  // A file with two names, both in the job's directory.
  ASSERT_EQ(link(JoinPath(job_.work, "own").c_str(), JoinPath(job_.work, "own2").c_str()), 0);
  const auto after = Remove(/*dry_run=*/true);
  ASSERT_OK(after);
  EXPECT_GE(after->shared_bytes(), 100'000);
  EXPECT_LT(after->shared_bytes(), 150'000);
  EXPECT_GE(after->freed_bytes() - before->freed_bytes(), 200'000);
  EXPECT_LT(after->freed_bytes() - before->freed_bytes(), 250'000);
}

TEST_F(JobRemovalTest, ManyNamesAreCountedAndNotAllNamed) {
  StartAndEnd();
  const std::string name(200, 'n');
  const std::string long_dir =
      JoinPath(job_.work, absl::StrCat(name, "/", name, "/", name, "/", name));
  ASSERT_OK(MakeDirectories(long_dir));
  for (int i = 0; i < 1500; ++i) {
    const UniqueFd fd(file_ops::Open(JoinPath(long_dir, absl::StrCat(i)), O_WRONLY | O_CREAT));
    ASSERT_EQ(write(fd.get(), "1", 1), 1);
  }
  const auto looked = Remove(/*dry_run=*/true);
  ASSERT_OK(looked);
  EXPECT_EQ(looked->left_count(), 1500);
  EXPECT_EQ(looked->left_bytes(), 1500);
  EXPECT_LT(looked->left_size(), 1500);
  EXPECT_LT(looked->ByteSizeLong(), size_t{2} << 20);
}

}  // namespace
}  // namespace gpuctl
