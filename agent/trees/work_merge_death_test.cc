// A merge whose process dies between any two of the operations that change the disk: the next one
// knows what of the work directory came from the laptop.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/work_merge_fixture.h"

namespace gpuctl {
namespace {

using ::testing::UnorderedElementsAre;

const bool kDeathsInMemory = UseMemoryFileSystem();

class WorkMergeDeathTest : public WorkMergeHalvesTest {
 protected:
  // The first version, in the job's directory, and what the job does to it.
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
  // What the merge is to bring that dies.
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
  // What happens at home before the next one.
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
  // Merges in a process of its own, which dies instead of its operation `n` from Apply on. False
  // when it got through.
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
  // The work directory is the laptop's, but for what the job did.
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
  // Nothing is left of the merge that died.
  void ExpectNoTraces() {
    for (const char* name : {"work.intent", "work.intent.tmp", "work.base", "work.manifest.tmp"}) {
      EXPECT_FALSE(PathExists(JoinPath(node_.job.dir, name))) << name;
    }
  }
};

// A fixture for each death: a test object is made once.
class OneDeath : public WorkMergeDeathTest {
 public:
  void TestBody() override {}
  // Dies at `n` and perhaps once more in the merge after it. False when the first got through.
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
    // The base is right as well.
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
    // Back to what the base says: nothing would have to be sent, were it not for what died.
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
    ++n;
  }
  EXPECT_GT(n, 20);
}

TEST(WorkMergeDeath, FollowedByAnother) {
  for (int n = 6; n < 24; n += 5) {
    for (int again = 0; again < 24; again += 3) {
      OneDeath().Run(n, again);
      ASSERT_FALSE(testing::Test::HasFailure()) << n << " " << again;
    }
  }
}

TEST(WorkMergeDeath, FollowedByTheFirstVersionAgain) {
  int n = 0;
  while (OneDeath().RunAndUndo(n)) {
    ASSERT_FALSE(testing::Test::HasFailure()) << n;
    ++n;
  }
  EXPECT_GT(n, 20);
}

// What the job does after the merge died is its own, also to files that the merge had touched.
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
