// The process of a merge dies between any two operations that change the disk. The next merge knows
// which files of the work directory came from the laptop.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/every_nth.h"
#include "tests/support/work_merge_fixture.h"

namespace gpuctl {
namespace {

using ::testing::UnorderedElementsAre;

const bool kDeathsInMemory = UseMemoryFileSystem();

class WorkMergeDeathTest : public WorkMergeHalvesTest {
 protected:
  // Pushes the first version; then the job changes it.
  void Begin() {
    for (const char* path : {"changed", "undone", "removed", "re-added", "both/f", "job-removed",
                             "becomes-dir", "becomes-file/f", "job-changed", "same"}) {
      OnLaptop(path, "1");
    }
    OnLaptop("mode", "1", 0644);
    OnLaptop("large", std::string(static_cast<size_t>(kPartBytes) + 5, '1'));
    Sync();
    OnJob("job-changed", "job");
    OnJob("both/own", "job");
    ASSERT_OK(RemoveTree(Live("job-removed")));
  }
  // Makes the changes for the merge that dies.
  void EditOnce() {
    for (const char* path : {"changed", "undone", "both/f", "job-removed", "job-changed", "added",
                             "added-and-gone", "new/dir/f", "new/dir/gone"}) {
      OnLaptop(path, "22");
    }
    ASSERT_EQ(chmod(laptop_.dir.Sub("mode").c_str(), 0755), 0);
    OnLaptop("large", std::string(static_cast<size_t>(kPartBytes) + 5, '2'));
    for (const char* path : {"removed", "re-added", "becomes-dir", "becomes-file"}) {
      ASSERT_OK(RemoveTree(laptop_.dir.Sub(path)));
    }
    OnLaptop("becomes-dir/f", "22");
    OnLaptop("becomes-file", "22");
  }
  // Makes the laptop's changes before the next merge.
  void EditAgain() {
    for (const char* path :
         {"changed", "both/f", "re-added", "added", "new/dir/f", "becomes-dir/f", "becomes-file"}) {
      OnLaptop(path, "333");
    }
    OnLaptop("undone", "1");
    ASSERT_EQ(chmod(laptop_.dir.Sub("mode").c_str(), 0644), 0);
    OnLaptop("large", std::string(static_cast<size_t>(kPartBytes) + 5, '3'));
    for (const char* path : {"added-and-gone", "new/dir/gone"}) {
      ASSERT_OK(RemoveTree(laptop_.dir.Sub(path)));
    }
  }
  // Merges in a separate process, which dies instead of operation `n` of Apply. False when it
  // completed.
  bool MergeAndDie(int n) {
    laptop_.Scan();
    const pid_t pid = fork();
    if (pid == 0) {
      auto merge = WorkMerge::Plan(node_.job, "", laptop_.manifest, false);
      if (!merge.ok()) _exit(3);
      Fill(**merge, laptop_);
      int operation = 0;
      file_ops::SetFaultHook([&](file_ops::Op, const std::string&) -> int {
        if (operation++ == n) _exit(1);
        return 0;
      });
      _exit((*merge)->Apply().ok() ? 0 : 2);
    }
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) <= 1) << n << ": " << status;
    return WEXITSTATUS(status) == 1;
  }
  // Expects the laptop's files in the work directory, except the job's changes.
  void ExpectMerged(const std::map<std::string, std::string>& jobs,
                    const std::vector<std::string>& job_removed) {
    auto expected = Snapshot(laptop_.dir.path());
    for (const std::string& path : job_removed) expected.erase(path);
    for (const auto& [path, content] : jobs) expected[path] = content;
    const auto found = Snapshot(node_.job.work);
    for (const auto& [path, content] : expected) {
      EXPECT_TRUE(found.count(path) > 0 && found.at(path) == content) << path;
    }
    for (const auto& [path, content] : found) EXPECT_EQ(expected.count(path), 1u) << path;
  }
  // Expects that nothing is left of the dead merge.
  void ExpectNoTraces() {
    for (const char* name : {"work.intent", "work.intent.tmp", "work.base", "work.manifest.tmp"}) {
      EXPECT_FALSE(PathExists(JoinPath(node_.job.dir, name))) << name;
    }
  }
};

