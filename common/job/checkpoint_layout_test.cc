#include "common/job/checkpoint_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

// Returns a safetensors file with one tensor of `bytes` bytes.
std::string Safetensors(int64_t bytes) {
  const std::string header =
      absl::StrCat(R"({"__metadata__":{"format":"pt"},"w":{"dtype":"U8","shape":[)", bytes,
                   R"(],"data_offsets":[0,)", bytes, "]}}");
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  return file + header + std::string(static_cast<size_t>(bytes), 'x');
}

// Returns the beginning and the end of a zip archive.
std::string Zip(const std::string& comment = "") {
  std::string end = std::string("PK\5\6") + std::string(18, '\0') + comment;
  end[20] = static_cast<char>(comment.size());
  return std::string("PK\3\4", 4) + std::string(1000, 'z') + end;
}

TEST(CheckpointNameTest, TheLastNumberIsTheStep) {
  EXPECT_EQ(StepOfCheckpointName("checkpoint-250", /*is_file=*/false), 250);
  EXPECT_EQ(StepOfCheckpointName("v2_step_20.pt", /*is_file=*/true), 20);
  EXPECT_EQ(StepOfCheckpointName("best.pt2", /*is_file=*/true), -1);
  EXPECT_EQ(StepOfCheckpointName("7", /*is_file=*/false), 7);
  EXPECT_EQ(StepOfCheckpointName("99999999999999999999", /*is_file=*/false), -1);
}

TEST(IsTemporaryNameTest, WhatWritersCallTheUnfinished) {
  for (const char* name :
       {".tmp-1", ".partial-x", "tmp-checkpoint-10", "checkpoint-10.tmp", "model.pt.tmp.4711",
        "x.orbax-checkpoint-tmp-12", "a.partial", "b.part", "c.incomplete", "d~", "tmp"}) {
    EXPECT_TRUE(IsTemporaryName(name)) << name;
  }
  for (const char* name : {"checkpoint-10", "model.pt", "model-part-1.bin", "temp-0.7",
                           "partial-tuning", "tmpfs", "best"}) {
    EXPECT_FALSE(IsTemporaryName(name)) << name;
  }
}

class CheckpointLayoutTest : public ::testing::Test {
 protected:
  LayoutVerdict File(const std::string& name, const std::string& contents) {
    return JudgeCheckpointFile(dir_.Write(name, contents), static_cast<int64_t>(contents.size()));
  }
  void Put(const std::string& path, const std::string& contents) {
    dir_.Write(absl::StrCat(name_, "/", path), contents);
    files_.push_back({path, static_cast<int64_t>(contents.size())});
  }
  LayoutVerdict Directory() { return JudgeCheckpointDirectory(dir_.Sub(name_), files_); }
  void ExpectTorn(const std::string& why) {
    const LayoutVerdict verdict = Directory();
    EXPECT_EQ(verdict.wholeness, Wholeness::kTorn);
    EXPECT_THAT(verdict.why, HasSubstr(why));
  }

  TempDir dir_;
  std::string name_ = "checkpoint-10";
  std::vector<LayoutFile> files_;
};

TEST_F(CheckpointLayoutTest, SafetensorsAreAsLongAsTheirHeaderSays) {
  const std::string whole = Safetensors(100);
  EXPECT_EQ(File("a.safetensors", whole).wholeness, Wholeness::kWhole);
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(File("a.safetensors", whole.substr(0, size)).wholeness, Wholeness::kTorn) << size;
  }
  EXPECT_EQ(File("a.safetensors", whole + "y").wholeness, Wholeness::kTorn);
}

TEST_F(CheckpointLayoutTest, HostileSafetensorsHeadersAreTorn) {
  EXPECT_EQ(File("a.safetensors", std::string(8, '\xff') + "{}").wholeness, Wholeness::kTorn);
  for (const char* header : {"[]", "{\"w\":1}", "{\"w\":{}}", "{\"w\":{\"data_offsets\":[0]}}",
                             "{\"w\":{\"data_offsets\":[0,-1]}}",
                             "{\"w\":{\"data_offsets\":[0,18446744073709551615]}}"}) {
    std::string file(8, '\0');
    file[0] = static_cast<char>(strlen(header));
    EXPECT_EQ(File("a.safetensors", file + header).wholeness, Wholeness::kTorn) << header;
  }
}

TEST_F(CheckpointLayoutTest, ArchivesOfTorchHaveAnEnd) {
  EXPECT_EQ(File("a.pt", Zip()).wholeness, Wholeness::kWhole);
  EXPECT_EQ(File("a.pt", Zip("PK\5\6 in a comment")).wholeness, Wholeness::kWhole);
  EXPECT_EQ(File("a.pt", Zip().substr(0, 900)).wholeness, Wholeness::kTorn);
  EXPECT_EQ(File("a.pt", Zip().substr(0, Zip().size() - 1)).wholeness, Wholeness::kTorn);
  EXPECT_EQ(File("a.pt", "").wholeness, Wholeness::kTorn);
  EXPECT_EQ(File("a.pt", "\x80\x02 a pickle").wholeness, Wholeness::kUnknown);
  EXPECT_EQ(File("a.txt", "").wholeness, Wholeness::kUnknown);
}

TEST_F(CheckpointLayoutTest, EveryShardTheIndexNamesIsThere) {
  Put("model.safetensors.index.json",
      R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  Put("one.safetensors", Safetensors(5));
  ExpectTorn("two.safetensors");
  Put("two.safetensors", Safetensors(6));
  EXPECT_EQ(Directory().wholeness, Wholeness::kWhole);
}

TEST_F(CheckpointLayoutTest, ShardsAreCountedWithoutAnIndex) {
  Put("model-00001-of-00003.safetensors", Safetensors(1));
  Put("model-00003-of-00003.safetensors", Safetensors(3));
  ExpectTorn("2 of 3");
  Put("model-00002-of-00003.safetensors", Safetensors(2));
  EXPECT_EQ(Directory().wholeness, Wholeness::kWhole);
}

TEST_F(CheckpointLayoutTest, TheTrainersStateComesLast) {
  Put("training_args.bin", Zip());
  Put("model.safetensors", Safetensors(3));
  ExpectTorn("trainer_state.json");
  Put("merges.txt", "a b");
  Put("trainer_state.json", "{}");
  EXPECT_EQ(Directory().wholeness, Wholeness::kWhole);
}

TEST_F(CheckpointLayoutTest, DistributedCheckpointsHaveMetadata) {
  Put("__0_0.distcp", "x");
  ExpectTorn(".metadata");
  Put(".metadata", "m");
  EXPECT_EQ(Directory().wholeness, Wholeness::kWhole);
}

TEST_F(CheckpointLayoutTest, UnfinishedOrEmptyOnesAreTorn) {
  ExpectTorn("no file");
  Put("weights", "w");
  EXPECT_EQ(Directory().wholeness, Wholeness::kUnknown);
  Put("config.json", "{\"a\":");
  ExpectTorn("config.json");
  files_.pop_back();
  Put("optimizer.pt.tmp", "x");
  ExpectTorn("not finished");
}

}  // namespace
}  // namespace gpuctl
