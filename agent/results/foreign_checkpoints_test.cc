#include "agent/results/foreign_checkpoints.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using gpuctl::v1::CheckpointInfo;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

absl::Time Changed(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(lstat(path.c_str(), &info), 0) << path;
#if defined(__APPLE__)
  return absl::TimeFromTimespec(info.st_ctimespec);
#else
  return absl::TimeFromTimespec(info.st_ctim);
#endif
}

class ForeignCheckpointsTest : public ::testing::Test {
 protected:
  ForeignCheckpointsTest() {
    search_.patterns = {"outputs/checkpoint-*"};
    search_.now = absl::InfiniteFuture();
  }
  std::vector<std::string> Paths() {
    const auto found = FindForeignCheckpoints(dir_.path(), search_);
    EXPECT_OK(found);
    std::vector<std::string> paths;
    for (const CheckpointInfo& checkpoint : found.value()) paths.push_back(checkpoint.path());
    return paths;
  }
  TempDir dir_;
  ForeignSearch search_;
};

TEST_F(ForeignCheckpointsTest, ListedOnceNothingChangedForTheQuietTime) {
  const std::string file = dir_.Write("work/outputs/checkpoint-10/deep/weights", "abc");
  search_.now = Changed(file) + kCheckpointQuietTime - absl::Milliseconds(1);
  EXPECT_THAT(Paths(), IsEmpty());
  search_.now += absl::Seconds(1);
  EXPECT_THAT(Paths(), ElementsAre("work/outputs/checkpoint-10"));
  // A rename counts as a change, and so does a file deep below.
  const std::string old_name = dir_.Sub("work/outputs/checkpoint-10");
  const std::string new_name = dir_.Sub("work/outputs/checkpoint-11");
  search_.now = Changed(old_name) + kCheckpointQuietTime;
  // File times advance in steps; wait for the next step.
  while (true) {
    ASSERT_EQ(rename(old_name.c_str(), new_name.c_str()), 0);
    const bool moved = Changed(new_name) > search_.now - kCheckpointQuietTime;
    if (moved) break;
    ASSERT_EQ(rename(new_name.c_str(), old_name.c_str()), 0);
  }
  EXPECT_THAT(Paths(), IsEmpty());
}

TEST_F(ForeignCheckpointsTest, TimesThatTheWriterSetDoNotMatter) {
  const std::string file = dir_.Write("work/outputs/checkpoint-10/weights", "abc");
  const struct timespec old_times[2] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, file.c_str(), old_times, 0), 0);
  search_.now = Changed(file) + absl::Seconds(1);
  EXPECT_THAT(Paths(), IsEmpty());
}

TEST_F(ForeignCheckpointsTest, AClockThatWasSetBackHidesNothingForLong) {
  const std::string file = dir_.Write("work/outputs/checkpoint-10/weights", "abc");
  search_.now = Changed(file) - absl::Hours(1);
  EXPECT_THAT(Paths(), ElementsAre("work/outputs/checkpoint-10"));
}

TEST_F(ForeignCheckpointsTest, TemporaryTornAndLinkedOnesAreNot) {
  dir_.Write("work/outputs/checkpoint-10.tmp/weights", "abc");
  dir_.Write("work/outputs/.checkpoint-11/weights", "abc");
  dir_.Write("work/outputs/checkpoint-12/model.safetensors", "torn");
  dir_.Write("work/outputs/checkpoint-13/training_args.bin", "args");
  dir_.Write("work/outputs/checkpoint-14/weights", "abc");
  ASSERT_OK(MakeDirectories(dir_.Sub("work/outputs/checkpoint-16")));
  dir_.Write("outside/weights", "secret");
  ASSERT_EQ(symlink("../../outside", dir_.Sub("work/outputs/checkpoint-15").c_str()), 0);
  EXPECT_THAT(Paths(), ElementsAre("work/outputs/checkpoint-14"));
}

TEST_F(ForeignCheckpointsTest, DirectoriesAndFilesWithNamesStepsAndSizes) {
  search_.patterns = {"outputs/checkpoint-*/", "runs/**/best*.pt"};
  dir_.Write("work/outputs/checkpoint-250/a", "12345");
  dir_.Write("work/outputs/checkpoint-250/b/c", "678");
  dir_.Write("work/runs/x/y/best7.pt", "old pickle");
  const auto found = FindForeignCheckpoints(dir_.path(), search_);
  ASSERT_OK(found);
  ASSERT_EQ(found->size(), 2u);
  const bool file_first = (*found)[0].is_file();
  const CheckpointInfo& directory = (*found)[file_first ? 1 : 0];
  const CheckpointInfo& file = (*found)[file_first ? 0 : 1];
  EXPECT_EQ(directory.name(), "checkpoint-250");
  EXPECT_EQ(directory.step(), 250);
  EXPECT_EQ(directory.size(), 8);
  EXPECT_EQ(directory.kind(), CheckpointInfo::KIND_FOREIGN);
  EXPECT_GT(directory.modified_ms(), 0);
  ASSERT_EQ(directory.files_size(), 2);
  EXPECT_EQ(directory.files(1).path(), "work/outputs/checkpoint-250/b/c");
  EXPECT_TRUE(file.is_file());
  EXPECT_EQ(file.name(), "x/y/best7.pt");
  EXPECT_EQ(file.step(), 7);
}

TEST_F(ForeignCheckpointsTest, OldestFirst) {
  for (const int step : {9, 10, 8}) {
    const std::string file =
        dir_.Write("work/outputs/checkpoint-" + std::to_string(step) + "/weights", "abc");
    const struct timespec times[2] = {{step, 0}, {step, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
  }
  EXPECT_THAT(Paths(), ElementsAre("work/outputs/checkpoint-8", "work/outputs/checkpoint-9",
                                   "work/outputs/checkpoint-10"));
}

}  // namespace
}  // namespace gpuctl
