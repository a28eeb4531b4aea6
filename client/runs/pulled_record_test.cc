#include "client/runs/pulled_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/tree/tree.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class PulledRecordTest : public ::testing::Test {
 protected:
  PulledItem Item(const std::string& name, PulledItem::Kind kind = PulledItem::Kind::kForeign) {
    PulledItem item = DescribePulled(dir_.Sub(name), ScanTree(dir_.Sub(name)).value(), false);
    item.kind = kind;
    item.from = "work/" + name;
    item.step = 7;
    item.time_ms = 1234;
    return item;
  }
  TempDir dir_;
  PulledRecord record_{dir_.Sub("runs/r-1")};
};

TEST_F(PulledRecordTest, KeepsWhatItIsGiven) {
  EXPECT_THAT(record_.Read().value(), IsEmpty());
  dir_.Write("a/x\xff\n\"y", "12345");
  dir_.Write("a/deep/z", "");
  const PulledItem item = Item("a");
  ASSERT_OK(record_.Append(item));
  const std::vector<PulledItem> items = record_.Read().value();
  ASSERT_THAT(items, SizeIs(1));
  EXPECT_EQ(items[0].kind, PulledItem::Kind::kForeign);
  EXPECT_EQ(items[0].path, item.path);
  EXPECT_EQ(items[0].from, "work/a");
  EXPECT_EQ(items[0].step, 7);
  EXPECT_EQ(items[0].time_ms, 1234);
  EXPECT_TRUE(items[0].ours);
  ASSERT_THAT(items[0].files, SizeIs(2));
  EXPECT_EQ(items[0].files[1].path, "x\xff\n\"y");
  EXPECT_EQ(items[0].files[1].size, 5);
  EXPECT_EQ(items[0].files[1].sha256,
            "5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5");
  EXPECT_TRUE(IsUntouchedAndAlone(items[0]));
}

TEST_F(PulledRecordTest, LaterItemsReplaceEarlierOnes) {
  dir_.Write("a/x", "1");
  dir_.Write("a/y", "1");
  dir_.Write("b/x", "1");
  ASSERT_OK(record_.Append(Item("a", PulledItem::Kind::kFiles)));
  ASSERT_OK(record_.Append(Item("b")));
  ASSERT_OK(record_.Append(Item("b")));
  dir_.Write("a/x", "22");
  PulledItem again = Item("a", PulledItem::Kind::kFiles);
  again.files.pop_back();
  ASSERT_OK(record_.Append(again));
  std::vector<PulledItem> items = record_.Read().value();
  ASSERT_THAT(items, SizeIs(3));
  EXPECT_THAT(items[0].files, SizeIs(1));
  EXPECT_EQ(items[0].files[0].path, "y");
  EXPECT_EQ(items[2].files[0].size, 2);
  ASSERT_OK(record_.AppendRemoved(dir_.Sub("b"), 5));
  items = record_.Read().value();
  EXPECT_THAT(items, SizeIs(2));
}

TEST_F(PulledRecordTest, ATornLineCostsOnlyItself) {
  dir_.Write("a/x", "1");
  dir_.Write("b/x", "1");
  ASSERT_OK(record_.Append(Item("a")));
  const std::string path = dir_.Sub("runs/r-1/pulled.jsonl");
  const std::string whole = ReadFileToString(path).value();
  ASSERT_OK(WriteFileAtomic(path, whole + whole.substr(0, whole.size() / 2)));
  ASSERT_OK(record_.Append(Item("b")));
  EXPECT_THAT(record_.Read().value(), SizeIs(2));
}

TEST_F(PulledRecordTest, ASymlinkInTheDirectorysPlaceIsSeen) {
  dir_.Write("a/x", "1");
  const PulledItem item = Item("a");
  ASSERT_TRUE(IsUntouchedAndAlone(item));
  ASSERT_EQ(rename(dir_.Sub("a").c_str(), dir_.Sub("elsewhere").c_str()), 0);
  ASSERT_EQ(symlink("elsewhere", dir_.Sub("a").c_str()), 0);
  EXPECT_TRUE(IsUntouched(item));
  EXPECT_FALSE(IsUntouchedAndAlone(item));
}

TEST_F(PulledRecordTest, TouchedFilesAreSeen) {
  dir_.Write("a/x", "1");
  dir_.Write("a/deep/y", "1");
  const PulledItem item = Item("a");
  EXPECT_TRUE(IsUntouchedAndAlone(item));
  dir_.Write("a/deep/mine", "1");
  EXPECT_TRUE(IsUntouched(item));
  EXPECT_FALSE(IsUntouchedAndAlone(item));
  dir_.Write("a/x", "2");
  EXPECT_FALSE(IsUntouched(item));
}

}  // namespace
}  // namespace gpuctl
