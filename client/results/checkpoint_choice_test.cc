#include "client/results/checkpoint_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/base/exit_codes.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

TEST(ChooseCheckpointTest, FindsLatestBestAndSteps) {
  std::vector<gpuctl::v1::CheckpointInfo> checkpoints(3);
  for (int i = 0; i < 3; ++i) checkpoints[static_cast<size_t>(i)].set_step(100 * (i + 1));
  const std::vector<PlotPoint> evals = {{90, 3.0}, {190, 1.0}, {290, 2.0}};
  EXPECT_EQ(ChooseCheckpoint(checkpoints, "latest", {})->step(), 300);
  EXPECT_EQ(ChooseCheckpoint(checkpoints, "200", {})->step(), 200);
  EXPECT_EQ(ChooseCheckpoint(checkpoints, "best", evals)->step(), 200);
  EXPECT_FALSE(ChooseCheckpoint(checkpoints, "best", {}).ok());
  EXPECT_THAT(HintOf(ChooseCheckpoint(checkpoints, "150", {}).status()),
              HasSubstr("100, 200, 300"));
  const absl::Status mistyped = ChooseCheckpoint(checkpoints, "lastest", {}).status();
  EXPECT_EQ(mistyped.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(mistyped.message()), HasSubstr("did you mean \"latest\""));
  EXPECT_EQ(ChooseCheckpoint({}, "latest", {}).status().code(), absl::StatusCode::kNotFound);
}

TEST(ChooseCheckpointTest, FindsThoseOfScriptsByName) {
  std::vector<gpuctl::v1::CheckpointInfo> checkpoints(3);
  checkpoints[0].set_path("ckpt/step-00000007");
  checkpoints[0].set_step(7);
  for (int i = 1; i < 3; ++i) {
    gpuctl::v1::CheckpointInfo& checkpoint = checkpoints[static_cast<size_t>(i)];
    checkpoint.set_kind(gpuctl::v1::CheckpointInfo::KIND_FOREIGN);
    checkpoint.set_path(i == 1 ? "work/out/a/best" : "work/out/checkpoint-7");
    checkpoint.set_name(i == 1 ? "a/best" : "checkpoint-7");
    checkpoint.set_step(i == 1 ? -1 : 7);
  }
  // A checkpoint called "best" is chosen by its path; the word itself means the lowest loss.
  EXPECT_EQ(ChooseCheckpoint(checkpoints, "a/best", {})->path(), "work/out/a/best");
  EXPECT_EQ(ChooseCheckpoint(checkpoints, "checkpoint-7", {})->path(), "work/out/checkpoint-7");
  EXPECT_EQ(ChooseCheckpoint(checkpoints, "step-00000007", {})->path(), "ckpt/step-00000007");
  EXPECT_EQ(ChooseCheckpoint(checkpoints, "7", {})->path(), "work/out/checkpoint-7");
  EXPECT_EQ(ChooseCheckpoint(checkpoints, "best", {{5, 1.0}})->step(), 7);
  EXPECT_THAT(HintOf(ChooseCheckpoint(checkpoints, "-1", {}).status()),
              HasSubstr("steps 7, and a/best, checkpoint-7"));
}

TEST(ChooseCheckpointTest, HintsNameOnlyWhatCanBeTyped) {
  std::vector<gpuctl::v1::CheckpointInfo> checkpoints(3);
  for (gpuctl::v1::CheckpointInfo& checkpoint : checkpoints) {
    checkpoint.set_kind(gpuctl::v1::CheckpointInfo::KIND_FOREIGN);
  }
  checkpoints[0].set_name("a/best");
  checkpoints[1].set_name("x; reboot");
  checkpoints[2].set_name("y\nHINT: forged");
  EXPECT_EQ(HintOf(ChooseCheckpoint(checkpoints, "9", {}).status()),
            "there are a/best, and 2 with unusual names");
}

TEST(HomeNameTest, NeverLeadsElsewhere) {
  gpuctl::v1::CheckpointInfo checkpoint;
  checkpoint.set_path("work/out/x");
  EXPECT_EQ(HomeName(checkpoint).value(), "x");
  checkpoint.set_name("out/x");
  EXPECT_EQ(HomeName(checkpoint).value(), "out/x");
  for (const char* name : {"../x", "/x", "a/../../x"}) {
    checkpoint.set_name(name);
    EXPECT_FALSE(HomeName(checkpoint).ok()) << name;
  }
}

}  // namespace
}  // namespace gpuctl
