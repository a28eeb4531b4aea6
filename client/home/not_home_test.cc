#include "client/home/not_home.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

constexpr int64_t kEnded = 1000;

class ResultsHomeTest : public ::testing::Test {
 protected:
  // Makes a local file and returns pull's record of it.
  PulledFile Here(const std::string& name, const std::string& contents) {
    const std::string path = dir_.Write(name, contents);
    struct stat info {};
    EXPECT_EQ(lstat(path.c_str(), &info), 0);
    return {name, int64_t{info.st_size}, "", PulledTime(info)};
  }
  PulledItem Item(PulledItem::Kind kind, const std::string& from, std::vector<PulledFile> files) {
    PulledItem item;
    item.kind = kind;
    item.path = dir_.path();
    item.from = from;
    item.time_ms = kEnded;
    item.node_modified_ms = 7;
    item.files = std::move(files);
    return item;
  }
  void HasFile(const std::string& path, int64_t size) {
    auto& left = *left_.add_left();
    left.set_path(path);
    left.set_size(size);
    left_.set_left_count(left_.left_count() + 1);
    left_.set_left_bytes(left_.left_bytes() + size);
  }
  void HasCheckpoint(const std::string& path, int64_t size) {
    auto& checkpoint = *listed_.add_checkpoints();
    checkpoint.set_path(path);
    checkpoint.set_size(size);
    checkpoint.set_modified_ms(7);
  }
  Missing Find() { return FindMissing(left_, listed_, pulled_, kEnded); }

  TempDir dir_;
  gpuctl::v1::RemoveJobReply left_;
  gpuctl::v1::ListArtifactsReply listed_;
  PulledRecord::All pulled_;
};

TEST_F(ResultsHomeTest, WhatWasBroughtBeforeTheEndIsHomeWhenTheJobWroteItNoMore) {
  HasFile("work/out/a", 3);
  left_.mutable_left(0)->set_modified_ms(70);
  PulledItem early = Item(PulledItem::Kind::kFiles, "work", {Here("out/a", "abc")});
  early.time_ms = kEnded - 1;
  early.files[0].node_modified_ms = 70;
  pulled_.there = {early};
  EXPECT_TRUE(Find().empty());
  pulled_.there[0].files[0].node_modified_ms = 69;
  EXPECT_EQ(Find().files, 1);
  pulled_.there[0].files[0].node_modified_ms = 0;
  EXPECT_EQ(Find().files, 1);
}

TEST_F(ResultsHomeTest, WhatWasBroughtAndIsUntouchedIsHome) {
  HasFile("work/out/a", 3);
  HasCheckpoint("ckpt/step-00000001", 5);
  pulled_.there.push_back(Item(PulledItem::Kind::kFiles, "work", {Here("out/a", "abc")}));
  pulled_.there.push_back(
      Item(PulledItem::Kind::kTrainer, "ckpt/step-00000001", {Here("w", "12345")}));
  EXPECT_TRUE(Find().empty());
  // Somebody changed the local file.
  dir_.Write("out/a", "abcd");
  EXPECT_EQ(Find().files, 1);
  dir_.Write("w", "other");
  EXPECT_EQ(Find().checkpoints, 1);
  EXPECT_EQ(DescribeMissing(Find()),
            "1 checkpoint and 1 file (8 B): ckpt/step-00000001, work/out/a");
}

TEST_F(ResultsHomeTest, AFileThatWasBroughtBeforeTheEndMayHaveChanged) {
  HasFile("work/a", 3);
  pulled_.there.push_back(Item(PulledItem::Kind::kFiles, "work", {Here("a", "abc")}));
  pulled_.there[0].time_ms = kEnded - 1;
  EXPECT_EQ(Find().files, 1);
  pulled_.there[0].time_ms = kEnded;
  EXPECT_TRUE(Find().empty());
  left_.mutable_left(0)->set_size(4);
  EXPECT_EQ(Find().files, 1);
}

TEST_F(ResultsHomeTest, ACheckpointThatChangedThereIsNotHome) {
  HasCheckpoint("work/last", 5);
  HasFile("work/last/w", 5);
  pulled_.there.push_back(Item(PulledItem::Kind::kForeign, "work/last", {Here("w", "12345")}));
  // Its files are not counted separately.
  EXPECT_TRUE(Find().empty());
  listed_.mutable_checkpoints(0)->set_modified_ms(8);
  EXPECT_EQ(Find().checkpoints, 1);
  EXPECT_EQ(Find().files, 0);
}

TEST_F(ResultsHomeTest, AFileThatTheCopyOfItsCheckpointLacksIsNotHome) {
  HasCheckpoint("ckpt/step-00000001", 5);
  HasFile("ckpt/step-00000001/w", 5);
  HasFile("ckpt/step-00000001/opt/extra", 7);
  pulled_.there.push_back(
      Item(PulledItem::Kind::kTrainer, "ckpt/step-00000001", {Here("w", "12345")}));
  EXPECT_EQ(Find().checkpoints, 0);
  EXPECT_EQ(Find().files, 1);
  EXPECT_EQ(Find().bytes, 7);
  pulled_.there[0].files.push_back(Here("opt/extra", "1234567"));
  EXPECT_TRUE(Find().empty());
  // Another size there: it was written again, with the time of its old content.
  left_.mutable_left(0)->set_size(6);
  EXPECT_EQ(Find().files, 1);
  // What --keep removed here had been home as a whole.
  pulled_.removed.push_back(Item(PulledItem::Kind::kTrainer, "ckpt/step-00000001", {}));
  pulled_.there.clear();
  EXPECT_TRUE(Find().empty());
}

