#include "agent/hold/results_copy.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "agent/base/node_root.h"
#include "agent/hold/keep_results.h"
#include "agent/hold/kept_layout.h"
#include "agent/hold/whole_copy.h"
#include "agent/jobs/artifacts.h"
#include "agent/jobs/watch.h"
#include "common/base/fake_clock.h"
#include "common/base/unique_fd.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/job/lifecycle.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using Type = LifecycleEvent::Type;

class ResultsCopyTest : public ::testing::Test {
 protected:
  ResultsCopyTest()
      : from_(PrepareNodeRoot(dir_.Sub("node")).value()),
        to_(dir_.Sub("shared/17-0")),
        streams_(from_, to_),
        files_(from_, to_, clock_) {
    EXPECT_OK(MakeDirectories(to_.jobs));
    EXPECT_OK(MakeDirectories(JoinPath(to_.root, kKeptTmp)));
    StoredSpec stored;
    stored.spec.set_job_id("j-1");
    stored.spec.add_argv("true");
    // Of four bytes each, so that the output has several.
    stored.spec.set_output_segment_bytes(4);
    stored.spec.mutable_kept()->add_checkpoints("out/*.pt");
    stored.spec.mutable_kept()->add_artifacts("*.bin");
    stored.spec_digest = SpecDigest(stored.spec);
    dir_.Write("node/jobs/j-1/spec.json", FormatStoredSpec(stored));
    // Its shim has it.
    lock_ = TryLock(from_.Job("j-1").lock).value();
    Append(Type::kStarted);
  }
  void Append(Type type) {
    LifecycleEvent event;
    event.type = type;
    event.attempt = 1;
    if (type == Type::kExited) event.exit_code = 0;
    StreamWriter writer = StreamWriter::Open(from_.Job("j-1").lifecycle, PlainShape()).value();
    ASSERT_OK(writer.Append(FormatLifecycleEvent(event)));
    if (type == Type::kExited) lock_.reset();
  }
  void Print(const std::string& text) {
    StreamWriter writer = StreamWriter::Open(from_.Job("j-1").output, StreamShape{4}).value();
    ASSERT_OK(writer.Append(text));
  }
  static std::string Read(const std::string& path) { return ReadFileToString(path).value_or("-"); }
  std::string OutputThere() {
    StreamReader reader(to_.Job("j-1").output, StreamShape{4});
    std::string all;
    char buffer[64];
    for (int64_t got = 0;
         (got = reader.Read(static_cast<int64_t>(all.size()), buffer, 64).value_or(0)) > 0;) {
      all.append(buffer, static_cast<size_t>(got));
    }
    return all;
  }
  // Returns what a watcher of the copy gets in the end.
  absl::Status Watch(std::string& output) {
    gpuctl::v1::WatchRequest request;
    request.set_job_id("j-1");
    request.add_cursors()->set_stream(gpuctl::v1::STREAM_OUTPUT);
    WatchSession::Callbacks callbacks;
    callbacks.send = [&](const gpuctl::v1::WatchReply& reply) {
      for (const gpuctl::v1::Chunk& chunk : reply.chunks()) output += chunk.data();
      return true;
    };
    callbacks.is_over = [] { return false; };
    callbacks.is_accepting = [] { return false; };
    return WatchSession(to_, "n-1", request, std::move(callbacks), clock_).Run();
  }

  TempDir dir_;
  FakeClock clock_;
  const RootPaths from_;
  const RootPaths to_;
  StreamsCopy streams_;
  FilesCopy files_;
  UniqueFd lock_;
};

TEST_F(ResultsCopyTest, StreamsGrowByteForByteAndTheCopyEndsWithItsJob) {
  Print("0123456789");
  ASSERT_OK(streams_.Pass(true));
  EXPECT_EQ(OutputThere(), "0123456789");
  EXPECT_EQ(Read(to_.Job("j-1").spec), Read(from_.Job("j-1").spec));
  std::string seen;
  EXPECT_THAT(Watch(seen), StatusIs(absl::StatusCode::kNotFound)) << "its end is not there";
  EXPECT_EQ(seen, "0123456789");
  Print("abc");
  Append(Type::kExited);
  ASSERT_OK(streams_.Pass(true));
  EXPECT_EQ(OutputThere(), "0123456789abc");
  EXPECT_EQ(Read(to_.Job("j-1").lifecycle), Read(from_.Job("j-1").lifecycle));
  seen.clear();
  EXPECT_OK(Watch(seen));
  EXPECT_EQ(seen, "0123456789abc");
}

TEST_F(ResultsCopyTest, AnotherKeeperGoesOnWhereTheFirstOneEnded) {
  Print("01234");
  ASSERT_OK(streams_.Pass(false));
  Print("56789");
  StreamsCopy other(from_, to_);
  ASSERT_OK(other.Pass(true));
  EXPECT_EQ(OutputThere(), "0123456789");
}

