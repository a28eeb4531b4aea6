#include "agent/store/tree_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <functional>
#include <thread>

#include "common/files/sha256.h"
#include "tests/support/transfer_fixture.h"

namespace gpuctl {
namespace {

TEST(CopyStoredTree, SaysWhenItIsNotThereOrNotWhole) {
  Laptop laptop;
  laptop.dir.Write("big", std::string(500'000, 'b'));
  laptop.dir.Write("src/main.py", "print()");
  laptop.Scan();
  const std::string digest = laptop.digest();
  Node node;
  ASSERT_OK(MakeDirectories(node.trees));
  TempDir work;
  const std::string to = work.Sub("work");
  EXPECT_THAT(CopyStoredTree(node.trees, digest, to), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(CopyStoredTree(node.trees, "../trees", to), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK(node.Push(laptop));
  const std::string manifest = absl::StrCat(JoinPath(node.trees, digest), ".manifest");
  const std::string bytes = ReadFileToString(manifest).value();
  ASSERT_OK(WriteFileAtomic(manifest, bytes.substr(0, bytes.size() - 1)));
  EXPECT_THAT(CopyStoredTree(node.trees, digest, to), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(CopyStoredTree(node.trees, digest, to), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK(node.Push(laptop));  // heals it
  ASSERT_OK(RemoveTree(manifest));
  EXPECT_THAT(CopyStoredTree(node.trees, digest, to), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK(node.Push(laptop));
  node.ExpectWhole(digest);
  const std::string stored = JoinPath(node.trees, digest);
  for (int damage = 0; damage < 4; ++damage) {
    switch (damage) {
      case 0:
        ASSERT_EQ(truncate(JoinPath(stored, "big").c_str(), 5), 0);
        break;
      case 1:
        ASSERT_OK(RemoveTree(JoinPath(stored, "big")));
        break;
      case 2:
        ASSERT_OK(RemoveTree(JoinPath(stored, "src")));
        break;
      default:
        ASSERT_OK(RemoveTree(JoinPath(stored, "src/main.py")));
        ASSERT_EQ(symlink("/etc/passwd", JoinPath(stored, "src/main.py").c_str()), 0);
    }
    EXPECT_THAT(CopyStoredTree(node.trees, digest, to), StatusIs(absl::StatusCode::kDataLoss));
    EXPECT_TRUE(work.Names().empty());
    EXPECT_FALSE(HasStoredTree(node.trees, digest));
    ASSERT_OK(node.Push(laptop)) << damage;
    node.ExpectWhole(digest);
  }
}

// Trees with one large file each, and one file that all share.
class StoreTest : public testing::Test {
 protected:
  std::string Store(const std::string& name, size_t size = 1'000'000) {
    Laptop laptop;
    laptop.dir.Write("own", RandomBytes(size, std::hash<std::string>()(name)));
    laptop.dir.Write("shared", RandomBytes(3'000'000, 1));
    laptop.Scan();
    EXPECT_OK(node_.Push(laptop));
    return laptop.digest();
  }
  std::string FileOf(const std::string& digest, absl::string_view name) const {
    return JoinPath(JoinPath(node_.trees, digest), name);
  }
  struct stat StatOf(const std::string& path) const {
    struct stat info {};
    EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
    return info;
  }
  void SetLastUse(const std::string& digest, int64_t second) {
    const struct timespec times[2] = {{second, 0}, {second, 0}};
    const std::string manifest = absl::StrCat(JoinPath(node_.trees, digest), ".manifest");
    ASSERT_EQ(utimensat(AT_FDCWD, manifest.c_str(), times, 0), 0);
  }
  int64_t LastUse(const std::string& digest) const {
    return StatOf(absl::StrCat(JoinPath(node_.trees, digest), ".manifest")).st_mtime;
  }
  int64_t Sweep(int64_t max_bytes, int64_t now_s) {
    SweepOptions options;
    options.max_bytes = max_bytes;
    options.now_s = now_s;
    const auto freed = SweepTreeStore(node_.trees, options);
    EXPECT_OK(freed);
    return freed.value_or(-1);
  }

  Node node_;
};

TEST_F(StoreTest, TreesShareWhatTheyHaveInCommon) {
  const std::string a = Store("a");
  const std::string b = Store("b");
  EXPECT_EQ(StatOf(FileOf(a, "shared")).st_ino, StatOf(FileOf(b, "shared")).st_ino);
  EXPECT_NE(StatOf(FileOf(a, "own")).st_ino, StatOf(FileOf(b, "own")).st_ino);
  // A job owns its copy, but not a linked tree.
  TempDir work;
  ASSERT_OK(CopyStoredTree(node_.trees, a, work.Sub("copy"), work.Sub("manifest")));
  EXPECT_EQ(StatOf(work.Sub("copy/shared")).st_nlink, 1u);
  EXPECT_EQ(Sha256HexOf(ReadFileToString(work.Sub("manifest")).value()), a);
  ASSERT_OK(LinkStoredTree(node_.trees, a, node_.dir.Sub("linked")));
  EXPECT_EQ(StatOf(node_.dir.Sub("linked/shared")).st_ino, StatOf(FileOf(b, "shared")).st_ino);
  EXPECT_EQ(DigestOf(node_.dir.Sub("linked")), a);
}

TEST_F(StoreTest, FilesWithTheSameContentButAnotherModeAreCopies) {
  Laptop laptop;
  laptop.dir.Write("f", std::string(100'000, 'f'), 0644);
  laptop.Scan();
  ASSERT_OK(node_.Push(laptop));
  const std::string first = laptop.digest();
  ASSERT_EQ(chmod(laptop.dir.Sub("f").c_str(), 0755), 0);
  laptop.Scan();
  const auto outcome = node_.Push(laptop);
  ASSERT_OK(outcome);
  EXPECT_EQ(outcome->sent.bytes, 0);
  node_.ExpectWhole(first);
  node_.ExpectWhole(laptop.digest());
}

TEST_F(StoreTest, WhatWasWrittenToThroughALinkIsThrownAwayAndPushedAgain) {
  const std::string a = Store("a");
  ASSERT_OK(LinkStoredTree(node_.trees, a, node_.dir.Sub("job")));
  {
    const UniqueFd fd(open(node_.dir.Sub("job/shared").c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(pwrite(fd.get(), "!", 1, 5), 1);  // the size stays
  }
  // It is not taken over into another tree,
  const std::string b = Store("b");
  node_.ExpectWhole(b);
  EXPECT_NE(StatOf(FileOf(b, "shared")).st_ino, StatOf(node_.dir.Sub("job/shared")).st_ino);
  // nor given to a job; the next push brings it again.
  TempDir work;
  EXPECT_THAT(CopyStoredTree(node_.trees, a, work.Sub("w")), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_FALSE(HasStoredTree(node_.trees, a));
  EXPECT_TRUE(work.Names().empty());
  EXPECT_EQ(Store("a"), a);
  node_.ExpectWhole(a);
}

// The mark of a stored file must not be set on one that another tree shares and a job wrote to.
TEST_F(StoreTest, AWriteDuringAPushIsNotHidden) {
  const std::string a = Store("a");
  const std::string shared = FileOf(a, "shared");
  Laptop laptop;
  laptop.dir.Write("other", "other");
  laptop.dir.Write("shared", RandomBytes(3'000'000, 1));
  laptop.Scan();
  bool written = false;
  file_ops::SetFaultHook([&](file_ops::Op op, const std::string&) {
    if (op == file_ops::Op::kSync && !written) {
      written = true;
      const UniqueFd fd(open(shared.c_str(), O_WRONLY | O_CLOEXEC));
      EXPECT_EQ(pwrite(fd.get(), "!", 1, 5), 1);
    }
    return 0;
  });
  const auto outcome = node_.Push(laptop);
  file_ops::SetFaultHook(nullptr);
  ASSERT_TRUE(written);
  EXPECT_FALSE(outcome.ok());
  EXPECT_FALSE(HasStoredTree(node_.trees, laptop.digest()));
  TempDir work;
  EXPECT_THAT(CopyStoredTree(node_.trees, a, work.Sub("w")), StatusIs(absl::StatusCode::kDataLoss));
  ASSERT_OK(node_.Push(laptop));
  node_.ExpectWhole(laptop.digest());
}

TEST_F(StoreTest, SweepsWhatWasUsedLeastRecently) {
  constexpr int64_t kNow = 2'000'000'000;
  const std::string a = Store("a");
  const std::string b = Store("b");
  const std::string c = Store("c");
  SetLastUse(a, kNow - 200'000);
  SetLastUse(b, kNow - 400'000);
  SetLastUse(c, kNow - 300'000);
  EXPECT_EQ(Sweep(int64_t{1} << 40, kNow), 0);
  // 3 MB shared and 1 MB each.
  const int64_t freed = Sweep(5'200'000, kNow);
  EXPECT_GT(freed, 900'000);
  EXPECT_LT(freed, 1'100'000);
  EXPECT_FALSE(HasStoredTree(node_.trees, b));
  node_.ExpectWhole(a);
  node_.ExpectWhole(c);
  SetLastUse(a, kNow - 200'000);
  SetLastUse(c, kNow - 300'000);
  EXPECT_GT(Sweep(0, kNow), 4'900'000);
  EXPECT_TRUE(node_.Stored().empty());
  EXPECT_TRUE(node_.Staged().empty());
}

TEST_F(StoreTest, WhatWasUsedWithinADayStays) {
  constexpr int64_t kNow = 2'000'000'000;
  const std::string a = Store("a");
  const std::string b = Store("b");
  SetLastUse(a, kNow - 24 * 3600 + 10);
  SetLastUse(b, kNow - 24 * 3600 - 10);
  Sweep(0, kNow);
  node_.ExpectWhole(a);
  EXPECT_FALSE(HasStoredTree(node_.trees, b));
  // Each of these calls is a use.
  const int64_t before = 1'500'000'000;
  SetLastUse(a, before);
  EXPECT_TRUE(UseStoredTree(node_.trees, a));
  EXPECT_GT(LastUse(a), before);
  SetLastUse(a, before);
  TempDir work;
  ASSERT_OK(CopyStoredTree(node_.trees, a, work.Sub("w")));
  EXPECT_GT(LastUse(a), before);
  SetLastUse(a, before);
  Store("a");
  EXPECT_GT(LastUse(a), before);
}

TEST_F(StoreTest, CountsWhatATreeHasTwiceOnce) {
  constexpr int64_t kNow = 2'000'000'000;
  Laptop laptop;
  laptop.dir.Write("one", RandomBytes(2'000'000, 7));
  laptop.Scan();
  ASSERT_OK(node_.Push(laptop));
  const std::string one = laptop.digest();
  laptop.dir.Write("two", RandomBytes(2'000'000, 7));
  laptop.Scan();
  ASSERT_OK(node_.Push(laptop));  // both are links to the first tree's
  SetLastUse(one, kNow - 300'000);
  SetLastUse(laptop.digest(), kNow - 200'000);
  const int64_t freed = Sweep(0, kNow);
  EXPECT_GT(freed, 1'900'000);
  EXPECT_LT(freed, 2'100'000);
}

TEST_F(StoreTest, SweepsPushesThatNobodyGoesOnWith) {
  Laptop laptop;
  laptop.dir.Write("f", RandomBytes(2'000'000, 1));
  laptop.Scan();
  WireLimits limits;
  limits.up = 1'000'000;
  ASSERT_FALSE(node_.Push(laptop, {}, limits).ok());
  ASSERT_EQ(node_.Staged().size(), 1u);
  const std::string manifest = JoinPath(JoinPath(node_.trees, node_.Staged()[0]), "manifest");
  const int64_t begun = StatOf(manifest).st_mtime;
  Sweep(0, begun + 3600);
  EXPECT_EQ(node_.Staged().size(), 1u);  // somebody may still continue it
  Sweep(0, begun + 25 * 3600);
  EXPECT_TRUE(node_.Staged().empty());
}

// Copies and sweeps run one after the other: a copy gets a whole tree or NOT_FOUND.
TEST_F(StoreTest, CopiesBesideSweepsAreWholeOrNotThere) {
  const std::string a = Store("a", 200'000);
  constexpr int64_t kNow = 2'000'000'000;
  std::atomic<bool> done{false};
  std::thread sweeper([&] {
    while (!done) {
      const struct timespec times[2] = {{kNow - 200'000, 0}, {kNow - 200'000, 0}};
      const std::string manifest = absl::StrCat(JoinPath(node_.trees, a), ".manifest");
      (void)utimensat(AT_FDCWD, manifest.c_str(), times, 0);
      Sweep(0, kNow);
    }
  });
  int copied = 0;
  for (int i = 0; i < 30; ++i) {
    TempDir work;
    const absl::Status status = CopyStoredTree(node_.trees, a, work.Sub("w"));
    if (status.ok()) {
      ++copied;
      EXPECT_EQ(DigestOf(work.Sub("w")), a);
    } else {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound));
      EXPECT_TRUE(work.Names().empty());
      Store("a", 200'000);
    }
  }
  done = true;
  sweeper.join();
  Store("a", 200'000);
  node_.ExpectWhole(a);
}

}  // namespace
}  // namespace gpuctl
