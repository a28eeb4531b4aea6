#include "agent/tree_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <thread>

#include "agent/transfer_fixture.h"

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

}  // namespace
}  // namespace gpuctl
