#include "agent/trees/take.h"

#include <gtest/gtest.h>

#include <string>

#include "agent/store/tree_store.h"
#include "common/files/files.h"
#include "tests/support/transfer_fixture.h"

namespace gpuctl {
namespace {

TEST(TakeTree, BringsAWholeTreeAndLeavesNothingBehind) {
  Laptop laptop;
  laptop.dir.Write("big", RandomBytes(9'000'000, 1));
  laptop.dir.Write("src/main.py", "print()");
  laptop.dir.Write("empty", "");
  laptop.Scan();
  const std::string digest = laptop.digest();
  Node shared;
  Node node;
  EXPECT_FALSE(TakeTree(node.root, shared.root, digest, /*keep=*/false).ok());
  ASSERT_OK(shared.Push(laptop));
  ASSERT_OK(TakeTree(node.root, shared.root, digest, /*keep=*/false));
  node.ExpectWhole(digest);
  EXPECT_FALSE(HasStoredTree(shared.trees, digest));
  EXPECT_FALSE(PathExists(JoinPath(shared.trees, digest)));
  // It is here already.
  ASSERT_OK(TakeTree(node.root, shared.root, digest, /*keep=*/false));
  EXPECT_THAT(TakeTree(node.root, shared.root, "../x", /*keep=*/false),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(TakeTree, LeavesTheTreeForOtherNodes) {
  SampleLaptop laptop;
  Node shared, first, second;
  ASSERT_OK(shared.Push(laptop));
  ASSERT_OK(TakeTree(first.root, shared.root, laptop.digest(), /*keep=*/true));
  ASSERT_OK(TakeTree(second.root, shared.root, laptop.digest(), /*keep=*/true));
  first.ExpectWhole(laptop.digest());
  second.ExpectWhole(laptop.digest());
  // The last one takes it away, though it has it.
  ASSERT_OK(TakeTree(first.root, shared.root, laptop.digest(), /*keep=*/false));
  EXPECT_FALSE(HasStoredTree(shared.trees, laptop.digest()));
}

TEST(TakeTree, TakesNothingThatIsNotWhatItsDigestSays) {
  Laptop laptop;
  laptop.dir.Write("file", RandomBytes(100'000, 1));
  laptop.Scan();
  const std::string digest = laptop.digest();
  Node shared;
  Node node;
  ASSERT_OK(shared.Push(laptop));
  const std::string file = JoinPath(JoinPath(shared.trees, digest), "file");
  ASSERT_OK(WriteFileAtomic(file, RandomBytes(100'000, 2)));
  EXPECT_THAT(TakeTree(node.root, shared.root, digest, /*keep=*/false),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_FALSE(HasStoredTree(node.trees, digest));
  // The manifest of another tree.
  Laptop other;
  other.dir.Write("file", "other");
  other.Scan();
  ASSERT_OK(shared.Push(other));
  const std::string manifest = absl::StrCat(JoinPath(shared.trees, other.digest()), ".manifest");
  ASSERT_OK(WriteFileAtomic(absl::StrCat(JoinPath(shared.trees, digest), ".manifest"),
                            ReadFileToString(manifest).value()));
  EXPECT_FALSE(TakeTree(node.root, shared.root, digest, /*keep=*/false).ok());
  EXPECT_FALSE(HasStoredTree(node.trees, digest));
}

}  // namespace
}  // namespace gpuctl