TEST_F(ResultsCopyTest, WhatTheNodeHasCutIsLeftOut) {
  Print("0123456789");
  StreamWriter writer = StreamWriter::Open(from_.Job("j-1").output, StreamShape{4}).value();
  ASSERT_OK(writer.CutTo(2, [](int64_t) { return absl::OkStatus(); }).status());
  ASSERT_OK(streams_.Pass(true));
  StreamReader reader(to_.Job("j-1").output, StreamShape{4});
  EXPECT_EQ(reader.GetExtent().value().first_offset, writer.first_offset());
  EXPECT_EQ(reader.GetExtent().value().size, 10);
}

TEST_F(ResultsCopyTest, CheckpointsComeWhenTheyAreWholeAndFilesAtTheEnd) {
  dir_.Write("node/jobs/j-1/work/out/a.pt", "weights");
  dir_.Write("node/jobs/j-1/work/out.bin", "result");
  dir_.Write("node/jobs/j-1/ckpt/plain.txt", "beside");
  dir_.Write("node/jobs/j-1/work/other", "no result");
  ASSERT_OK(streams_.Pass(true));
  ASSERT_OK(files_.Pass(false));
  EXPECT_EQ(Read(dir_.Sub("shared/17-0/jobs/j-1/work/out/a.pt")), "weights");
  EXPECT_FALSE(PathExists(dir_.Sub("shared/17-0/jobs/j-1/work/out.bin")));
  EXPECT_FALSE(files_.IsDue());
  Append(Type::kExited);
  EXPECT_TRUE(files_.IsDue());
  ASSERT_OK(streams_.Pass(true));
  ASSERT_OK(files_.Pass(false));
  EXPECT_FALSE(files_.IsDue());
  EXPECT_EQ(Read(dir_.Sub("shared/17-0/jobs/j-1/work/out.bin")), "result");
  EXPECT_EQ(Read(dir_.Sub("shared/17-0/jobs/j-1/ckpt/plain.txt")), "beside");
  EXPECT_FALSE(PathExists(dir_.Sub("shared/17-0/jobs/j-1/work/other")));
  EXPECT_EQ(
      Read(to_.Job("j-1").kept),
      "{\"whole\":true,\"files\":2,\"bytes\":12,\"checkpoint_files\":1,\"checkpoint_bytes\":7}\n");
  EXPECT_TRUE(ListDirectory(JoinPath(to_.root, kKeptTmp)).value().empty());
  // The copy lists as the node did, at once: nobody asks whether its writers ended well.
  gpuctl::v1::ListArtifactsRequest request;
  request.set_job_id("j-1");
  request.add_checkpoint_patterns("out/*.pt");
  FakeClock now(Clock::Real().Now());
  const auto listed = ListArtifacts(to_.Job("j-1"), request, now);
  ASSERT_OK(listed.status());
  ASSERT_EQ(listed->checkpoints_size(), 1);
  EXPECT_EQ(listed->checkpoints(0).path(), "work/out/a.pt");
  EXPECT_EQ(MissingInCopy(to_.Job("j-1"), now), "");
}

TEST_F(ResultsCopyTest, ItHasAllWhenEachJobIsOverAndCopied) {
  EXPECT_FALSE(files_.HasAll());
  ASSERT_OK(streams_.Pass(true));
  ASSERT_OK(files_.Pass(false));
  EXPECT_FALSE(files_.HasAll()) << "it runs";
  Append(Type::kExited);
  EXPECT_FALSE(files_.HasAll()) << "nothing of it is copied";
  ASSERT_OK(streams_.Pass(true));
  ASSERT_OK(files_.Pass(false));
  EXPECT_TRUE(files_.HasAll());
  EXPECT_FALSE(FilesCopy(RootPaths(dir_.Sub("other")), to_, clock_).HasAll()) << "there is no job";
}

TEST_F(ResultsCopyTest, ACheckpointThatTheJobHasRemovedGoesOnlyWhenANewerOneIsThere) {
  dir_.Write("node/jobs/j-1/work/out/a.pt", "old");
  ASSERT_OK(streams_.Pass(true));
  ASSERT_OK(files_.Pass(false));
  ASSERT_OK(RemoveTree(from_.Job("j-1").work + "/out/a.pt"));
  ASSERT_OK(files_.Pass(false));
  EXPECT_EQ(Read(dir_.Sub("shared/17-0/jobs/j-1/work/out/a.pt")), "old");
  dir_.Write("node/jobs/j-1/work/out/b.pt", "new");
  ASSERT_OK(files_.Pass(false));
  EXPECT_FALSE(PathExists(dir_.Sub("shared/17-0/jobs/j-1/work/out/a.pt")));
  EXPECT_EQ(Read(dir_.Sub("shared/17-0/jobs/j-1/work/out/b.pt")), "new");
}

