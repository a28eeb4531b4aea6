#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>
#include <string>

#include "agent/store/stored_files.h"
#include "agent/store/tree_store.h"
#include "agent/store/tree_trust.h"
#include "tests/support/file_times.h"
#include "tests/support/readings.h"
#include "tests/support/transfer_fixture.h"

namespace gpuctl {
namespace {

// Writes one byte and sets the mtime back, as `touch -d` does.
void WriteAndSetTimeBack(const std::string& path, off_t at = 5) {
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_EQ(pwrite(fd.get(), "!", 1, at), 1);
  ASSERT_EQ(futimens(fd.get(), TimesOf(info).data()), 0);
  const time_t before = info.st_mtime;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  ASSERT_EQ(info.st_mtime, before);
}

// A stored tree with two files.
class GiveTest : public testing::Test {
 protected:
  GiveTest() {
    laptop_.dir.Write("a", std::string(100'000, 'a'), 0444);
    laptop_.dir.Write("sub/b", std::string(200'000, 'b'), 0444);
    laptop_.Scan();
    EXPECT_OK(node_.Push(laptop_));
    digest_ = laptop_.digest();
  }
  std::string Stored(const std::string& name) const {
    return JoinPath(JoinPath(node_.trees, digest_), name);
  }
  std::string Job(const std::string& name) const { return node_.dir.Sub(name); }
  static ino_t InodeOf(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
    return info.st_ino;
  }
  // Gives the tree as to root where files cannot share blocks. `lent_` are the other jobs' files.
  absl::Status Give(const std::string& to) {
    GiveOptions options;
    options.may_clone = false;
    options.lent = [this] { return lent_; };
    options.note = Job("note");
    return GiveStoredTree(node_.trees, digest_, Job(to), Job(to + ".manifest"), options);
  }
  absl::Status GiveWhereModesBind(const std::string& to) {
    GiveOptions options;
    options.may_clone = false;
    options.modes_bind = true;
    return GiveStoredTree(node_.trees, digest_, Job(to), "", options);
  }
  // True when the work reads so many of the two stored files.
  testing::AssertionResult Reads(int count, const std::function<absl::Status()>& work) {
    const Readings readings({Stored("a"), Stored("sub/b")});
    EXPECT_OK(work());
    return readings.Were(count);
  }

  Laptop laptop_;
  Node node_;
  std::string digest_;
  std::set<uint64_t> lent_;
};

TEST_F(GiveTest, AWriteWithTheTimeSetBackReachesNobodyLater) {
  ASSERT_OK(LinkStoredTree(node_.trees, digest_, Job("first")));
  ASSERT_EQ(InodeOf(Job("first/a")), InodeOf(Stored("a")));
  WriteAndSetTimeBack(Job("first/a"));
  // Not another tree with that content,
  Laptop other;
  other.dir.Write("same", std::string(100'000, 'a'), 0444);
  other.dir.Write("own", "own");
  other.Scan();
  ASSERT_OK(node_.Push(other));
  node_.ExpectWhole(other.digest());
  // and no later job: the tree is pushed again, but only what is wrong.
  EXPECT_THAT(Give("third"), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_FALSE(PathExists(Job("third")));
  EXPECT_FALSE(HasStoredTree(node_.trees, digest_));
  ASSERT_OK(RemoveTree(JoinPath(node_.trees, other.digest())));
  const auto outcome = node_.Push(laptop_);
  ASSERT_OK(outcome);
  EXPECT_EQ(outcome->sent.bytes, 100'000);
  ASSERT_OK(Give("third"));
  EXPECT_EQ(DigestOf(Job("third")), digest_);
  node_.ExpectWhole(digest_);
}

// A push links content of another tree. What a job writes to it until the push ends is found.
TEST_F(GiveTest, AWriteWithTheTimeSetBackDuringAPushIsFound) {
  ASSERT_OK(LinkStoredTree(node_.trees, digest_, Job("first")));
  Laptop other;
  other.dir.Write("same", std::string(100'000, 'a'), 0444);
  other.dir.Write("own", "own");
  other.Scan();
  bool written = false;
  file_ops::SetFaultHook([&](file_ops::Op op, const std::string&) {
    if (op == file_ops::Op::kSync && !written) {
      written = true;
      WriteAndSetTimeBack(Job("first/a"));
    }
    return 0;
  });
  const auto outcome = node_.Push(other);
  file_ops::SetFaultHook(nullptr);
  ASSERT_TRUE(written);
  EXPECT_FALSE(outcome.ok());
  EXPECT_FALSE(HasStoredTree(node_.trees, other.digest()));
  ASSERT_OK(node_.Push(other));
  node_.ExpectWhole(other.digest());
}

TEST_F(GiveTest, OneJobHasLinksAndTheOthersCopies) {
  ASSERT_OK(Give("a"));
  EXPECT_EQ(InodeOf(Job("a/a")), InodeOf(Stored("a")));
  EXPECT_EQ(Sha256HexOf(ReadFileToString(Job("a.manifest")).value()), digest_);
  const std::string note = ReadFileToString(Job("note")).value();
  ASSERT_EQ(note.size(), 2 * sizeof(uint64_t));
  for (size_t at = 0; at < note.size(); at += sizeof(uint64_t)) {
    uint64_t inode = 0;
    memcpy(&inode, note.data() + at, sizeof(inode));
    lent_.insert(inode);
  }
  EXPECT_EQ(lent_, (std::set<uint64_t>{InodeOf(Job("a/a")), InodeOf(Job("a/sub/b"))}));
  ASSERT_OK(Give("b"));
  WriteAndSetTimeBack(Job("a/a"));
  EXPECT_EQ(DigestOf(Job("b")), digest_);
  struct stat info {};
  ASSERT_EQ(stat(Job("b/a").c_str(), &info), 0);
  EXPECT_EQ(info.st_nlink, 1u);
  EXPECT_EQ(info.st_mode & 0777, 0444u);
  EXPECT_EQ(ReadFileToString(Job("note"))->size(), note.size()) << "a copy is nobody's";
}

// A job's own paths with the same content are no single file either.
TEST_F(GiveTest, SameContentTwiceIsNotOneFile) {
  Laptop twice;
  twice.dir.Write("one", std::string(100'000, 'a'), 0444);
  twice.dir.Write("two", std::string(100'000, 'a'), 0444);
  twice.Scan();
  ASSERT_OK(node_.Push(twice));
  digest_ = twice.digest();
  ASSERT_EQ(InodeOf(Stored("one")), InodeOf(Stored("two")));
  ASSERT_OK(Give("job"));
  EXPECT_NE(InodeOf(Job("job/one")), InodeOf(Job("job/two")));
  EXPECT_EQ(DigestOf(Job("job")), digest_);
}

TEST_F(GiveTest, WhereModesBindReadOnlyFilesAreLinkedForAll) {
  ASSERT_OK(GiveWhereModesBind("a"));
  ASSERT_OK(GiveWhereModesBind("b"));
  EXPECT_EQ(InodeOf(Job("a/a")), InodeOf(Stored("a")));
  EXPECT_EQ(InodeOf(Job("b/a")), InodeOf(Stored("a")));
  Laptop writable;
  writable.dir.Write("w", "writable", 0644);
  writable.Scan();
  ASSERT_OK(node_.Push(writable));
  digest_ = writable.digest();
  ASSERT_OK(GiveWhereModesBind("c"));
  EXPECT_NE(InodeOf(Job("c/w")), InodeOf(Stored("w")));
}

// Only what may have been written to is read.
TEST_F(GiveTest, AnUnchangedTreeIsNotRead) {
  EXPECT_TRUE(Reads(0, [&] { return GiveWhereModesBind("a"); }));
  EXPECT_TRUE(Reads(0, [&] { return GiveWhereModesBind("b"); }));
  EXPECT_TRUE(Reads(0, [&] { return Give("c"); }));
  WriteAndSetTimeBack(Job("c/a"), 100);
  {
    const UniqueFd fd(open(Job("c/a").c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(pwrite(fd.get(), "a", 1, 100), 1);  // as it was
  }
  EXPECT_TRUE(Reads(1, [&] { return Give("d"); }));
  EXPECT_TRUE(Reads(0, [&] { return Give("e"); }));
  EXPECT_EQ(DigestOf(Job("e")), digest_);
}

// Without a record, as after an older agent or a loss of power, a tree is read once.
TEST_F(GiveTest, ATreeWithoutARecordIsReadOnce) {
  for (const std::string& record : {std::string(), std::string("torn")}) {
    if (record.empty()) {
      ASSERT_OK(RemoveTree(KnownPath(node_.trees, digest_)));
    } else {
      ASSERT_OK(WriteFileAtomic(KnownPath(node_.trees, digest_), record));
    }
    EXPECT_TRUE(Reads(2, [&] { return Give("a" + record); }));
    EXPECT_TRUE(Reads(0, [&] { return Give("b" + record); }));
  }
  WriteAndSetTimeBack(Job("a/sub/b"));
  ASSERT_OK(RemoveTree(KnownPath(node_.trees, digest_)));
  EXPECT_THAT(Give("c"), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(GiveTest, TakingBackSparesTheNextReading) {
  ASSERT_OK(Give("job"));
  {
    const UniqueFd fd(open(Job("job").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    TakeBackStoredTree(node_.trees, digest_, fd.get());
  }
  EXPECT_FALSE(PathExists(Job("job/a")));
  EXPECT_FALSE(PathExists(Job("job/sub/b")));
  EXPECT_TRUE(Reads(0, [&] { return Give("next"); }));
  // What a job wrote to is not forgiven.
  WriteAndSetTimeBack(Job("next/a"));
  {
    const UniqueFd fd(open(Job("next").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    TakeBackStoredTree(node_.trees, digest_, fd.get());
  }
  ASSERT_OK(RemoveTree(Job("next")));
  EXPECT_THAT(Give("last"), StatusIs(absl::StatusCode::kDataLoss));
}

// The record is a tree's own and goes with it.
TEST_F(GiveTest, ASweepRemovesTheRecords) {
  EXPECT_TRUE(PathExists(KnownPath(node_.trees, digest_)));
  ASSERT_OK(WriteFileAtomic(KnownPath(node_.trees, std::string(64, 'a')), "of no tree"));
  SweepOptions options;
  options.now_s = 4'000'000'000;
  ASSERT_OK(SweepTreeStore(node_.trees, options).status());
  const std::vector<std::string> names = ListDirectory(node_.trees).value();
  for (const std::string& name : names) {
    EXPECT_FALSE(absl::StartsWith(name, kKnownPrefix)) << name;
  }
}

// A job that writes while its files are copied for another one.
TEST_F(GiveTest, AWriteWhileFilesAreCopiedIsFound) {
  ASSERT_OK(Give("a"));
  lent_ = {InodeOf(Stored("a")), InodeOf(Stored("sub/b"))};
  bool written = false;
  file_ops::SetFaultHook([&](file_ops::Op op, const std::string& path) {
    if (op == file_ops::Op::kWrite && path == "a" && !written) {
      written = true;
      WriteAndSetTimeBack(Job("a/a"));
    }
    return 0;
  });
  const absl::Status status = Give("b");
  file_ops::SetFaultHook(nullptr);
  ASSERT_TRUE(written);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_FALSE(PathExists(Job("b")));
  ASSERT_OK(node_.Push(laptop_));
  ASSERT_OK(Give("b"));
  EXPECT_EQ(DigestOf(Job("b")), digest_);
}

// A file that is copied from somewhere while a job writes to it and sets its time back.
TEST(TakeFrom, WhatIsWrittenToMeanwhileIsNotTaken) {
  TempDir live;
  live.Write("f", std::string(100'000, 'f'));
  const Manifest manifest = ScanTree(live.path()).value();
  TempDir parent;
  const auto builder = TreeBuilder::Begin(parent.path(), manifest);
  ASSERT_OK(builder);
  bool written = false;
  file_ops::SetFaultHook([&](file_ops::Op op, const std::string& path) {
    if (op == file_ops::Op::kWrite && path == "f" && !written) {
      written = true;
      WriteAndSetTimeBack(live.Sub("f"));
    }
    return 0;
  });
  const UniqueFd fd(open(live.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const absl::Status status = (*builder)->TakeFrom(fd.get(), manifest, Reuse::kCopy, false);
  file_ops::SetFaultHook(nullptr);
  ASSERT_OK(status);
  ASSERT_TRUE(written);
  EXPECT_TRUE((*builder)->missing().Has(0));
}

}  // namespace
}  // namespace gpuctl