TEST_F(ResultsHomeTest, ACheckpointThatCameAsFilesIsHome) {
  HasCheckpoint("work/out/best.pt", 5);
  HasCheckpoint("work/out/last", 7);
  HasFile("work/out/best.pt", 5);
  HasFile("work/out/last/w", 4);
  HasFile("work/out/last/opt", 3);
  EXPECT_EQ(Find().checkpoints, 2);
  pulled_.there.push_back(Item(PulledItem::Kind::kFiles, "work",
                               {Here("out/best.pt", "12345"), Here("out/last/w", "1234")}));
  EXPECT_EQ(Find().checkpoints, 1);  // a part of it is not the checkpoint
  pulled_.there[0].files.push_back(Here("out/last/opt", "123"));
  EXPECT_TRUE(Find().empty());
  // An empty file of it did not come.
  HasFile("work/out/last/done", 0);
  EXPECT_EQ(Find().checkpoints, 0);
  EXPECT_EQ(Find().files, 1);
  // Before the end the job may write it again.
  pulled_.there[0].time_ms = kEnded - 1;
  EXPECT_EQ(Find().checkpoints, 2);
  pulled_.there[0].time_ms = kEnded;
  dir_.Write("out/best.pt", "other content");
  EXPECT_EQ(Find().checkpoints, 1);
}

TEST_F(ResultsHomeTest, WhatPullRemovedItselfHadBeenHome) {
  HasCheckpoint("ckpt/step-00000001", 5);
  EXPECT_EQ(Find().checkpoints, 1);
  pulled_.removed.push_back(Item(PulledItem::Kind::kTrainer, "ckpt/step-00000001", {}));
  EXPECT_TRUE(Find().empty());
}

TEST_F(ResultsHomeTest, WhatIsNotNamedIsNotHome) {
  left_.set_left_count(10);
  left_.set_left_bytes(100);
  EXPECT_EQ(Find().files, 10);
  EXPECT_EQ(DescribeMissing(Find()), "10 files (100 B), …");
}

TEST(HowToBringTest, IntermediateCheckpointsNeedMoreThanAPull) {
  Missing missing;
  missing.checkpoints = 3;
  EXPECT_EQ(HowToBring("fox", missing), "gpuctl pull fox --watch brings all checkpoints");
  missing.checkpoints = 0;
  missing.files = 1;
  EXPECT_EQ(HowToBring("fox", missing),
            "gpuctl pull fox '**' brings all files of the work directory");
  missing.items.push_back({NotHome::Kind::kFile, "ckpt/model.pt", 5});
  EXPECT_EQ(HowToBring("fox", missing), "gpuctl pull fox brings the files beside the checkpoints");
  missing = {};
  missing.checkpoints = 1;
  missing.items.push_back({NotHome::Kind::kCheckpoint, "ckpt/step-2", 5, true});
  EXPECT_EQ(HowToBring("fox", missing), "gpuctl pull fox brings the newest checkpoint");
}

TEST(NotHomeTest, SurelyWantedAreTheNewestCheckpointAndNamedResults) {
  Missing missing;
  missing.checkpoints = 2;
  missing.files = 4;
  missing.items = {{NotHome::Kind::kCheckpoint, "ckpt/step-2", 5, true},
                   {NotHome::Kind::kCheckpoint, "ckpt/step-1", 5, false},
                   {NotHome::Kind::kFile, "ckpt/model.pt", 7, false},
                   {NotHome::Kind::kFile, "work/out/result.json", 1, false},
                   {NotHome::Kind::kFile, "work/wandb/log", 100, false},
                   {NotHome::Kind::kFile, "work/out/a/b", 100, false}};
  RunRow row;
  row.artifact_patterns = {"out/*"};
  const Missing wanted = SurelyWanted(missing, row);
  EXPECT_EQ(wanted.checkpoints, 1);
  EXPECT_EQ(wanted.files, 2);
  EXPECT_EQ(wanted.bytes, 13);
  ASSERT_EQ(wanted.items.size(), 3u);
  EXPECT_EQ(wanted.items[2].path, "work/out/result.json");
  missing.bytes = 218;
  EXPECT_EQ(DescribeOthers(missing, wanted),
            "1 older checkpoint and 2 other files (205 B): work/wandb/log, work/out/a/b");
  EXPECT_EQ(DescribeOthers(wanted, wanted), "");
  missing.items = {missing.items[1], missing.items[4]};
  EXPECT_TRUE(SurelyWanted(missing, row).empty());
}

// What was written when the job was killed is no complete checkpoint, and may be all that there is.
TEST(NotHomeTest, SurelyWantedIsWhatCheckpointsAreNamedAndIsNotComplete) {
  Missing missing;
  missing.files = 4;
  missing.items = {{NotHome::Kind::kFile, "work/saved/model_20.pt", 5, false},
                   {NotHome::Kind::kFile, "work/out/checkpoint-3/a/model.bin", 5, false},
                   {NotHome::Kind::kFile, "work/out/runs/log", 5, false},
                   {NotHome::Kind::kFile, "work/metrics.csv", 5, false}};
  RunRow row;
  row.checkpoint_patterns = {"saved/*.pt", "out/checkpoint-*"};
  EXPECT_EQ(SurelyWanted(missing, row).files, 2);
}

}  // namespace
}  // namespace gpuctl