// A fixture for one death, because each death needs a new object.
class OneDeath : public WorkMergeDeathTest {
 public:
  void TestBody() override {}
  // Dies at `n` and perhaps again in the next merge. False when the first merge completed.
  bool Run(int n, int again) {
    Begin();
    EditOnce();
    if (!MergeAndDie(n)) return false;
    EditAgain();
    if (again >= 0) {
      (void)MergeAndDie(again);
      for (const char* path : {"changed", "added", "re-added"}) OnLaptop(path, "4444");
    }
    EXPECT_THAT(Kept(Sync()), UnorderedElementsAre("job-changed", "job-removed"));
    ExpectMerged({{"job-changed", "job"}, {"both/own", "job"}}, {"job-removed"});
    EXPECT_EQ(ModeOf("mode"), 0644u);
    ExpectNoTraces();
    // The base must be right, too.
    for (const char* path : {"changed", "same", "new/dir/f"}) OnLaptop(path, "5");
    EXPECT_THAT(Kept(Sync()), UnorderedElementsAre("job-changed", "job-removed"));
    ExpectMerged({{"job-changed", "job"}, {"both/own", "job"}}, {"job-removed"});
    return true;
  }
  bool RunAndUndo(int n) {
    Begin();
    const auto first = Snapshot(laptop_.dir.path());
    TempDir kept;
    EXPECT_OK(CopyTree(laptop_.dir.path(), kept.Sub("first"), laptop_.manifest));
    EditOnce();
    if (!MergeAndDie(n)) return false;
    // The laptop goes back to the base. Without the dead merge nothing would be sent.
    EXPECT_OK(RemoveTree(laptop_.dir.path()));
    EXPECT_EQ(rename(kept.Sub("first").c_str(), laptop_.dir.path().c_str()), 0);
    EXPECT_TRUE(first == Snapshot(laptop_.dir.path()));
    laptop_.Scan();
    const auto outcome = node_.PushWork(laptop_);
    EXPECT_OK(outcome);
    EXPECT_TRUE(outcome.ok() && outcome->merge.kept_count() == 0);
    ExpectMerged({{"job-changed", "job"}, {"both/own", "job"}}, {"job-removed"});
    EXPECT_EQ(ModeOf("mode"), 0644u);
    return true;
  }
};

TEST(WorkMergeDeath, FollowedByEditsOfTheSameFiles) {
  int n = 0;
  while (OneDeath().Run(n, -1)) {
    ASSERT_FALSE(testing::Test::HasFailure()) << n;
    n += EveryNth();
  }
  EXPECT_GT(n, 20);
}

TEST(WorkMergeDeath, FollowedByAnother) {
  for (int n = 6; n < 24; n += 5) {
    for (int again = 0; again < 24; again += 3 * EveryNth()) {
      OneDeath().Run(n, again);
      ASSERT_FALSE(testing::Test::HasFailure()) << n << " " << again;
    }
  }
}

TEST(WorkMergeDeath, FollowedByTheFirstVersionAgain) {
  int n = 0;
  while (OneDeath().RunAndUndo(n)) {
    ASSERT_FALSE(testing::Test::HasFailure()) << n;
    n += EveryNth();
  }
  EXPECT_GT(n, 20);
}

// The job's changes after the death are kept, also in files that the merge had touched.
TEST_F(WorkMergeDeathTest, WhatTheJobDoesAfterwardsIsKept) {
  Begin();
  EditOnce();
  int n = 0;
  while (There("changed") == "1") ASSERT_TRUE(MergeAndDie(n++));
  OnJob("changed", "the job's again");
  EditAgain();
  EXPECT_THAT(Kept(Sync()), UnorderedElementsAre("job-changed", "job-removed", "changed"));
  ExpectMerged({{"job-changed", "job"}, {"both/own", "job"}, {"changed", "the job's again"}},
               {"job-removed"});
}

}  // namespace
}  // namespace gpuctl
