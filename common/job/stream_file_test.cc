#include "common/job/stream_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kSegment = 8192;

// Returns bytes that differ from place to place.
std::string Pattern(int64_t from, int64_t size, int seed = 0) {
  std::string bytes;
  for (int64_t i = from; i < from + size; ++i) {
    bytes.push_back(static_cast<char>((i * 131 + i / 251 + seed) % 255 + 1));
  }
  return bytes;
}

std::string ReadAll(StreamReader& reader, int64_t offset) {
  std::string all;
  char buffer[1000];
  while (true) {
    const auto got = reader.Read(offset + static_cast<int64_t>(all.size()), buffer, sizeof(buffer));
    if (!got.ok() || *got == 0) return all;
    all.append(buffer, static_cast<size_t>(*got));
  }
}

class StreamTest : public ::testing::TestWithParam<int64_t> {
 protected:
  StreamShape shape() const { return StreamShape{GetParam()}; }
  std::string path() const { return JoinPath(dir_.path(), "stream"); }
  StreamWriter Open() {
    auto writer = StreamWriter::Open(path(), shape());
    EXPECT_OK(writer);
    return *std::move(writer);
  }
  StreamReader Reader() { return StreamReader(path(), shape()); }
  void TearDown() override { file_ops::SetFaultHook(nullptr); }

  TempDir dir_;
};

INSTANTIATE_TEST_SUITE_P(Shapes, StreamTest, ::testing::Values(0, kSegment));

TEST_P(StreamTest, WhatIsAppendedIsReadBackAtItsOffset) {
  StreamWriter writer = Open();
  const std::string data = Pattern(0, 30000);
  for (size_t at = 0; at < data.size(); at += 700) {
    ASSERT_OK(writer.Append(absl::string_view(data).substr(at, 700)));
  }
  EXPECT_EQ(writer.size(), 30000);
  StreamReader reader = Reader();
  const auto extent = reader.GetExtent();
  ASSERT_OK(extent);
  EXPECT_EQ(extent->first_offset, 0);
  EXPECT_EQ(extent->size, 30000);
  EXPECT_EQ(ReadAll(reader, 0), data);
  EXPECT_EQ(ReadAll(reader, 12345), data.substr(12345));
}

TEST_P(StreamTest, AMissingStreamIsEmpty) {
  StreamReader reader = Reader();
  const auto extent = reader.GetExtent();
  ASSERT_OK(extent);
  EXPECT_EQ(extent->size, 0);
  char byte = 0;
  EXPECT_EQ(*reader.Read(0, &byte, 1), 0);
  EXPECT_EQ(*reader.NextStored(5), 0);
}

TEST_P(StreamTest, ANewWriterGoesOnWhereTheDiskEnds) {
  ASSERT_OK(Open().Append(Pattern(0, 10000)));
  StreamWriter again = Open();
  EXPECT_EQ(again.size(), 10000);
  ASSERT_OK(again.Append(Pattern(10000, 10000)));
  StreamReader reader = Reader();
  EXPECT_EQ(ReadAll(reader, 0), Pattern(0, 20000));
}

TEST_P(StreamTest, RepeatsChangeNothingAndGapsAreRefused) {
  StreamWriter writer = Open();
  ASSERT_OK(writer.WriteAt(0, Pattern(0, 9000)));
  ASSERT_OK(writer.WriteAt(0, std::string(9000, 'x')));
  ASSERT_OK(writer.WriteAt(8000, std::string(1000, 'x') + Pattern(9000, 500)));
  EXPECT_EQ(writer.size(), 9500);
  EXPECT_TRUE(absl::IsFailedPrecondition(writer.WriteAt(9501, "z")));
  EXPECT_TRUE(absl::IsFailedPrecondition(writer.WriteAt(-1, "z")));
  StreamReader reader = Reader();
  EXPECT_EQ(ReadAll(reader, 0), Pattern(0, 9500));
}

TEST_P(StreamTest, TornLastLineIsEndedOnce) {
  ASSERT_OK(Open().Append("{\"a\":1}\n{\"b\""));
  StreamWriter again = Open();
  ASSERT_OK(again.TerminateLine());
  ASSERT_OK(again.TerminateLine());
  StreamReader reader = Reader();
  EXPECT_EQ(ReadAll(reader, 0), "{\"a\":1}\n{\"b\"\n");
}

