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

}  // namespace
}  // namespace gpuctl
