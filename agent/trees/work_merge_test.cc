// Three-way merges as a whole: the changes of each side, and the result.
#include "agent/trees/work_merge.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/file_times.h"
#include "tests/support/work_merge_fixture.h"

namespace gpuctl {
namespace {

using gpuctl::v1::MergeReport;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

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

// Every combination of changes of a file on both sides: none, changed, removed, added, the same on
// both.
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
  // From here on the laptop's changes apply again.
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
  // The job changed it and made it executable, so file and mode are the job's.
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

TEST_F(WorkMergeTest, OverwriteReplacesNoSymlinkAndNoFifo) {
  OnJob("target", "job");
  OnJob("file", "job");
  for (const char* name : {"link", "link-too"}) {
    ASSERT_EQ(symlink("target", Live(name).c_str()), 0);
  }
  ASSERT_EQ(mkfifo(Live("fifo").c_str(), 0644), 0);
  for (const char* name : {"link", "fifo", "file"}) OnLaptop(name, "laptop");
  ASSERT_EQ(symlink("file", laptop_.dir.Sub("link-too").c_str()), 0);
  EXPECT_THAT(Kept(Sync(true)), UnorderedElementsAre("link", "fifo"));
  EXPECT_EQ(There("file"), "laptop");
  EXPECT_EQ(There("target"), "job");
  EXPECT_EQ(There("link"), "job");
  EXPECT_EQ(There("link-too"), "laptop");  // a symlink replaces a symlink
  struct stat info {};
  EXPECT_TRUE(lstat(Live("fifo").c_str(), &info) == 0 && S_ISFIFO(info.st_mode));
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
  // The base of the whole directory is unchanged.
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

// Changes of the laptop alone apply, also when a directory becomes a file.
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
  // A directory with something of the job's stays.
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
  EXPECT_GT(sent_, 0);
  EXPECT_LE(sent_, 128 << 10) << "more than the chunks around the change";
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

// Pushes the laptop's files. What `stays` names is not sent any more, and stays with the job.
absl::StatusOr<PushOutcome> PushLess(Laptop& laptop, const Node& node,
                                     const std::set<std::string>& stays) {
  ScanOptions options;
  options.skip = [&](const std::string& path, const struct stat&) { return stays.count(path) > 0; };
  laptop.manifest = ScanTree(laptop.dir.path(), options).value();
  PushTarget target;
  target.job_id = "j-1";
  target.stays = [&](const std::string& path, bool is_directory) {
    EXPECT_EQ(is_directory, path == "data" || path == "data/deep" || path == "empty") << path;
    return stays.count(path.substr(0, path.find('/'))) > 0;
  };
  return node.Push(laptop, target);
}

TEST_F(WorkMergeTest, WhatIsNotSentAnyMoreStays) {
  OnLaptop("a", "1");
  OnLaptop("b", "1");
  OnLaptop("data/x", "1");
  OnLaptop("data/deep/y", "1");
  ASSERT_OK(MakeDirectories(laptop_.dir.Sub("empty"), 0755));
  Sync();
  OnJob("data/x", "job");
  ASSERT_OK(RemoveTree(laptop_.dir.Sub("b")));
  for (int round = 0; round < 2; ++round) {  // it stays known
    OnLaptop("a", absl::StrCat(round));
    const auto outcome = PushLess(laptop_, node_, {"data", "empty"});
    ASSERT_OK(outcome);
    EXPECT_TRUE(Kept(outcome->merge).empty());
    EXPECT_EQ(outcome->merge.removed(), round == 0 ? 1 : 0);
    EXPECT_EQ(There("b"), "(none)");
    EXPECT_EQ(There("data/x"), "job");
    EXPECT_EQ(There("data/deep/y"), "1");
    EXPECT_TRUE(IsDirectory(Live("empty")));
  }
  // Sent again, it is compared with what was sent at first.
  OnLaptop("data/x", "2");
  OnLaptop("data/deep/y", "2");
  EXPECT_THAT(Kept(Sync()), testing::ElementsAre("data/x"));
  EXPECT_EQ(There("data/deep/y"), "2");
  // An older client does not answer; then all that it lacks is removed.
  ASSERT_OK(RemoveTree(laptop_.dir.Sub("data/deep")));
  EXPECT_EQ(Sync().removed(), 1);
}

TEST_F(WorkMergeTest, ManyNamesThatStayAndGo) {
  constexpr int kFiles = 20'000;
  const std::string name(60, 'n');
  for (int i = 0; i < kFiles; ++i) OnLaptop(absl::StrCat(name, i), "");
  Sync();
  for (int i = 0; i < kFiles; ++i)
    ASSERT_EQ(unlink(laptop_.dir.Sub(absl::StrCat(name, i)).c_str()), 0);
  laptop_.Scan();
  PushTarget target;
  target.job_id = "j-1";
  target.stays = [](const std::string& path, bool) { return path.back() % 2 == 0; };
  const auto outcome = node_.Push(laptop_, target);
  ASSERT_OK(outcome);
  EXPECT_EQ(outcome->merge.removed(), kFiles / 2);
  EXPECT_TRUE(PathExists(Live(absl::StrCat(name, 12'344))));
  EXPECT_FALSE(PathExists(Live(absl::StrCat(name, 12'345))));
}

// The job writes to a large file right after it came, and sets its time back.
TEST_F(WorkMergeTest, AWriteDuringASyncWithTheTimeSetBackIsKept) {
  OnLaptop("large", RandomBytes(static_cast<size_t>(kPartBytes) + 100, 1));
  bool written = false;
  file_ops::SetFaultHook([&](file_ops::Op op, const std::string&) {
    struct stat info {};
    if (op != file_ops::Op::kSync || written || stat(Live("large").c_str(), &info) != 0) return 0;
    written = true;
    const UniqueFd fd(open(Live("large").c_str(), O_WRONLY | O_CLOEXEC));
    EXPECT_EQ(pwrite(fd.get(), "job's", 5, 50), 5);
    EXPECT_EQ(futimens(fd.get(), TimesOf(info).data()), 0);
    return 0;
  });
  Sync();
  file_ops::SetFaultHook(nullptr);
  ASSERT_TRUE(written);
  OnLaptop("large", RandomBytes(static_cast<size_t>(kPartBytes) + 100, 2));
  EXPECT_THAT(Kept(Sync()), ElementsAre("large"));
  EXPECT_EQ(There("large").substr(50, 5), "job's");
}

}  // namespace
}  // namespace gpuctl
