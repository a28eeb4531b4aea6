#include "client/home/nothing_to_bring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(NothingToBringTest, NamesWhatThereIsInstead) {
  RunRow row;
  row.name = "amber-fox-1";
  row.checkpoint_patterns = {"outputs/checkpoint-*"};
  gpuctl::v1::RemoveJobReply found;
  for (int i = 1; i <= 7; ++i) {
    found.add_left()->set_path(absl::StrCat("work/out/checkpoint-", i, "/model.safetensors"));
  }
  found.set_left_count(9);
  const absl::Status status = NothingToBring(row, found);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound,
                               AllOf(HasSubstr("nothing matches outputs/checkpoint-*"),
                                     HasSubstr("made 9 files: out/checkpoint-1/model.safetensors"),
                                     HasSubstr(", …"))));
  EXPECT_THAT(HintOf(status), HasSubstr("gpuctl pull amber-fox-1 '**'"));
  EXPECT_THAT(NothingToBring(row, {}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("made no files")));
}

TEST(NothingToBringTest, NamesTheFolderThatHasAllThatTheJobMade) {
  RunRow row;
  row.name = "amber-fox-1";
  gpuctl::v1::RemoveJobReply found;
  const auto add = [&found](const char* path) {
    found.add_left()->set_path(path);
    found.set_left_count(found.left_size());
  };
  add("work/checkpoints/best.pkl");
  add("work/checkpoints/deep/model.pkl");
  EXPECT_EQ(HintOf(NothingToBring(row, found)),
            "gpuctl pull amber-fox-1 'checkpoints/**' brings them");
  // The node names only some of them, so others may be elsewhere.
  found.set_left_count(3);
  EXPECT_THAT(HintOf(NothingToBring(row, found)), HasSubstr("'**' brings all files"));
  add("work/log.txt");
  EXPECT_THAT(HintOf(NothingToBring(row, found)), HasSubstr("'**' brings all files"));
}

TEST(NothingToBringTest, NoFolderIsNamedThatNobodyShouldType) {
  RunRow row;
  row.name = "amber-fox-1";
  gpuctl::v1::RemoveJobReply found;
  found.add_left()->set_path("work/a b; rm -rf/model.pkl");
  found.set_left_count(1);
  EXPECT_THAT(HintOf(NothingToBring(row, found)), HasSubstr("'**' brings all files"));
}

TEST(NothingToBringTest, SaysHowToGoOnFromWhatMayBeTorn) {
  RunRow row;
  row.name = "amber-fox-1";
  row.checkpoint_patterns = {"out/checkpoint-*/", "best.pkl"};
  gpuctl::v1::RemoveJobReply found;
  const auto add = [&found](const char* path, int64_t modified_ms) {
    found.add_left()->set_path(path);
    found.mutable_left(found.left_size() - 1)->set_modified_ms(modified_ms);
    found.set_left_count(found.left_size());
  };
  add("work/out/checkpoint-3/deep/weights", 30);
  add("work/out/checkpoint-2/weights", 20);
  add("work/log.txt", 90);
  const absl::Status status = NothingToBring(row, found);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound,
                               AllOf(HasSubstr("out/checkpoint-3 matches the patterns"),
                                     Not(HasSubstr("nothing matches")))));
  EXPECT_EQ(HintOf(status),
            "gpuctl pull amber-fox-1 'out/checkpoint-3/**' brings it as it is, and gpuctl resume "
            "amber-fox-1 --from amber-fox-1/out/checkpoint-3 goes on from that");
  add("work/best.pkl", 40);
  EXPECT_THAT(HintOf(NothingToBring(row, found)),
              HasSubstr("gpuctl pull amber-fox-1 best.pkl brings it"));
}

}  // namespace
}  // namespace gpuctl
