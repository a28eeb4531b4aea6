#include "agent/work_merge.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

#include "tests/transfer_fixture.h"

namespace gpuctl {
namespace {

using gpuctl::v1::MergeReport;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

std::vector<std::string> Kept(const MergeReport& report) {
  EXPECT_EQ(report.kept_count(), report.kept_size());
  return {report.kept().begin(), report.kept().end()};
}

// A laptop and a job whose work directory came from it.
class WorkMergeTest : public testing::Test {
 protected:
  WorkMergeTest() { EXPECT_OK(MakeDirectories(node_.job.work, 0755)); }

  void OnLaptop(const std::string& path, absl::string_view content, mode_t mode = 0644) {
    laptop_.dir.Write(path, content, mode);
  }
  void OnJob(const std::string& path, absl::string_view content, mode_t mode = 0644) {
    node_.dir.Write(absl::StrCat("root/jobs/j-1/work/", path), content, mode);
  }
  std::string Live(const std::string& path) const { return JoinPath(node_.job.work, path); }
  std::string There(const std::string& path) const {
    return ReadFileToString(Live(path)).value_or("(none)");
  }
  mode_t ModeOf(const std::string& path) const {
    struct stat info {};
    return lstat(Live(path).c_str(), &info) == 0 ? info.st_mode & 0777 : 0;
  }

  MergeReport Sync(bool overwrite = false, const std::string& into = "") {
    laptop_.Scan();
    const auto outcome = node_.PushWork(laptop_, overwrite, into);
    EXPECT_OK(outcome);
    if (!outcome.ok()) return {};
    sent_ = outcome->sent.bytes;
    EXPECT_TRUE(Node::Names(node_.job.dir, true).empty());
    return outcome->merge;
  }
  void ExpectSame() const {
    EXPECT_TRUE(Snapshot(node_.job.work) == Snapshot(laptop_.dir.path()));
    EXPECT_EQ(DigestOf(node_.job.work), laptop_.digest());
  }