TEST_P(StreamTest, TerminateLineLeavesAnEmptyStreamEmpty) {
  StreamWriter writer = Open();
  ASSERT_OK(writer.TerminateLine());
  EXPECT_EQ(writer.size(), 0);
}

TEST_P(StreamTest, AReaderFollowsAWriter) {
  StreamWriter writer = Open();
  StreamReader reader = Reader();
  char buffer[100];
  int64_t offset = 0;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(*reader.Read(offset, buffer, sizeof(buffer)), 0);
    ASSERT_OK(writer.Append(Pattern(offset, 77)));
    std::string got;
    while (got.size() < 77) {  // a segment's end splits a chunk in two
      const auto part = reader.Read(offset + static_cast<int64_t>(got.size()), buffer, 100);
      ASSERT_OK(part);
      ASSERT_GT(*part, 0);
      got.append(buffer, static_cast<size_t>(*part));
    }
    EXPECT_EQ(got, Pattern(offset, 77));
    offset += 77;
  }
}

TEST_P(StreamTest, SetAsideKeepsTheBytesAndShortensTheStream) {
  StreamWriter writer = Open();
  ASSERT_OK(writer.Append(Pattern(0, 30000)));
  const auto aside = writer.SetAside(10000, "now");
  ASSERT_OK(aside);
  EXPECT_EQ(*aside, path() + ".diverged-now");
  EXPECT_EQ(*ReadFileToString(*aside), Pattern(10000, 20000));
  EXPECT_EQ(writer.size(), 10000);
  ASSERT_OK(writer.WriteAt(10000, Pattern(10000, 20000, 7)));
  StreamReader reader = Reader();
  EXPECT_EQ(ReadAll(reader, 0), Pattern(0, 10000) + Pattern(10000, 20000, 7));
  // A second divergence does not overwrite the first one's bytes.
  const auto second = writer.SetAside(0, "now");
  ASSERT_OK(second);
  EXPECT_NE(*second, *aside);
  EXPECT_EQ(writer.size(), 0);
  EXPECT_EQ(Open().size(), 0);
}

TEST_P(StreamTest, AReaderFindsWhatTookThePlaceOfBytesSetAside) {
  StreamWriter writer = Open();
  ASSERT_OK(writer.Append(Pattern(0, 103)));
  StreamReader reader = Reader();
  EXPECT_EQ(ReadAll(reader, 0).size(), 103u);
  ASSERT_OK(writer.SetAside(0, "now"));
  ASSERT_OK(writer.Append(Pattern(0, 125, 7)));
  char buffer[100];
  const auto got = reader.Read(103, buffer, sizeof(buffer));
  ASSERT_OK(got);
  EXPECT_EQ(std::string(buffer, static_cast<size_t>(*got)), Pattern(103, 22, 7));
}

TEST_P(StreamTest, SyncSurvivesSegmentsThatWereLeftBehind) {
  StreamWriter writer = Open();
  ASSERT_OK(writer.Append(Pattern(0, 3 * kSegment + 5)));
  int syncs = 0;
  file_ops::SetFaultHook([&](file_ops::Op op, const std::string&) {
    syncs += op == file_ops::Op::kSync ? 1 : 0;
    return 0;
  });
  ASSERT_OK(writer.Sync());
  // One for each file, one for their directory.
  EXPECT_EQ(syncs, shape().segment_bytes == 0 ? 2 : 5);
  syncs = 0;
  ASSERT_OK(writer.Sync());
  EXPECT_EQ(syncs, 0);
}

// The n-th operation fails, for every n, once or for ever. The stream then holds a prefix of the
// data, and the next writes complete it.
TEST_P(StreamTest, EveryFailingOperationLeavesAPrefixThatCanBeContinued) {
  const std::string data = Pattern(0, 40000);
  for (const bool for_ever : {false, true}) {
    bool reached = true;
    for (int n = 0; reached; ++n) {
      ASSERT_OK(RemoveTree(path()));
      int count = 0;
      file_ops::SetFaultHook([&](file_ops::Op, const std::string&) {
        const int now = count++;
        return now == n || (for_ever && now > n) ? ENOSPC : 0;
      });
      auto writer = StreamWriter::Open(path(), shape());
      if (writer.ok()) {
        for (size_t at = 0; at < data.size(); at += 3000) {
          if (!writer->WriteAt(static_cast<int64_t>(at), absl::string_view(data).substr(at, 3000))
                   .ok()) {
            break;
          }
        }
        writer->Sync().IgnoreError();
      }
      reached = count > n;
      file_ops::SetFaultHook(nullptr);
      StreamReader reader = Reader();
      const std::string stored = ReadAll(reader, 0);
      EXPECT_EQ(stored, data.substr(0, stored.size())) << "operation " << n;
      if (writer.ok()) {
        EXPECT_EQ(writer->size(), static_cast<int64_t>(stored.size()));
      }
      auto again = StreamWriter::Open(path(), shape());
      ASSERT_OK(again);
      ASSERT_OK(again->WriteAt(0, data));
      ASSERT_OK(again->Sync());
      StreamReader whole = Reader();
      EXPECT_EQ(ReadAll(whole, 0), data) << "operation " << n;
    }
  }
}

