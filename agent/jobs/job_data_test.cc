// What a job gets of a `data:` tree, and what of it other jobs see.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "agent/base/node_root.h"
#include "agent/jobs/job_accept.h"
#include "agent/jobs/job_removal.h"
#include "agent/jobs/job_table.h"
#include "agent/store/given_data.h"
#include "common/base/fake_clock.h"
#include "common/job/lifecycle.h"
#include "common/job/stream_file.h"
#include "tests/support/file_times.h"
#include "tests/support/readings.h"
#include "tests/support/transfer_fixture.h"

namespace gpuctl {
namespace {

class IdleLauncher : public ShimLauncher {
 public:
  absl::Status Launch(const JobPaths&, int, const Secrets&) override { return absl::OkStatus(); }
  void Reap() override {}
  bool IsStarting(const JobPaths& /*job*/) override { return false; }
};

class JobDataTest : public ::testing::Test {
 protected:
  JobDataTest() : root_(PrepareNodeRoot(node_.root).value()) {
    laptop_.dir.Write("f", std::string(100'000, 'f'), 0444);
    laptop_.dir.Write("sub/g", std::string(50'000, 'g'), 0444);
    laptop_.Scan();
    EXPECT_OK(node_.Push(laptop_));
  }
  StoredSpec Spec(const std::string& job_id) const {
    StoredSpec stored;
    stored.spec.set_job_id(job_id);
    stored.spec.add_argv("true");
    gpuctl::v1::DataTree& data = *stored.spec.add_data();
    data.set_path("in/set");
    data.set_manifest_digest(laptop_.digest());
    stored.spec_digest = SpecDigest(stored.spec);
    return stored;
  }
  // As root on a file system without reflinks.
  absl::Status Prepare(const std::string& job_id) {
    DataOptions options;
    options.may_clone = false;
    options.modes_bind = false;
    return PrepareJob(root_, "n-1", Spec(job_id), options);
  }
  void Start(const std::string& job_id) {
    ASSERT_OK(Prepare(job_id));
    ASSERT_OK(CommitJob(root_, job_id));
  }
  void End(const std::string& job_id) {
    LifecycleEvent event;
    event.attempt = 1;
    StreamWriter writer = StreamWriter::Open(root_.Job(job_id).lifecycle, PlainShape()).value();
    event.type = LifecycleEvent::Type::kStarted;
    ASSERT_OK(writer.Append(FormatLifecycleEvent(event)));
    event.type = LifecycleEvent::Type::kExited;
    ASSERT_OK(writer.Append(FormatLifecycleEvent(event)));
  }
  std::string DataOf(const std::string& job_id) const {
    return JoinPath(root_.Job(job_id).work, "in/set");
  }
  // Writes to a job's file and sets its time back.
  void Spoil(const std::string& job_id) const {
    const std::string path = JoinPath(DataOf(job_id), "f");
    struct stat info {};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    ASSERT_EQ(chmod(path.c_str(), 0644), 0);
    const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(pwrite(fd.get(), "!", 1, 7), 1);
    ASSERT_EQ(chmod(path.c_str(), 0444), 0);
    ASSERT_EQ(futimens(fd.get(), TimesOf(info).data()), 0);
  }
  bool IsLinked(const std::string& job_id) const {
    struct stat info {};
    EXPECT_EQ(stat(JoinPath(DataOf(job_id), "f").c_str(), &info), 0);
    return info.st_nlink > 1;
  }
  gpuctl::v1::RemoveJobReply Left(const std::string& job_id) const {
    gpuctl::v1::RemoveJobReply reply;
    EXPECT_OK(ListLeft(root_.Job(job_id), {}, reply));
    return reply;
  }

  Laptop laptop_;
  Node node_;
  RootPaths root_;
};

TEST_F(JobDataTest, AWriteReachesNoRunningJobAndNoLaterOne) {
  Start("j-a");
  Start("j-b");
  Spoil("j-a");
  EXPECT_EQ(DigestOf(DataOf("j-b")), laptop_.digest());
  // The later one is told to push again, or gets the right bytes.
  const absl::Status third = Prepare("j-c");
  if (!third.ok()) {
    EXPECT_THAT(third, StatusIs(absl::StatusCode::kFailedPrecondition));
    ASSERT_OK(node_.Push(laptop_));
    ASSERT_OK(Prepare("j-c"));
  }
  ASSERT_OK(CommitJob(root_, "j-c"));
  EXPECT_EQ(DigestOf(DataOf("j-c")), laptop_.digest());
  EXPECT_EQ(DigestOf(DataOf("j-b")), laptop_.digest());
}

TEST_F(JobDataTest, OnlyJobsThatMayRunKeepFilesForThemselves) {
  Start("j-a");
  EXPECT_TRUE(IsLinked("j-a")) << "nobody else has it";
  Start("j-b");
  EXPECT_FALSE(IsLinked("j-b"));
  End("j-a");
  Start("j-c");
  EXPECT_TRUE(IsLinked("j-c")) << "no job that runs has it";
}

TEST_F(JobDataTest, AJobThatIsBeingPreparedCounts) {
  ASSERT_OK(Prepare("j-a"));
  ASSERT_OK(Prepare("j-b"));
  ASSERT_OK(CommitJob(root_, "j-a"));
  ASSERT_OK(CommitJob(root_, "j-b"));
  EXPECT_TRUE(IsLinked("j-a"));
  EXPECT_FALSE(IsLinked("j-b"));
}

// The job moved the file away from the data's place.
TEST_F(JobDataTest, AFileThatMovedIsStillTheJobs) {
  Start("j-a");
  ASSERT_EQ(rename(DataOf("j-a").c_str(), JoinPath(root_.Job("j-a").work, "moved").c_str()), 0);
  Start("j-b");
  EXPECT_FALSE(IsLinked("j-b"));
  EXPECT_EQ(DigestOf(DataOf("j-b")), laptop_.digest());
}

// Older agents linked without a note.
TEST_F(JobDataTest, AJobOfAnOlderAgentCounts) {
  Start("j-a");
  ASSERT_OK(RemoveTree(LentFilesPath(root_.Job("j-a"))));
  Start("j-b");
  EXPECT_FALSE(IsLinked("j-b"));
}

TEST_F(JobDataTest, UnchangedDataIsNoResult) {
  Start("j-a");
  Start("j-b");
  EXPECT_EQ(Left("j-a").left_count(), 0);
  EXPECT_EQ(Left("j-b").left_count(), 0);
  End("j-a");
  Start("j-c");  // links to the files of j-a, and so changes their ctime
  EXPECT_EQ(Left("j-a").left_count(), 0);
  ASSERT_OK(RemoveTree(JoinPath(node_.trees, laptop_.digest())));
  EXPECT_EQ(Left("j-a").left_count(), 0);
  EXPECT_EQ(Left("j-b").left_count(), 0);
  Spoil("j-b");
  ASSERT_EQ(Left("j-b").left_count(), 1);
  EXPECT_EQ(Left("j-b").left(0).path(), "work/in/set/f");
}

TEST_F(JobDataTest, RemovingAJobLeavesTheTreeKnown) {
  Start("j-a");
  End("j-a");
  IdleLauncher launcher;
  FakeClock clock;
  JobTable table(root_, "n-1", launcher, clock);
  gpuctl::v1::RemoveJobRequest request;
  request.set_job_id("j-a");
  ASSERT_OK(table.Remove(request).status());
  EXPECT_FALSE(PathExists(root_.Job("j-a").dir));
  const std::string stored = JoinPath(node_.trees, laptop_.digest());
  const Readings readings({JoinPath(stored, "f"), JoinPath(stored, "sub/g")});
  ASSERT_OK(Prepare("j-b"));
  EXPECT_TRUE(readings.Were(0));
}

}  // namespace
}  // namespace gpuctl