TEST_F(ResultsCopyTest, AJobWhoseFilesDidNotAllComeSaysSo) {
  dir_.Write("node/jobs/j-1/work/out.bin", "result");
  ASSERT_OK(streams_.Pass(true));
  EXPECT_NE(MissingInCopy(to_.Job("j-1"), clock_), "");
  EXPECT_EQ(MissingInCopy(from_.Job("j-1"), clock_), "");
  // Something else has the place of the file.
  ASSERT_OK(MakeDirectories(dir_.Sub("shared/17-0/jobs/j-1/work/out.bin/x")));
  EXPECT_FALSE(files_.Pass(true).ok());
  EXPECT_NE(MissingInCopy(to_.Job("j-1"), clock_), "");
  EXPECT_TRUE(ListDirectory(JoinPath(to_.root, kKeptTmp)).value().empty());
}

TEST_F(ResultsCopyTest, ACopyThatLostFilesLaterSaysSo) {
  dir_.Write("node/jobs/j-1/work/out/a.pt", "weights");
  dir_.Write("node/jobs/j-1/work/out.bin", "result");
  dir_.Write("node/jobs/j-1/ckpt/plain.txt", "beside");
  ASSERT_OK(streams_.Pass(true));
  ASSERT_OK(files_.Pass(true));
  const auto missing = [this] { return MissingInCopy(to_.Job("j-1"), clock_); };
  EXPECT_EQ(missing(), "");
  for (const char* file : {"work/out/a.pt", "work/out.bin", "ckpt/plain.txt"}) {
    const std::string path = JoinPath(to_.Job("j-1").dir, file);
    const std::string content = Read(path);
    ASSERT_OK(WriteFileAtomic(path, content.substr(1)));
    EXPECT_NE(missing(), "") << file;
    ASSERT_OK(RemoveTree(path));
    EXPECT_EQ(missing(), "only 2 of the 3 files that were kept on the shared file system are there")
        << file;
    ASSERT_OK(WriteFileAtomic(path, content));
    EXPECT_EQ(missing(), "") << file;
  }
  dir_.Write("shared/17-0/jobs/j-1/kept.json", "");
  EXPECT_NE(missing(), "");
}

TEST_F(ResultsCopyTest, ATaskOfAnArrayHasStartsOfItsOwn) {
  const std::optional<AllocationStart> start = ParseAllocationStart("17_10-2");
  ASSERT_TRUE(start.has_value());
  EXPECT_EQ(start->job, "17_10");
  EXPECT_EQ(start->restart, 2);
  EXPECT_EQ(ParseAllocationStart("17_3-staged")->restart, kStaged);
  for (const char* other : {"17_-0", "_3-0", "17_[1-2]-0", "17-", "x-0", "17_3", "17_3-0-1"}) {
    EXPECT_FALSE(ParseAllocationStart(other).has_value()) << other;
  }
  dir_.Write("results/17_3-staged/node_id", "n\n");
  dir_.Write("results/17_3-0/node_id", "n\n");
  EXPECT_EQ(NewestCopy(dir_.Sub("results")).value(), dir_.Sub("results/17_3-0"));
}

TEST_F(ResultsCopyTest, TheNewestStartOfAnAllocationCounts) {
  EXPECT_THAT(NewestCopy(dir_.Sub("shared")), StatusIs(absl::StatusCode::kNotFound));
  for (const char* start : {"17-0", "17-2", "17-10", "17-11x", "other"}) {
    dir_.Write(absl::StrCat("shared/", start, "/node_id"), "n-1\n");
  }
  ASSERT_OK(MakeDirectories(dir_.Sub("shared/17-12")));
  EXPECT_EQ(NewestCopy(dir_.Sub("shared")).value(), dir_.Sub("shared/17-10"));
}

TEST_F(ResultsCopyTest, OnlyTheDirectoryWithTheTokenIsShared) {
  const std::string directory = dir_.Sub("shared");
  const auto never = [] { return false; };
  EXPECT_THAT(FindToken(
                  directory, "abc", absl::Hours(1), [] { return true; }, clock_),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(FindToken(directory, "abc", absl::ZeroDuration(), never, clock_),
              StatusIs(absl::StatusCode::kNotFound));
  dir_.Write("shared/token", "xyz\n");
  EXPECT_THAT(FindToken(directory, "abc", absl::ZeroDuration(), never, clock_),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(FindToken(directory, "", absl::ZeroDuration(), never, clock_),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_OK(FindToken(directory, "xyz", absl::ZeroDuration(), never, clock_));
}

}  // namespace
}  // namespace gpuctl