// The same failures in SetAside: the moved bytes are in the stream or in a whole copy.
TEST_P(StreamTest, EveryFailingOperationOfSetAsideLosesNothing) {
  const std::string data = Pattern(0, 30000);
  bool reached = true;
  for (int n = 0; reached; ++n) {
    TempDir fresh;
    const std::string stream = JoinPath(fresh.path(), "s");
    auto writer = StreamWriter::Open(stream, shape());
    ASSERT_OK(writer);
    ASSERT_OK(writer->Append(data));
    int count = 0;
    file_ops::SetFaultHook(
        [&](file_ops::Op, const std::string&) { return count++ == n ? EIO : 0; });
    const auto aside = writer->SetAside(10000, "x");
    reached = count > n;
    file_ops::SetFaultHook(nullptr);
    StreamReader reader(stream, shape());
    const std::string kept = ReadAll(reader, 0);
    EXPECT_EQ(kept, data.substr(0, kept.size()));
    EXPECT_GE(kept.size(), 10000u);
    if (kept.size() < data.size()) {
      const auto copy = ReadFileToString(stream + ".diverged-x");
      ASSERT_OK(copy);
      EXPECT_EQ(*copy, data.substr(10000));
    }
  }
}

TEST(PlainStreamTest, RewriteRepeatsStoredBytesOnly) {
  TempDir dir;
  auto writer = StreamWriter::Open(JoinPath(dir.path(), "s"), StreamShape{0});
  ASSERT_OK(writer);
  ASSERT_OK(writer->Append("0123456789"));
  EXPECT_OK(writer->Rewrite(4, "456789"));
  EXPECT_EQ(writer->size(), 10);
  EXPECT_TRUE(absl::IsFailedPrecondition(writer->Rewrite(5, "567890")));
}

class SegmentedTest : public StreamTest {};
INSTANTIATE_TEST_SUITE_P(Segmented, SegmentedTest, ::testing::Values(kSegment));

TEST_P(SegmentedTest, FilesAreNamedByTheirFirstOffset) {
  StreamWriter writer = Open();
  ASSERT_OK(writer.Append(Pattern(0, kSegment * 2 + 1)));
  EXPECT_THAT(*ListDirectory(path()),
              ElementsAre("00000000000000000000", "00000000000000008192", "00000000000000016384"));
}

TEST_P(SegmentedTest, ForeignNamesAreIgnored) {
  StreamWriter writer = Open();
  ASSERT_OK(writer.Append("abc"));
  for (const char* name :
       {"notes", "1", "00000000000000000007x", "00000000000000000007", "99999999999999999999"}) {
    ASSERT_OK(WriteFileAtomic(JoinPath(path(), name), "zzz"));
  }
  StreamReader reader = Reader();
  EXPECT_EQ(reader.GetExtent()->size, 3);
  EXPECT_EQ(Open().size(), 3);
}

TEST_P(SegmentedTest, CutAnnouncesFirstThenRemovesWholeSegments) {
  StreamWriter writer = Open();
  ASSERT_OK(writer.Append(Pattern(0, kSegment * 5 + 100)));
  int64_t announced = 0;
  const auto first = writer.CutTo(kSegment, [&](int64_t offset) {
    announced = offset;
    EXPECT_THAT(*ListSegments(path()), SizeIs(6));
    return absl::OkStatus();
  });
  ASSERT_OK(first);
  EXPECT_EQ(*first, announced);
  EXPECT_EQ(*first, kSegment * 4);
  EXPECT_LE(writer.size() - *first, 2 * kSegment);
  StreamReader reader = Reader();
  char byte = 0;
  EXPECT_TRUE(absl::IsOutOfRange(reader.Read(0, &byte, 1).status()));
  EXPECT_EQ(*reader.NextStored(0), kSegment * 4);
  EXPECT_EQ(ReadAll(reader, kSegment * 4), Pattern(kSegment * 4, kSegment + 100));
  StreamWriter again = Open();
  EXPECT_EQ(again.first_offset(), kSegment * 4);
  EXPECT_EQ(again.size(), kSegment * 5 + 100);
}

