#include "client/streams/mirror.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using gpuctl::v1::STREAM_LIFECYCLE;
using gpuctl::v1::STREAM_OUTPUT;
using ::testing::HasSubstr;

constexpr int64_t kSegment = 64;

gpuctl::v1::Chunk Chunk(gpuctl::v1::Stream stream, int64_t offset, const std::string& data) {
  gpuctl::v1::Chunk chunk;
  chunk.set_stream(stream);
  chunk.set_offset(offset);
  chunk.set_data(data);
  return chunk;
}

std::string Stored(const std::string& dir) {
  StreamReader reader(MirrorPaths(dir).output, StreamShape{kSegment});
  std::string all;
  char buffer[256];
  for (;;) {
    const absl::StatusOr<int64_t> got =
        reader.Read(static_cast<int64_t>(all.size()), buffer, sizeof(buffer));
    if (!got.ok() || *got == 0) return all;
    all.append(buffer, static_cast<size_t>(*got));
  }
}

TEST(MirrorTest, OneWriterAtATime) {
  TempDir dir;
  const auto first = Mirror::Open(dir.Sub("m"), kSegment);
  ASSERT_OK(first);
  EXPECT_THAT(Mirror::Open(dir.Sub("m"), kSegment), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(MirrorTest, RepeatsChangeNothingAndGapsAreRefused) {
  TempDir dir;
  const auto mirror = Mirror::Open(dir.Sub("m"), kSegment);
  ASSERT_OK(mirror);
  EXPECT_OK((*mirror)->Apply(Chunk(STREAM_OUTPUT, 0, "hello")));
  EXPECT_OK((*mirror)->Apply(Chunk(STREAM_OUTPUT, 0, "hello")));
  EXPECT_OK((*mirror)->Apply(Chunk(STREAM_OUTPUT, 3, "lo world")));
  EXPECT_THAT((*mirror)->Apply(Chunk(STREAM_OUTPUT, 12, "gap")),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_EQ(Stored(dir.Sub("m")), "hello world");
  EXPECT_EQ((*mirror)->size(STREAM_OUTPUT), 11);
}

TEST(MirrorTest, WhatIsShownOnlyIsNotStored) {
  TempDir dir;
  const auto mirror = Mirror::Open(dir.Sub("m"), kSegment);
  ASSERT_OK(mirror);
  gpuctl::v1::Chunk tail = Chunk(STREAM_OUTPUT, 5000, "tail");
  tail.set_display_only(true);
  EXPECT_OK((*mirror)->Apply(tail));
  EXPECT_EQ((*mirror)->size(STREAM_OUTPUT), 0);
}

// A node that sends without end does not fill the disk.
TEST(MirrorTest, AFullStreamDropsTheRestAndSaysSo) {
  TempDir dir;
  MirrorLimits limits;
  limits.output = 100;
  limits.lifecycle = 10;
  {
    const auto mirror = Mirror::Open(dir.Sub("m"), kSegment, limits);
    ASSERT_OK(mirror);
    EXPECT_OK((*mirror)->Apply(Chunk(STREAM_OUTPUT, 0, std::string(90, 'a'))));
    EXPECT_FALSE((*mirror)->TakeNotice().has_value());
    EXPECT_OK((*mirror)->Apply(Chunk(STREAM_OUTPUT, 80, std::string(90, 'a'))));
    EXPECT_THAT((*mirror)->TakeNotice().value_or(""), HasSubstr("../output"));
    EXPECT_OK((*mirror)->Apply(Chunk(STREAM_OUTPUT, 170, std::string(90, 'a'))));
    EXPECT_FALSE((*mirror)->TakeNotice().has_value());
    EXPECT_EQ((*mirror)->size(STREAM_OUTPUT), 100);
    EXPECT_OK((*mirror)->Apply(Chunk(STREAM_LIFECYCLE, 0, std::string(90, 'a'))));
    EXPECT_EQ((*mirror)->size(STREAM_LIFECYCLE), 10);
  }
  // The next connection does not store more either.
  const auto mirror = Mirror::Open(dir.Sub("m"), kSegment, limits);
  ASSERT_OK(mirror);
  EXPECT_OK((*mirror)->Apply(Chunk(STREAM_OUTPUT, 100, std::string(90, 'a'))));
  EXPECT_EQ(Stored(dir.Sub("m")), std::string(100, 'a'));
}

TEST(MirrorTest, WhatWasSetAsideCountsToo) {
  TempDir dir;
  MirrorLimits limits;
  limits.output = 100;
  const auto mirror = Mirror::Open(dir.Sub("m"), kSegment, limits);
  ASSERT_OK(mirror);
  for (int i = 0; i < 5; ++i) {
    EXPECT_OK((*mirror)->Apply(Chunk(STREAM_OUTPUT, 0, std::string(50, 'a'))));
    gpuctl::v1::StreamHeader header;
    header.set_stream(STREAM_OUTPUT);
    header.set_diverged(true);
    EXPECT_OK((*mirror)->Apply(header));
  }
  int64_t bytes = 0;
  for (const std::string& name : dir.Names("m")) {
    struct stat info {};
    ASSERT_EQ(lstat(dir.Sub("m/" + name).c_str(), &info), 0);
    if (S_ISREG(info.st_mode)) bytes += info.st_size;
  }
  EXPECT_LE(bytes, 100);
}

gpuctl::v1::StreamHeader Header(gpuctl::v1::Stream stream, int64_t resume_offset) {
  gpuctl::v1::StreamHeader header;
  header.set_stream(stream);
  header.set_resume_offset(resume_offset);
  header.set_diverged(true);
  return header;
}

// A node that diverges again and again fills neither the disk nor its table of files.
TEST(MirrorTest, OnlySoMuchIsSetAside) {
  for (const gpuctl::v1::Stream stream : {gpuctl::v1::STREAM_TELEMETRY, gpuctl::v1::STREAM_METRICS,
                                          gpuctl::v1::STREAM_LIFECYCLE, STREAM_OUTPUT}) {
    TempDir dir;
    MirrorLimits limits;
    limits.output = limits.metrics = limits.lifecycle = limits.telemetry = 20'000;
    const auto mirror = Mirror::Open(dir.Sub("m"), kSegment, limits);
    ASSERT_OK(mirror);
    std::string notice;
    // Telemetry has segments of 1 MiB, so its files may be larger.
    const size_t size = stream == gpuctl::v1::STREAM_TELEMETRY ? 400'000 : 1;
    for (int i = 0; i < 50; ++i) {
      EXPECT_OK((*mirror)->Apply(Chunk(stream, 0, std::string(size, 'a'))));
      const auto said = (*mirror)->Apply(Header(stream, 0));
      ASSERT_OK(said);
      if (said->has_value()) notice = **said;
    }
    EXPECT_LE(dir.Names("m").size(), 12) << stream;
    EXPECT_THAT(notice, HasSubstr("were removed")) << stream;
    // The mirror goes on.
    EXPECT_EQ((*mirror)->size(stream), 0) << stream;
  }
}

// The one that had room is there, whatever its size.
TEST(MirrorTest, TheFirstBytesSetAsideStay) {
  TempDir dir;
  MirrorLimits limits;
  limits.output = 100;
  const auto mirror = Mirror::Open(dir.Sub("m"), kSegment, limits);
  ASSERT_OK(mirror);
  EXPECT_OK((*mirror)->Apply(Chunk(STREAM_OUTPUT, 0, std::string(200, 'a'))));
  const auto said = (*mirror)->Apply(Header(STREAM_OUTPUT, 10));
  ASSERT_OK(said);
  EXPECT_THAT(said->value_or(""), HasSubstr("90 stored bytes were set aside in "));
}

TEST(MirrorTest, HolesCostRoomToo) {
  TempDir dir;
  MirrorLimits limits;
  limits.output = 20'000;
  {
    const auto mirror = Mirror::Open(dir.Sub("m"), kSegment, limits);
    ASSERT_OK(mirror);
    for (int i = 0; i < 50; ++i) {
      gpuctl::v1::StreamHeader header = Header(STREAM_OUTPUT, i * kSegment);
      header.set_diverged(false);
      EXPECT_OK((*mirror)->Apply(header));
      EXPECT_OK((*mirror)->Apply(Chunk(STREAM_OUTPUT, i * kSegment, "x")));
    }
    EXPECT_LE(dir.Names("m/output").size(), 8);
    EXPECT_TRUE((*mirror)->TakeNotice().has_value());
  }
  // What is full is complete, for whoever waits for its end.
  const auto mirror = Mirror::Open(dir.Sub("m"), kSegment, limits);
  ASSERT_OK(mirror);
  EXPECT_OK((*mirror)->Apply(
      Chunk(STREAM_LIFECYCLE, 0,
            "{\"event\":\"exited\",\"attempt\":1,\"exit_code\":0,\"output_size\":900000}\n")));
  EXPECT_EQ(MirrorIsComplete(dir.Sub("m"), kSegment, limits).value(), true);
}

// Nothing is stored before that place, so what diverges there cannot be judged. All stays as it is.
TEST(MirrorTest, ADivergenceInTheMiddleOfAHoleIsRefused) {
  TempDir dir;
  const auto mirror = Mirror::Open(dir.Sub("m"), kSegment);
  ASSERT_OK(mirror);
  EXPECT_OK((*mirror)->Apply(Chunk(STREAM_OUTPUT, 0, "x")));
  EXPECT_OK((*mirror)->Apply(Header(STREAM_OUTPUT, 3 * kSegment)));
  EXPECT_OK((*mirror)->Apply(Chunk(STREAM_OUTPUT, 3 * kSegment, "after")));
  const std::vector<std::string> before = dir.Names("m");
  for (const int64_t offset : {kSegment / 2, kSegment + 1, 3 * kSegment - 1}) {
    EXPECT_THAT((*mirror)->Apply(Header(STREAM_OUTPUT, offset)).status(),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("are not here")));
  }
  EXPECT_EQ((*mirror)->size(STREAM_OUTPUT), 3 * kSegment + 5);
  EXPECT_EQ(dir.Names("m"), before);
}

TEST(MirrorTest, TelemetryKeepsItsNewestBytes) {
  TempDir dir;
  MirrorLimits limits;
  limits.telemetry = 2 << 20;
  const auto mirror = Mirror::Open(dir.Sub("m"), kSegment, limits);
  ASSERT_OK(mirror);
  for (int i = 0; i < 16; ++i) {
    EXPECT_OK((*mirror)->Apply(
        Chunk(gpuctl::v1::STREAM_TELEMETRY, int64_t{i} << 20, std::string(1 << 20, 'a'))));
  }
  EXPECT_EQ((*mirror)->size(gpuctl::v1::STREAM_TELEMETRY), 16 << 20);
  EXPECT_LE(dir.Names("m/telemetry").size(), 5u);
}

TEST(MirrorTest, AMirrorIsCompleteWithWhatTheLimitsAllow) {
  TempDir dir;
  MirrorLimits limits;
  limits.output = 100;
  const auto mirror = Mirror::Open(dir.Sub("m"), kSegment, limits);
  ASSERT_OK(mirror);
  LifecycleEvent exited;
  exited.type = LifecycleEvent::Type::kExited;
  exited.attempt = 1;
  exited.exit_code = 0;
  exited.output_size = 200;
  EXPECT_OK((*mirror)->Apply(Chunk(STREAM_LIFECYCLE, 0, FormatLifecycleEvent(exited))));
  EXPECT_OK((*mirror)->Apply(Chunk(STREAM_OUTPUT, 0, std::string(99, 'a'))));
  EXPECT_FALSE(MirrorIsComplete(dir.Sub("m"), kSegment, limits).value_or(true));
  EXPECT_OK((*mirror)->Apply(Chunk(STREAM_OUTPUT, 99, std::string(101, 'a'))));
  EXPECT_TRUE(MirrorIsComplete(dir.Sub("m"), kSegment, limits).value_or(false));
}

TEST(MirrorTest, OffsetsThatNoStreamHasAreRefused) {
  TempDir dir;
  const auto mirror = Mirror::Open(dir.Sub("m"), kSegment);
  ASSERT_OK(mirror);
  for (const int64_t offset : {INT64_MIN, int64_t{-64}, INT64_MAX / kSegment * kSegment}) {
    gpuctl::v1::StreamHeader header;
    header.set_stream(STREAM_OUTPUT);
    header.set_resume_offset(offset);
    header.set_diverged(true);
    EXPECT_THAT((*mirror)->Apply(header).status(), StatusIs(absl::StatusCode::kDataLoss));
    EXPECT_FALSE((*mirror)->Apply(Chunk(STREAM_OUTPUT, offset, "x")).ok());
  }
  EXPECT_EQ((*mirror)->size(STREAM_OUTPUT), 0);
}

// The n-th file operation fails, once or for ever. The stored bytes are always a prefix of the
// received ones. When the disk works again, the same chunks, sent again from the mirror's own
// cursor, complete it.
class MirrorFaultTest : public ::testing::TestWithParam<bool> {};

TEST_P(MirrorFaultTest, EveryFailureLeavesABeginning) {
  const bool for_ever = GetParam();
  std::string text;
  for (int i = 0; i < 200; ++i) text += std::to_string(10'000 + i);
  bool untouched = false;
  int n = 1;
  for (; !untouched && n < 500; ++n) {
    TempDir dir;
    int seen = 0;
    file_ops::SetFaultHook([&](file_ops::Op, const std::string&) {
      ++seen;
      return seen == n || (for_ever && seen > n) ? ENOSPC : 0;
    });
    auto feed = [&]() -> absl::Status {
      absl::StatusOr<std::unique_ptr<Mirror>> mirror = Mirror::Open(dir.Sub("m"), kSegment);
      if (!mirror.ok()) return mirror.status();
      while ((*mirror)->size(STREAM_OUTPUT) < static_cast<int64_t>(text.size())) {
        const int64_t at = (*mirror)->size(STREAM_OUTPUT);
        const absl::Status status =
            (*mirror)->Apply(Chunk(STREAM_OUTPUT, at, text.substr(static_cast<size_t>(at), 90)));
        if (!status.ok()) return status;
      }
      absl::Status status = (*mirror)->Apply(Chunk(STREAM_LIFECYCLE, 0, "{}\n"));
      status.Update((*mirror)->Sync());
      return status;
    };
    const absl::Status first = feed();
    untouched = first.ok() && seen < n;
    file_ops::SetFaultHook(nullptr);
    const std::string stored = Stored(dir.Sub("m"));
    ASSERT_EQ(stored, text.substr(0, stored.size())) << "n = " << n;
    ASSERT_OK(feed()) << "n = " << n;
    ASSERT_EQ(Stored(dir.Sub("m")), text) << "n = " << n;
  }
  EXPECT_TRUE(untouched);
  EXPECT_GT(n, 20) << "hardly an operation was made to fail";
}

INSTANTIATE_TEST_SUITE_P(OnceAndForEver, MirrorFaultTest, ::testing::Bool());

}  // namespace
}  // namespace gpuctl