  Laptop laptop_;
  Node node_;
  int64_t sent_ = 0;  // content bytes of the last Sync
};

TEST_F(WorkMergeTest, BringsATreeAndLaterItsChanges) {
  OnLaptop("a", "1");
  OnLaptop("d/b", "1", 0755);
  OnLaptop("gone/deep/f", "1");
  OnLaptop("gone/f", "1");
  ASSERT_OK(MakeDirectories(laptop_.dir.Sub("void"), 0750));
  ASSERT_EQ(symlink("d/b", laptop_.dir.Sub("link").c_str()), 0);
  MergeReport report = Sync();
  EXPECT_EQ(report.written(), 5);
  EXPECT_EQ(report.removed(), 0);
  EXPECT_THAT(Kept(report), IsEmpty());
  ExpectSame();

  OnLaptop("a", "2");
  OnLaptop("d/new/f", "2");
  ASSERT_OK(RemoveTree(laptop_.dir.Sub("gone")));
  ASSERT_OK(RemoveTree(laptop_.dir.Sub("void")));
  ASSERT_OK(RemoveTree(laptop_.dir.Sub("link")));
  ASSERT_EQ(symlink("a", laptop_.dir.Sub("link").c_str()), 0);
  report = Sync();
  EXPECT_EQ(report.written(), 3);
  EXPECT_EQ(report.removed(), 2);
  EXPECT_THAT(Kept(report), IsEmpty());
  EXPECT_EQ(sent_, 2);
  ExpectSame();

  report = Sync();  // nothing to do
  EXPECT_EQ(report.written() + report.removed() + report.kept_count(), 0);
}

// Every combination of what the two sides did to a file: not touched, changed, removed, added, the
// same on both.
TEST_F(WorkMergeTest, IsThreeWay) {
  for (const char* path :
       {"l-changed", "l-removed", "j-changed", "j-removed", "both-changed", "both-same",
        "both-removed", "l-changed-j-removed", "l-removed-j-changed", "untouched"}) {
    OnLaptop(path, "base");
  }
  Sync();
  OnLaptop("l-changed", "laptop");
  OnLaptop("l-added", "laptop");
  OnLaptop("both-changed", "laptop");
  OnLaptop("both-same", "equal");
  OnLaptop("both-added-same", "equal");
  OnLaptop("both-added", "laptop");
  OnLaptop("l-changed-j-removed", "laptop");
  for (const char* path : {"l-removed", "both-removed", "l-removed-j-changed"}) {
    ASSERT_OK(RemoveTree(laptop_.dir.Sub(path)));
  }
  OnJob("j-changed", "job");
  OnJob("j-added", "job");
  OnJob("both-changed", "job");
  OnJob("both-same", "equal");
  OnJob("both-added-same", "equal");
  OnJob("both-added", "job");
  OnJob("l-removed-j-changed", "job");
  for (const char* path : {"j-removed", "both-removed", "l-changed-j-removed"}) {
    ASSERT_OK(RemoveTree(Live(path)));
  }
  const MergeReport report = Sync();
  EXPECT_THAT(Kept(report), UnorderedElementsAre("both-changed", "both-added",
                                                 "l-changed-j-removed", "l-removed-j-changed"));
  EXPECT_EQ(report.written(), 2);  // l-changed, l-added
  EXPECT_EQ(report.removed(), 1);
  const std::map<std::string, std::string> expected = {
      {"untouched", "base"},         {"l-changed", "laptop"}, {"l-added", "laptop"},
      {"j-changed", "job"},          {"j-added", "job"},      {"both-changed", "job"},
      {"both-same", "equal"},        {"both-added", "job"},   {"both-added-same", "equal"},
      {"l-removed-j-changed", "job"}};
  EXPECT_EQ(Snapshot(node_.job.work), expected);
}

TEST_F(WorkMergeTest, WhatWasKeptIsNamedAgainUntilItIsTheSame) {
  OnLaptop("f", "1");
  OnLaptop("removed", "1");
  Sync();
  OnJob("f", "job");
  OnJob("new", "job");
  ASSERT_OK(RemoveTree(Live("removed")));
  OnLaptop("f", "2");
  OnLaptop("new", "2");
  OnLaptop("removed", "2");
  for (int i = 0; i < 3; ++i) {
    OnLaptop("other", absl::StrCat(i));
    EXPECT_THAT(Kept(Sync()), ElementsAre("f", "new", "removed")) << i;
    EXPECT_EQ(There("other"), absl::StrCat(i));
  }
  OnLaptop("f", "job");
  OnLaptop("new", "job");
  ASSERT_OK(RemoveTree(laptop_.dir.Sub("removed")));
  EXPECT_THAT(Kept(Sync()), IsEmpty());
  ExpectSame();
  // From here on the laptop's changes go through again.
  OnLaptop("f", "3");
  OnLaptop("new", "3");
  EXPECT_THAT(Kept(Sync()), IsEmpty());
  ExpectSame();
}

TEST_F(WorkMergeTest, ModesAlone) {
  OnLaptop("f", std::string(300'000, 'f'), 0644);
  OnLaptop("d/f", "f");
  Sync();
  ASSERT_EQ(chmod(laptop_.dir.Sub("f").c_str(), 0755), 0);
  ASSERT_EQ(chmod(laptop_.dir.Sub("d").c_str(), 0700), 0);
  const MergeReport report = Sync();
  EXPECT_EQ(sent_, 0);
  EXPECT_THAT(Kept(report), IsEmpty());
  EXPECT_EQ(ModeOf("f"), 0755u);
  EXPECT_EQ(ModeOf("d"), 0700u);
  ExpectSame();
  // The job made it executable and changed it: its file, its mode.
  OnJob("f", "job", 0711);
  ASSERT_EQ(chmod(laptop_.dir.Sub("f").c_str(), 0600), 0);
  EXPECT_THAT(Kept(Sync()), ElementsAre("f"));
  EXPECT_EQ(ModeOf("f"), 0711u);
}

TEST_F(WorkMergeTest, OverwriteTakesTheLaptopsAndRemovesNothing) {
  OnLaptop("changed", "1");
  OnLaptop("removed", "1");
  OnLaptop("gone", "1");
  Sync();
  OnJob("changed", "job");
  OnJob("own", "job");
  ASSERT_OK(RemoveTree(Live("removed")));
  ASSERT_OK(RemoveTree(laptop_.dir.Sub("gone")));
  EXPECT_THAT(Kept(Sync(true)), IsEmpty());
  EXPECT_EQ(There("changed"), "1");
  EXPECT_EQ(There("removed"), "1");
  EXPECT_EQ(There("own"), "job");
  EXPECT_EQ(There("gone"), "1");
}

TEST_F(WorkMergeTest, IntoASubdirectoryNothingElseIsTouched) {
  OnLaptop("f", "1");
  OnLaptop("d/g", "1");
  Sync();
  Laptop other;
  other.dir.Write("f", "other");
  other.dir.Write("h", "other");
  other.Scan();
  OnJob("sub/dir/f", "job");
  OnJob("sub/own", "job");
  auto outcome = node_.PushWork(other, false, "sub/dir");
  ASSERT_OK(outcome);
  EXPECT_THAT(Kept(outcome->merge), ElementsAre("f"));
  EXPECT_EQ(There("sub/dir/f"), "job");
  EXPECT_EQ(There("sub/dir/h"), "other");
  outcome = node_.PushWork(other, true, "sub/dir");
  ASSERT_OK(outcome);
  EXPECT_THAT(Kept(outcome->merge), IsEmpty());
  EXPECT_EQ(There("sub/dir/f"), "other");
  EXPECT_EQ(There("sub/own"), "job");
  EXPECT_EQ(There("f"), "1");
  // The base of the whole directory is what it was.
  OnLaptop("f", "2");
  EXPECT_THAT(Kept(Sync()), IsEmpty());
  EXPECT_EQ(There("f"), "2");
  EXPECT_EQ(There("sub/dir/h"), "other");
}

TEST_F(WorkMergeTest, WhereKindsDifferTheJobsIsKept) {
  OnLaptop("file", "1");
  OnLaptop("dir/f", "1");
  OnLaptop("dir2/f", "1");
  OnLaptop("linked/f", "1");
  Sync();
  TempDir outside;
  outside.Write("f", "outside");
  ASSERT_OK(RemoveTree(Live("file")));
  OnJob("file/inner", "job");
  ASSERT_OK(RemoveTree(Live("dir")));
  OnJob("dir", "job");
  ASSERT_OK(RemoveTree(Live("dir2")));
  OnJob("dir2", "job");
  ASSERT_OK(RemoveTree(Live("linked")));
  ASSERT_EQ(symlink(outside.path().c_str(), Live("linked").c_str()), 0);
  OnJob("fresh", "job");
  OnLaptop("file", "2");
  OnLaptop("dir/f", "2");
  OnLaptop("dir/g", "2");
  OnLaptop("linked/f", "2");
  OnLaptop("linked/g", "2");
  OnLaptop("fresh/f", "2");
  ASSERT_OK(RemoveTree(laptop_.dir.Sub("dir2")));
  for (const bool overwrite : {false, false, true}) {
    const MergeReport report = Sync(overwrite);
    const auto kept = Kept(report);
    for (const char* path :
         {"dir/f", "dir/g", "file", "fresh", "fresh/f", "linked/f", "linked/g"}) {
      EXPECT_THAT(kept, testing::Contains(path)) << overwrite;
    }
    EXPECT_EQ(There("file/inner"), "job");
    EXPECT_EQ(There("dir"), "job");
    EXPECT_EQ(There("dir2"), "job");
    EXPECT_EQ(There("fresh"), "job");
    EXPECT_EQ(outside.Names(), std::vector<std::string>{"f"});
    EXPECT_EQ(ReadFileToString(outside.Sub("f")).value(), "outside");
  }
}

// What only the laptop changed goes through, also where a directory becomes a file.
TEST_F(WorkMergeTest, TheLaptopMayChangeKinds) {
  OnLaptop("becomes-dir", "1");
  OnLaptop("becomes-file/deep/f", "1");
  OnLaptop("becomes-link/f", "1");
  ASSERT_EQ(symlink("x", laptop_.dir.Sub("link-to-dir").c_str()), 0);
  OnLaptop("busy/f", "1");
  Sync();
  for (const char* path : {"becomes-dir", "becomes-file", "becomes-link", "link-to-dir", "busy"}) {
    ASSERT_OK(RemoveTree(laptop_.dir.Sub(path)));
  }
  OnLaptop("becomes-dir/deep/f", "2");
  OnLaptop("becomes-file", "2");
  ASSERT_EQ(symlink("becomes-file", laptop_.dir.Sub("becomes-link").c_str()), 0);
  OnLaptop("link-to-dir/f", "2");
  EXPECT_THAT(Kept(Sync()), IsEmpty());
  ExpectSame();
  // With something of the job's in it a directory stays.
  OnLaptop("becomes-dir/f", "2");
  Sync();
  OnJob("becomes-dir/own", "job");
  ASSERT_OK(RemoveTree(laptop_.dir.Sub("becomes-dir")));
  OnLaptop("becomes-dir", "3");
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(Kept(Sync()), ElementsAre("becomes-dir"));
    EXPECT_EQ(There("becomes-dir/own"), "job");
  }
  ASSERT_OK(RemoveTree(Live("becomes-dir/own")));
  EXPECT_THAT(Kept(Sync()), IsEmpty());
  ExpectSame();
}

TEST_F(WorkMergeTest, OfALargeFileOnlyTheChangedPartIsSent) {
  std::string content = RandomBytes(3 * static_cast<size_t>(kPartBytes) + 50, 1);
  OnLaptop("large", content);
  Sync();
  EXPECT_EQ(sent_, 3 * kPartBytes + 50);
  content[static_cast<size_t>(kPartBytes)] ^= 1;
  OnLaptop("large", content);
  Sync();
  EXPECT_EQ(sent_, kPartBytes);
  ExpectSame();
}

TEST_F(WorkMergeTest, ReadOnlyFilesAndDirectoriesAreReplacedToo) {
  OnLaptop("ro/f", "1", 0444);
  ASSERT_EQ(chmod(laptop_.dir.Sub("ro").c_str(), 0555), 0);
  Sync();
  ExpectSame();
  ASSERT_EQ(chmod(laptop_.dir.Sub("ro").c_str(), 0755), 0);
  OnLaptop("ro/f", "2", 0444);
  OnLaptop("ro/g", "2", 0444);
  ASSERT_EQ(chmod(laptop_.dir.Sub("ro").c_str(), 0555), 0);
  EXPECT_THAT(Kept(Sync()), IsEmpty());
  ExpectSame();
}

// Modes mean nothing to root, who runs tests in containers.
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
      // An earlier try that was finished but not applied leaves such directories behind.
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

// From here on the two halves of a merge by themselves.
class WorkMergeHalvesTest : public WorkMergeTest {
 protected:
  absl::StatusOr<std::unique_ptr<WorkMerge>> Plan() {
    laptop_.Scan();
    return WorkMerge::Plan(node_.job, "", laptop_.manifest, false);
  }
  // Brings the content from the laptop's directory.
  static void Fill(WorkMerge& merge, const Laptop& laptop) {
    const UniqueFd fd(file_ops::Open(laptop.dir.path(), O_RDONLY | O_DIRECTORY));
    ASSERT_OK(merge.builder().TakeSamePaths(fd.get()));
    ASSERT_OK(merge.builder().Finish());
  }
};

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
  EXPECT_EQ(sent_, 0);  // all of it was there already
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

}  // namespace
}  // namespace gpuctl