TEST_P(SegmentedTest, CutKeepsTheTailAndStopsWhenItCannotBeAnnounced) {
  StreamWriter writer = Open();
  ASSERT_OK(writer.Append(Pattern(0, kSegment * 3)));
  EXPECT_FALSE(writer.CutTo(0, [](int64_t) { return absl::InternalError("no"); }).ok());
  EXPECT_THAT(*ListSegments(path()), SizeIs(3));
  ASSERT_OK(writer.CutTo(-5, [](int64_t) { return absl::OkStatus(); }));
  EXPECT_EQ(writer.first_offset(), kSegment * 2);
  ASSERT_OK(writer.Append("on"));
  StreamReader reader = Reader();
  EXPECT_EQ(ReadAll(reader, kSegment * 3), "on");
}

TEST_P(SegmentedTest, AReaderInsideACutSegmentKeepsReadingIt) {
  StreamWriter writer = Open();
  ASSERT_OK(writer.Append(Pattern(0, kSegment * 4)));
  StreamReader reader = Reader();
  char byte = 0;
  ASSERT_EQ(*reader.Read(0, &byte, 1), 1);
  ASSERT_OK(writer.CutTo(0, [](int64_t) { return absl::OkStatus(); }));
  ASSERT_EQ(*reader.Read(1, &byte, 1), 1);
  EXPECT_EQ(byte, Pattern(1, 1)[0]);
  EXPECT_TRUE(absl::IsOutOfRange(reader.Read(kSegment, &byte, 1).status()));
}

TEST_P(SegmentedTest, SkipMakesAHoleThatLasts) {
  {
    StreamWriter writer = Open();
    ASSERT_OK(writer.Append(Pattern(0, 100)));
    EXPECT_TRUE(absl::IsFailedPrecondition(writer.SkipTo(kSegment + 1)));
    ASSERT_OK(writer.SkipTo(3 * kSegment));
  }
  StreamWriter writer = Open();
  EXPECT_EQ(writer.size(), 3 * kSegment);
  EXPECT_EQ(writer.first_offset(), 0);
  ASSERT_OK(writer.WriteAt(3 * kSegment, "after"));
  StreamReader reader = Reader();
  EXPECT_EQ(ReadAll(reader, 0), Pattern(0, 100));
  char byte = 0;
  for (const int64_t hole : {int64_t{100}, kSegment, 2 * kSegment}) {
    EXPECT_TRUE(absl::IsOutOfRange(reader.Read(hole, &byte, 1).status())) << hole;
    EXPECT_EQ(*reader.NextStored(hole), 3 * kSegment);
  }
  EXPECT_EQ(ReadAll(reader, 3 * kSegment), "after");
}

// Zeros in place of missing bytes would look as if the job had written them.
TEST_P(SegmentedTest, NothingIsSetAsideFromTheMiddleOfAHole) {
  StreamWriter writer = Open();
  ASSERT_OK(writer.Append("x"));
  ASSERT_OK(writer.SkipTo(3 * kSegment));
  ASSERT_OK(writer.Append("after"));
  for (const int64_t offset : {int64_t{4}, kSegment + 1, 3 * kSegment - 1}) {
    EXPECT_TRUE(absl::IsInvalidArgument(writer.SetAside(offset, "a").status())) << offset;
  }
  EXPECT_EQ(writer.size(), 3 * kSegment + 5);
  EXPECT_OK(writer.SetAside(3 * kSegment + 2, "a"));
  EXPECT_OK(writer.SetAside(2 * kSegment, "a"));
  EXPECT_OK(writer.SetAside(1, "a"));
  StreamReader reader = Reader();
  EXPECT_EQ(ReadAll(reader, 0), "x");
  EXPECT_EQ(reader.GetExtent()->size, 1);
}

