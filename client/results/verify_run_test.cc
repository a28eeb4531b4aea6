#include "client/results/verify_run.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "absl/strings/str_format.h"
#include "common/job/lifecycle.h"
#include "common/tree/tree.h"
#include "tests/support/file_times.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr int64_t kSegment = 10;

class VerifyRunTest : public ::testing::Test {
 protected:
  void Output(int64_t start, const std::string& bytes) {
    dir_.Write(absl::StrFormat("run/output/%020d", start), bytes);
  }
  void Event(LifecycleEvent event) {
    lifecycle_ += FormatLifecycleEvent(event);
    dir_.Write("run/lifecycle.jsonl", lifecycle_);
  }
  void Exited(int64_t output_size) {
    LifecycleEvent event;
    event.type = LifecycleEvent::Type::kExited;
    event.attempt = 1;
    event.exit_code = 0;
    event.output_size = output_size;
    Event(event);
  }
  void Pulled() {
    PulledItem item = DescribePulled(dir_.Sub("home"), ScanTree(dir_.Sub("home")).value(), false);
    item.kind = PulledItem::Kind::kForeign;
    ASSERT_OK(PulledRecord(dir_.Sub("run")).Append(item));
  }
  // Returns "missing name" and the like, in the order found.
  std::vector<std::string> Problems() {
    const auto verified = VerifyRun(dir_.Sub("run"), kSegment, options_);
    EXPECT_OK(verified);
    std::vector<std::string> problems;
    for (const Problem& problem : verified.value().problems) {
      problems.push_back(std::string(ProblemWord(problem.kind)) + " " + BaseName(problem.path));
    }
    return problems;
  }
  TempDir dir_;
  VerifyOptions options_;
  std::string lifecycle_;
};

TEST_F(VerifyRunTest, ARunOfWhichNothingIsHereHasNoProblem) { EXPECT_THAT(Problems(), IsEmpty()); }

TEST_F(VerifyRunTest, OutputThatTheNodeLostIsNotAllOfIt) {
  Output(0, "01234");
  LifecycleEvent dropped;
  dropped.type = LifecycleEvent::Type::kDropped;
  dropped.output_size = 3;
  dropped.dropped_bytes = 100;
  Event(dropped);
  Exited(5);
  options_.ended = true;
  const auto verified = VerifyRun(dir_.Sub("run"), kSegment, options_);
  ASSERT_OK(verified);
  EXPECT_THAT(verified->problems, IsEmpty());
  EXPECT_TRUE(verified->over);
  EXPECT_FALSE(verified->complete);
  EXPECT_EQ(verified->loss.bytes, 100);
}

TEST_F(VerifyRunTest, OutputWithoutHolesAndOfTheNamedSize) {
  Output(0, "0123456789");
  Output(10, "0123456789");
  Output(20, "01234");
  Exited(25);
  options_.ended = true;
  EXPECT_THAT(Problems(), IsEmpty());
  Output(10, "012345678");
  EXPECT_THAT(Problems(), ElementsAre("missing output"));
  ASSERT_OK(RemoveTree(dir_.Sub("run/output/00000000000000000010")));
  EXPECT_THAT(Problems(), ElementsAre("missing output"));
  Output(10, "0123456789");
  Output(20, "0123");
  EXPECT_THAT(Problems(), ElementsAre("missing output"));
  // Until its end is recorded, more output may come.
  options_.ended = false;
  EXPECT_THAT(Problems(), IsEmpty());
}

TEST_F(VerifyRunTest, WhatLifecycleSaysWasCutIsNotMissing) {
  Output(20, "01234");
  EXPECT_THAT(Problems(), ElementsAre("missing output"));
  LifecycleEvent cut;
  cut.type = LifecycleEvent::Type::kCut;
  cut.first_offset = 20;
  Event(cut);
  EXPECT_THAT(Problems(), IsEmpty());
}

TEST_F(VerifyRunTest, MissingChangedAndCorruptFilesAreNamed) {
  for (const char* name : {"gone", "longer", "rewritten", "rotten", "whole", "empty"}) {
    dir_.Write(std::string("home/") + name, name == std::string("empty") ? "" : "contents");
  }
  Pulled();
  options_.read_data = true;
  EXPECT_THAT(Problems(), IsEmpty());
  ASSERT_OK(RemoveTree(dir_.Sub("home/gone")));
  dir_.Write("home/longer", "contents and more");
  dir_.Write("home/rewritten", "CONTENTS");
  struct stat before {};
  const std::string rotten = dir_.Sub("home/rotten");
  ASSERT_EQ(stat(rotten.c_str(), &before), 0);
  dir_.Write("home/rotten", "c0ntents");
  ASSERT_EQ(utimensat(AT_FDCWD, rotten.c_str(), TimesOf(before).data(), 0), 0);
  EXPECT_THAT(Problems(), UnorderedElementsAre("missing gone", "changed longer",
                                               "changed rewritten", "corrupt rotten"));
  options_.read_data = false;
  EXPECT_THAT(Problems(), UnorderedElementsAre("missing gone", "changed longer"));
}

TEST_F(VerifyRunTest, FilesInPartsAreComparedInAll) {
  std::string large(static_cast<size_t>(kPartBytes) + 5, 'x');
  dir_.Write("home/large", large);
  Pulled();
  options_.read_data = true;
  EXPECT_THAT(Problems(), IsEmpty());
  large.back() = 'y';
  dir_.Write("home/large", large);
  EXPECT_THAT(Problems(), ElementsAre("changed large"));
}

}  // namespace
}  // namespace gpuctl
