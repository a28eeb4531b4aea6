#include "common/job/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/sha256.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

const std::string kHash(64, 'a');

std::string ManifestJson(absl::string_view file_path, absl::string_view size,
                         absl::string_view sha256) {
  return absl::StrCat(R"({"format":1,"step":7,"files":[{"path":")", file_path, R"(","size":)", size,
                      R"(,"sha256":")", sha256, R"("}]})");
}

void WriteCheckpoint(const TempDir& dir, int step, const std::string& content) {
  const std::string name = absl::StrCat("step-", step);
  dir.Write(absl::StrCat(name, "/weights.bin"), content);
  dir.Write(
      absl::StrCat(name, "/manifest.json"),
      absl::StrCat(R"({"format":1,"step":)", step, R"(,"files":[{"path":"weights.bin","size":)",
                   content.size(), R"(,"sha256":")", Sha256HexOf(content), R"("}]})"));
}

TEST(CheckpointManifest, ParsesWhatTheTrainerWrites) {
  const auto manifest = ParseCheckpointManifest(ManifestJson("a/model.bin", "12", kHash));
  ASSERT_THAT(manifest, IsOk());
  EXPECT_EQ(manifest->step, 7);
  ASSERT_EQ(manifest->files.size(), 1u);
  EXPECT_EQ(manifest->files[0].path, "a/model.bin");
  EXPECT_EQ(manifest->files[0].size, 12);
  EXPECT_EQ(manifest->files[0].sha256, kHash);
}

TEST(CheckpointManifest, RefusesEverythingElse) {
  const std::string good = ManifestJson("f", "1", kHash);
  for (size_t cut = 0; cut < good.size(); ++cut) {
    EXPECT_FALSE(ParseCheckpointManifest(good.substr(0, cut)).ok()) << cut;
  }
  for (const std::string& bad : {
           std::string("[]"),
           std::string("null"),
           std::string("\xff\xfe"),
           std::string(R"({"format":2,"step":7,"files":[]})"),
           std::string(R"({"format":1,"step":-1,"files":[]})"),
           std::string(R"({"format":1,"step":1.5,"files":[]})"),
           std::string(R"({"format":1,"step":"7","files":[]})"),
           std::string(R"({"format":1,"step":18446744073709551615,"files":[]})"),
           std::string(R"({"format":1,"step":7,"files":{}})"),
           std::string(R"({"format":1,"step":7,"files":[3]})"),
           std::string(R"({"format":1,"step":7})"),
           ManifestJson("../f", "1", kHash),
           ManifestJson("/f", "1", kHash),
           ManifestJson("", "1", kHash),
           ManifestJson("a//f", "1", kHash),
           ManifestJson("f", "-1", kHash),
           ManifestJson("f", "null", kHash),
           ManifestJson("f", "1", "abc"),
           ManifestJson("f", "1", std::string(64, 'A')),
       }) {
    EXPECT_THAT(ParseCheckpointManifest(bad), StatusIs(absl::StatusCode::kInvalidArgument)) << bad;
  }
}

TEST(Checkpoints, AreListedByStepAndOnlyWhenPublishedWhole) {
  TempDir dir;
  EXPECT_TRUE(ListCheckpoints(dir.Sub("missing")).value().empty());
  WriteCheckpoint(dir, 100, "hundred");
  WriteCheckpoint(dir, 20, "twenty");
  WriteCheckpoint(dir, 300, "three hundred");
  ASSERT_THAT(RemoveTree(dir.Sub("step-300/weights.bin")), IsOk());  // a file is missing
  WriteCheckpoint(dir, 400, "four hundred");
  dir.Write("step-400/weights.bin", "four");  // a file is shorter
  dir.Write("step-500/weights.bin", "no manifest");
  dir.Write("step-600", "not a directory");
  WriteCheckpoint(dir, 700, "renamed");
  ASSERT_EQ(rename(dir.Sub("step-700").c_str(), dir.Sub(".tmp-step-700").c_str()), 0);
  WriteCheckpoint(dir, 800, "under another step's name");
  ASSERT_EQ(rename(dir.Sub("step-800").c_str(), dir.Sub("step-801").c_str()), 0);

  const auto checkpoints = ListCheckpoints(dir.path());
  ASSERT_THAT(checkpoints, IsOk());
  ASSERT_EQ(checkpoints->size(), 2u);
  EXPECT_EQ((*checkpoints)[0].path, dir.Sub("step-20"));
  EXPECT_EQ((*checkpoints)[0].manifest.step, 20);
  EXPECT_EQ((*checkpoints)[1].manifest.step, 100);
}

TEST(Checkpoints, VerifyReadsTheContent) {
  TempDir dir;
  WriteCheckpoint(dir, 1, "content");
  const CheckpointDir checkpoint = ListCheckpoints(dir.path()).value().at(0);
  EXPECT_THAT(VerifyCheckpoint(checkpoint), IsOk());
  dir.Write("step-1/weights.bin", "contenT");
  EXPECT_THAT(VerifyCheckpoint(checkpoint),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("step-1/weights.bin")));
  ASSERT_THAT(RemoveTree(dir.Sub("step-1/weights.bin")), IsOk());
  EXPECT_THAT(VerifyCheckpoint(checkpoint), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(Checkpoints, NewestIsTheNewestThatVerifies) {
  TempDir dir;
  EXPECT_THAT(NewestVerifiedCheckpoint(dir.path()), StatusIs(absl::StatusCode::kNotFound));
  WriteCheckpoint(dir, 1, "one");
  WriteCheckpoint(dir, 2, "two");
  EXPECT_EQ(NewestVerifiedCheckpoint(dir.path()).value().manifest.step, 2);
  dir.Write("step-2/weights.bin", "TWO");
  EXPECT_EQ(NewestVerifiedCheckpoint(dir.path()).value().manifest.step, 1);
}

// A device has no end, and a FIFO may never have a writer.
TEST(CheckpointTest, WhatIsNoFileIsNotRead) {
  TempDir dir;
  dir.Write("outside", "12345");
  for (const char* kind : {"device", "pipe", "link"}) {
    const std::string path = dir.Sub(kind);
    ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
    const std::string file = JoinPath(path, "w.bin");
    if (kind == std::string("device")) {
      ASSERT_EQ(symlink("/dev/zero", file.c_str()), 0);
    } else if (kind == std::string("pipe")) {
      ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
    } else {
      ASSERT_EQ(symlink("../outside", file.c_str()), 0);
    }
    CheckpointDir checkpoint;
    checkpoint.path = path;
    checkpoint.manifest.files = {{"w.bin", 5, Sha256HexOf("12345")}};
    EXPECT_THAT(VerifyCheckpoint(checkpoint), StatusIs(absl::StatusCode::kDataLoss)) << kind;
  }
}

}  // namespace
}  // namespace gpuctl