TEST_P(SegmentedTest, SkipsOneAfterAnotherLeaveOneFile) {
  StreamWriter writer = Open();
  ASSERT_OK(writer.Append("before"));
  for (int i = 1; i <= 20; ++i) ASSERT_OK(writer.SkipTo(i * kSegment));
  ASSERT_OK(writer.Append("after"));
  ASSERT_OK(writer.Sync());
  const auto segments = ListSegments(path());
  ASSERT_OK(segments);
  EXPECT_EQ(*segments, (std::vector<int64_t>{0, 20 * kSegment}));
  EXPECT_EQ(Open().size(), 20 * kSegment + 5);
}

TEST_P(SegmentedTest, SkipFromNothingMovesTheBeginning) {
  StreamWriter writer = Open();
  ASSERT_OK(writer.SkipTo(2 * kSegment));
  EXPECT_EQ(writer.first_offset(), 2 * kSegment);
  EXPECT_EQ(Open().first_offset(), 2 * kSegment);
  StreamReader reader = Reader();
  EXPECT_EQ(reader.GetExtent()->first_offset, 2 * kSegment);
}

// --- proofs -------------------------------------------------------------------------------------

class ProofTest : public SegmentedTest {
 protected:
  std::string other() const { return JoinPath(dir_.path(), "other"); }
  void Write(const std::string& where, const std::string& bytes) {
    ASSERT_OK(RemoveTree(where));
    auto writer = StreamWriter::Open(where, shape());
    ASSERT_OK(writer);
    ASSERT_OK(writer->Append(bytes));
  }
  // Returns the answer of `node` to `mirror`.
  ResumePoint Resume(const std::string& node, const std::string& mirror) {
    StreamReader mine(mirror, shape());
    StreamReader theirs(node, shape());
    const auto proofs = MakeProofs(mine);
    EXPECT_OK(proofs);
    const auto point = FindResumePoint(theirs, mine.GetExtent()->size, *proofs);
    EXPECT_OK(point);
    return *point;
  }
};
INSTANTIATE_TEST_SUITE_P(Shapes, ProofTest, ::testing::Values(0, kSegment));

TEST_P(ProofTest, DistancesDouble) {
  Write(path(), Pattern(0, 100000));
  StreamReader reader = Reader();
  const auto proofs = MakeProofs(reader);
  ASSERT_OK(proofs);
  std::vector<int64_t> ends;
  for (const StreamProof& proof : *proofs) ends.push_back(proof.offset);
  EXPECT_THAT(ends, ElementsAre(100000, 95904, 91808, 83616, 67232, 34464));
  EXPECT_EQ((*proofs)[0].sha256, Sha256Of(Pattern(95904, 4096)));
}

TEST_P(ProofTest, AnEqualBeginningGoesOnAtTheCursor) {
  Write(path(), Pattern(0, 50000));
  for (const int64_t size : {0, 1, 4095, 4096, 4097, 8192, 20000, 50000}) {
    Write(other(), Pattern(0, size));
    const ResumePoint point = Resume(path(), other());
    EXPECT_EQ(point.offset, size);
    EXPECT_FALSE(point.diverged);
  }
}

TEST_P(ProofTest, AFileThatWasCutAndGrewAgainResumesBeforeTheDifference) {
  Write(other(), Pattern(0, 60000));
  Write(path(), Pattern(0, 41000) + Pattern(41000, 40000, 9));
  const ResumePoint point = Resume(path(), other());
  EXPECT_TRUE(point.diverged);
  EXPECT_EQ(point.offset, 60000 - 32768);
}

TEST_P(ProofTest, AShorterFileResumesWithinIt) {
  Write(other(), Pattern(0, 60000));
  Write(path(), Pattern(0, 59000));
  const ResumePoint point = Resume(path(), other());
  EXPECT_TRUE(point.diverged);
  EXPECT_EQ(point.offset, 60000 - 4096);
}

TEST_P(ProofTest, AZeroFilledTailIsNotTheSame) {
  Write(other(), Pattern(0, 30000));
  Write(path(), Pattern(0, 29990) + std::string(5000, '\0'));
  const ResumePoint point = Resume(path(), other());
  EXPECT_TRUE(point.diverged);
  EXPECT_EQ(point.offset, 30000 - 4096);
}

