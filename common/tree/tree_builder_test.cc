#include "common/tree/tree_builder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/tree/tree.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

constexpr int kCopies = 300;

// A tree of many files with the same content, as the __init__.py of packages, and some others.
class CopiesTest : public testing::Test {
 protected:
  CopiesTest() {
    for (int i = 0; i < 10; ++i) EXPECT_OK(MakeDirectories(from_.Sub(absl::StrCat("d", i))));
    EXPECT_OK(MakeDirectories(from_.Sub("other")));
    for (int i = 0; i < kCopies; ++i) {
      Write(absl::StrCat("d", i % 10, "/f", 10'000 + i), "# package\n");
    }
    for (int i = 0; i < 50; ++i) Write(absl::StrCat("other/", i), absl::StrCat(i));
    source_ = ScanTree(from_.path()).value();
    fd_.reset(file_ops::Open(from_.path(), O_RDONLY | O_DIRECTORY));
  }
  void Write(const std::string& path, const std::string& content) const {
    const UniqueFd fd(file_ops::Open(from_.Sub(path), O_WRONLY | O_CREAT | O_TRUNC, 0644));
    EXPECT_OK(WriteAll(fd.get(), content, path));
  }

  TempDir from_;
  TempDir to_;
  Manifest source_;
  UniqueFd fd_;
};

TEST_F(CopiesTest, AreTakenInStepsThatGrowWithTheirNumber) {
  const struct {
    Reuse how;
    bool verified;
  } kCases[] = {
      {Reuse::kLink, true}, {Reuse::kCopy, true}, {Reuse::kCopy, false}, {Reuse::kMove, false}};
  for (const auto& each : kCases) {
    const auto builder = TreeBuilder::Begin(to_.path(), source_);
    ASSERT_OK(builder);
    ASSERT_OK((*builder)->TakeFrom(fd_.get(), source_, each.how, each.verified));
    EXPECT_TRUE((*builder)->missing().empty());
    ASSERT_OK((*builder)->Finish());
    EXPECT_EQ(ScanTree((*builder)->tree_path()).value().Digest(), source_.Digest());
    EXPECT_LE((*builder)->take_steps(), 6 * source_.size());
  }
}

TEST(TreeBuilder, AnotherTransferLeavesWhatAnEarlierOneReceived) {
  TempDir large, small, to;
  large.Write("model.bin", std::string(3'000'000, 'm'));
  small.Write("notes.txt", "notes");
  const Manifest model = ScanTree(large.path()).value();
  const auto begin = [&to](const TempDir& from) {
    return TreeBuilder::Begin(to.path(), ScanTree(from.path()).value()).value();
  };
  const auto fill = [](TreeBuilder& builder, const TempDir& from) {
    const UniqueFd fd(file_ops::Open(from.path(), O_RDONLY | O_DIRECTORY));
    EXPECT_OK(builder.TakeFrom(fd.get(), builder.manifest(), Reuse::kCopy, false));
  };
  {
    const auto interrupted = begin(large);
    fill(*interrupted, large);
    interrupted->Keep();
  }
  {
    const auto other = begin(small);
    EXPECT_EQ(other->missing().Bytes(other->manifest()), 5);
    fill(*other, small);
    EXPECT_OK(other->Finish());
  }
  {
    const auto on = begin(large);
    EXPECT_TRUE(on->missing().empty());
    EXPECT_OK(on->Finish());
  }
  EXPECT_TRUE(to.Names().empty());
  // What nobody goes on with is removed after days.
  begin(large)->Keep();
  const std::string old = StagedManifestPath(to.Sub(to.Names().at(0)));
  const struct timespec times[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, old.c_str(), times, 0), 0);
  (void)begin(small);
  EXPECT_TRUE(to.Names().empty());
}

// When none of them matches the manifest any more, each is read once in vain.
TEST_F(CopiesTest, ThatAreNotWhatTheyAreSaidToBeAreTriedOnceEach) {
  for (const gpuctl::v1::FileEntry& entry : source_) {
    if (entry.kind() != gpuctl::v1::FileEntry::KIND_FILE || entry.size() != 10) continue;
    Write(entry.path(), "# pakcage\n");
  }
  const auto builder = TreeBuilder::Begin(to_.path(), source_);
  ASSERT_OK(builder);
  ASSERT_OK((*builder)->TakeFrom(fd_.get(), source_, Reuse::kCopy, false));
  int64_t missing = 0;
  for (int64_t i = 0; i < source_.size(); ++i) missing += (*builder)->missing().Has(i);
  EXPECT_EQ(missing, kCopies);
  EXPECT_LE((*builder)->take_steps(), 6 * source_.size());
}

// Damaged copies do not prevent the use of a good one.
TEST_F(CopiesTest, OneGoodOneIsEnough) {
  for (const gpuctl::v1::FileEntry& entry : source_) {
    if (entry.kind() != gpuctl::v1::FileEntry::KIND_FILE || entry.size() != 10) continue;
    if (entry.path() != "d5/f10205") Write(entry.path(), "# pakcage\n");
  }
  const auto builder = TreeBuilder::Begin(to_.path(), source_);
  ASSERT_OK(builder);
  ASSERT_OK((*builder)->TakeFrom(fd_.get(), source_, Reuse::kMove, false));
  EXPECT_TRUE((*builder)->missing().empty());
  ASSERT_OK((*builder)->Finish());
  EXPECT_EQ(ScanTree((*builder)->tree_path()).value().Digest(), source_.Digest());
}

// Somebody writes to a file after it was read and before it is copied.
TEST(TreeBuilder, TakesNothingOfWhatIsWrittenToMeanwhile) {
  for (const int64_t size : {int64_t{1000}, 2 * kPartBytes + 1}) {
    TempDir from;
    from.Write("f", std::string(static_cast<size_t>(size), 'a'));
    const struct timespec past[2] = {{1'700'000'000, 0}, {1'700'000'000, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, from.Sub("f").c_str(), past, 0), 0);
    const Manifest manifest = ScanTree(from.path()).value();
    const UniqueFd from_fd(file_ops::Open(from.path(), O_RDONLY | O_DIRECTORY));
    TempDir to;
    const auto builder = TreeBuilder::Begin(to.path(), manifest);
    ASSERT_OK(builder);
    const UniqueFd writer(open(from.Sub("f").c_str(), O_WRONLY | O_CLOEXEC));
    file_ops::SetFaultHook([&](file_ops::Op op, const std::string& path) {
      if (op != file_ops::Op::kOpen || path != "f") return 0;
      EXPECT_EQ(pwrite(writer.get(), "b", 1, 5), 1);
      return 0;
    });
    const absl::Status taken = (*builder)->TakeSamePaths(from_fd.get());
    file_ops::SetFaultHook(nullptr);
    ASSERT_OK(taken);
    EXPECT_TRUE((*builder)->missing().Has(0)) << size;
    ASSERT_OK((*builder)->TakeSamePaths(from_fd.get()));
    EXPECT_TRUE((*builder)->missing().Has(0, 0)) << size;
  }
}

}  // namespace
}  // namespace gpuctl
