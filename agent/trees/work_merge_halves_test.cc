// Events between the two halves of a merge, and modes or other merges that prevent it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

#include "tests/support/work_merge_fixture.h"

namespace gpuctl {
namespace {

using ::testing::UnorderedElementsAre;

TEST_F(WorkMergeHalvesTest, WhatTheJobChangesMeanwhileIsKept) {
  for (const char* path : {"changed", "replaced", "touched", "gone", "to-remove", "calm"}) {
    OnLaptop(path, "1");
  }
  Sync();
  for (const char* path : {"changed", "replaced", "touched", "gone", "calm", "appears"}) {
    OnLaptop(path, "22");
  }
  ASSERT_OK(RemoveTree(laptop_.dir.Sub("to-remove")));
  const auto merge = Plan();
  ASSERT_OK(merge);
  Fill(**merge, laptop_);
  {
    const UniqueFd fd(open(Live("changed").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
    ASSERT_OK(WriteAll(fd.get(), "job", "changed"));
  }
  OnJob("replaced", "job");
  OnJob("to-remove", "job");
  OnJob("appears", "job");
  ASSERT_OK(RemoveTree(Live("gone")));
  const auto report = (*merge)->Apply();
  ASSERT_OK(report);
  EXPECT_THAT(Kept(*report), UnorderedElementsAre("changed", "replaced", "to-remove", "appears"));
  EXPECT_EQ(There("changed"), "1job");
  EXPECT_EQ(There("replaced"), "job");
  EXPECT_EQ(There("to-remove"), "job");
  EXPECT_EQ(There("appears"), "job");
  EXPECT_EQ(There("calm"), "22");
}

TEST_F(WorkMergeHalvesTest, WhatTheJobWritesJustBeforeARemovalIsKept) {
  for (const char* path : {"a", "d/b", "c"}) OnLaptop(path, "1");
  Sync();
  for (const char* path : {"a", "d/b", "c"}) ASSERT_OK(RemoveTree(laptop_.dir.Sub(path)));
  const auto merge = Plan();
  ASSERT_OK(merge);
  Fill(**merge, laptop_);
  // The merge has compared the file already.
  file_ops::SetFaultHook([&](file_ops::Op op, const std::string& path) {
    if (op == file_ops::Op::kUnlink && (path == "a" || path == "d/b")) {
      const UniqueFd fd(open(Live(path).c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
      EXPECT_EQ(write(fd.get(), "job", 3), 3);
    }
    return 0;
  });
  const auto report = (*merge)->Apply();
  file_ops::SetFaultHook(nullptr);
  ASSERT_OK(report);
  EXPECT_THAT(Kept(*report), UnorderedElementsAre("a", "d/b"));
  EXPECT_EQ(There("a"), "1job");
  EXPECT_EQ(There("d/b"), "1job");
  EXPECT_EQ(There("c"), "(none)");
  EXPECT_EQ(report->removed(), 1);
}

TEST_F(WorkMergeHalvesTest, DirectoriesThatTheJobReplacesMeanwhile) {
  OnLaptop("d/f", "1");
  Sync();
  OnLaptop("d/f", "2");
  OnLaptop("d/g", "2");
  OnLaptop("new/f", "2");
  const auto merge = Plan();
  ASSERT_OK(merge);
  Fill(**merge, laptop_);
  TempDir outside;
  ASSERT_OK(RemoveTree(Live("d")));
  ASSERT_EQ(symlink(outside.path().c_str(), Live("d").c_str()), 0);
  OnJob("new", "job");
  const auto report = (*merge)->Apply();
  ASSERT_OK(report);
  EXPECT_THAT(Kept(*report), UnorderedElementsAre("d/f", "d/g", "new", "new/f"));
  EXPECT_TRUE(outside.Names().empty());
  EXPECT_EQ(There("new"), "job");
}

TEST_F(WorkMergeHalvesTest, OneThatDiesBeforeItAppliesChangesNothing) {
  OnLaptop("f", "1");
  Sync();
  OnLaptop("f", "2");
  OnLaptop("g", RandomBytes(100'000, 1));
  {
    const auto merge = Plan();
    ASSERT_OK(merge);
    Fill(**merge, laptop_);
    (*merge)->builder().Keep();
  }
  EXPECT_EQ(Snapshot(node_.job.work), (std::map<std::string, std::string>{{"f", "1"}}));
  EXPECT_EQ(Node::Names(node_.job.dir, true).size(), 1u);
  Sync();
  EXPECT_EQ(sent_, 0);  // everything was there already
  ExpectSame();
}

TEST_F(WorkMergeHalvesTest, OnlyOneAtATime) {
  OnLaptop("f", "1");
  const auto merge = Plan();
  ASSERT_OK(merge);
  EXPECT_THAT(Plan(), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(node_.PushWork(laptop_), StatusIs(absl::StatusCode::kFailedPrecondition));
  Fill(**merge, laptop_);
  ASSERT_OK((*merge)->Apply());
  EXPECT_EQ(There("f"), "1");
}

TEST_F(WorkMergeHalvesTest, WithoutAWorkDirectoryThereIsNothingToMergeInto) {
  ASSERT_OK(RemoveTree(node_.job.work));
  EXPECT_THAT(Plan(), StatusIs(absl::StatusCode::kNotFound));
  TempDir outside;
  ASSERT_EQ(symlink(outside.path().c_str(), node_.job.work.c_str()), 0);
  EXPECT_FALSE(Plan().ok());
  EXPECT_TRUE(outside.Names().empty());
}

// Modes do not stop root, who runs the tests in containers.
void AsAnOrdinaryUser(const std::function<void()>& scenario) {
  if (geteuid() != 0) return scenario();
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    constexpr uid_t kNobody = 65534;
    if (setgid(kNobody) != 0 || setuid(kNobody) != 0) _exit(2);
    scenario();
    fflush(stdout);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int result = 0;
  ASSERT_EQ(waitpid(pid, &result, 0), pid);
  EXPECT_TRUE(WIFEXITED(result) && WEXITSTATUS(result) == 0) << result;
}

TEST(WorkMergeModes, DirectoriesThatForbidWritingAreNoObstacle) {
  AsAnOrdinaryUser([] {
    Laptop laptop;
    const auto lock = [&](mode_t mode) {
      for (const char* path : {"ro", "ro/deep", "moved"}) {
        EXPECT_EQ(chmod(laptop.dir.Sub(path).c_str(), mode), 0);
      }
    };
    laptop.dir.Write("ro/f", "1", 0444);
    laptop.dir.Write("ro/gone", "1", 0444);
    laptop.dir.Write("ro/deep/f", "1", 0400);
    laptop.dir.Write("moved/f", "1");
    lock(0555);
    laptop.Scan();
    Node node;
    ASSERT_OK(MakeDirectories(node.job.work, 0755));
    ASSERT_OK(node.PushWork(laptop));
    EXPECT_EQ(DigestOf(node.job.work), laptop.digest());
    ASSERT_OK(node.Push(laptop));
    ASSERT_OK(CopyStoredTree(node.trees, laptop.digest(), node.dir.Sub("copy")));
    lock(0755);
    laptop.dir.Write("ro/f", "2", 0444);
    laptop.dir.Write("ro/new/f", "2", 0444);
    laptop.dir.Write("ro/deep/g", "2", 0444);
    ASSERT_OK(RemoveTree(laptop.dir.Sub("ro/gone")));
    lock(0555);
    laptop.Scan();
    {
      // An earlier try that finished and was not applied leaves such directories.
      const auto merge = WorkMerge::Plan(node.job, "", laptop.manifest, false);
      ASSERT_OK(merge);
      const UniqueFd fd(file_ops::Open(laptop.dir.path(), O_RDONLY | O_DIRECTORY));
      ASSERT_OK((*merge)->builder().TakeSamePaths(fd.get()));
      ASSERT_OK((*merge)->builder().Finish());
      (*merge)->builder().Keep();
    }
    const auto outcome = node.PushWork(laptop);
    ASSERT_OK(outcome);
    EXPECT_EQ(outcome->merge.kept_count(), 0);
    EXPECT_EQ(outcome->merge.removed(), 1);
    EXPECT_EQ(outcome->sent.bytes, 0);
    EXPECT_EQ(DigestOf(node.job.work), laptop.digest());
    TempDir to;
    for (int i = 0; i < 2; ++i) {
      const auto wire = node.ToSend();
      PullSubject subject;
      subject.job_id = "j-1";
      subject.path = "work";
      const auto pulled = PullTree(StreamOf(wire), subject, to.path(), Clock::Real(), {});
      ASSERT_OK(pulled);
      ASSERT_OK(MakeDirectories(to.Sub("got"), 0755));
      ASSERT_OK(MergePulled(*pulled->tree, to.Sub("got")));
      EXPECT_EQ(DigestOf(to.Sub("got")), laptop.digest());
    }
  });
}

}  // namespace
}  // namespace gpuctl