TEST_P(ProofTest, ARebuiltNodeBeginsAtTheBeginning) {
  Write(other(), Pattern(0, 30000));
  Write(path(), Pattern(0, 50000, 3));
  EXPECT_EQ(Resume(path(), other()).offset, 0);
  EXPECT_TRUE(Resume(path(), other()).diverged);
  ASSERT_OK(RemoveTree(path()));
  EXPECT_EQ(Resume(path(), other()).offset, 0);
  EXPECT_TRUE(Resume(path(), other()).diverged);
}

TEST_P(ProofTest, ProofsFromAPeerAreNotTrusted) {
  Write(path(), Pattern(0, 30000));
  StreamReader reader = Reader();
  const std::vector<StreamProof> lies = {{-5, "x"},
                                         {INT64_MAX, "x"},
                                         {20000, Sha256Of(Pattern(15904, 4096))},
                                         {10000, Sha256Of(Pattern(5904, 4096))},
                                         {9000, ""}};
  const auto point = FindResumePoint(reader, 15000, lies);
  ASSERT_OK(point);
  EXPECT_EQ(point->offset, 10000);
  EXPECT_TRUE(point->diverged);
  EXPECT_EQ(FindResumePoint(reader, -1, lies)->offset, 0);
}

using CutProofTest = ProofTest;
INSTANTIATE_TEST_SUITE_P(Segmented, CutProofTest, ::testing::Values(kSegment));

TEST_P(CutProofTest, AMirrorBehindACutIsBelieved) {
  Write(other(), Pattern(0, 5000));
  Write(path(), Pattern(0, kSegment * 4));
  ASSERT_OK(Open().CutTo(0, [](int64_t) { return absl::OkStatus(); }));
  const ResumePoint point = Resume(path(), other());
  EXPECT_EQ(point.offset, 5000);
  EXPECT_FALSE(point.diverged);
}

TEST_P(CutProofTest, AMirrorWithAHoleGoesOnAtItsEnd) {
  Write(path(), Pattern(0, kSegment * 4 + 3000));
  ASSERT_OK(Open().CutTo(0, [](int64_t) { return absl::OkStatus(); }));
  for (const int64_t after : {0, 1, 2000, 3000}) {
    Write(other(), Pattern(0, 5000));
    auto mirror = StreamWriter::Open(other(), shape());
    ASSERT_OK(mirror);
    ASSERT_OK(mirror->SkipTo(kSegment * 4));
    ASSERT_OK(mirror->Append(Pattern(kSegment * 4, after)));
    const ResumePoint point = Resume(path(), other());
    if (after > 0) {
      EXPECT_EQ(point.offset, kSegment * 4 + after);
      EXPECT_FALSE(point.diverged);
    }
  }
}

TEST_P(CutProofTest, AHoleOnTheNodeHasNothingToCompareWith) {
  Write(other(), Pattern(0, kSegment * 2));
  Write(path(), Pattern(0, kSegment * 3));
  // As after a power loss, the end of the second segment is gone.
  ASSERT_EQ(truncate(JoinPath(path(), "00000000000000008192").c_str(), 100), 0);
  const ResumePoint point = Resume(path(), other());
  EXPECT_TRUE(point.diverged);
  EXPECT_EQ(point.offset, kSegment);
}

TEST(ProofsTest, AtMostThirtyTwo) {
  TempDir dir;
  const std::string path = JoinPath(dir.path(), "sparse");
  UniqueFd fd(file_ops::Open(path, O_RDWR | O_CREAT));
  ASSERT_EQ(ftruncate(fd.get(), int64_t{1} << 43), 0);
  StreamReader reader(path, StreamShape{0});
  const auto proofs = MakeProofs(reader);
  ASSERT_OK(proofs);
  EXPECT_EQ(proofs->size(), 32u);
}

TEST(StreamFileTest, OffsetsThatWouldOverflowAreRefused) {
  TempDir dir;
  absl::StatusOr<StreamWriter> writer = StreamWriter::Open(dir.Sub("s"), StreamShape{64});
  ASSERT_OK(writer);
  EXPECT_FALSE(writer->SkipTo(INT64_MAX / 64 * 64).ok());
  EXPECT_EQ(writer->size(), 0);
  // Somebody else's file of such a name does not count.
  dir.Write("s/09223372036854775744", "x");
  EXPECT_EQ(StreamReader(dir.Sub("s"), StreamShape{64}).GetExtent().value().size, 0);
}

}  // namespace
}  // namespace gpuctl
