// Large files in which something was inserted: what moved is not sent again.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/delta/gear.h"
#include "tests/support/work_merge_fixture.h"

namespace gpuctl {
namespace {

const bool kInsertInMemory = UseMemoryFileSystem();
constexpr auto kPartOfFile = static_cast<size_t>(kPartBytes);
// The bytes around an edit that are sent with it, and those beside content.
constexpr auto kAroundBytes = static_cast<int64_t>(4 * kMaxChunkBytes);

class InsertTest : public WorkMergeTest {
 protected:
  // Syncs `content` as the only large file. Returns the bytes on the wire to the node.
  int64_t Push(absl::string_view content) {
    OnLaptop("large", content);
    laptop_.Scan();
    PushTarget target;
    target.job_id = "j-1";
    int64_t up = 0;
    EXPECT_OK(node_.Push(laptop_, target, {}, &up));
    ExpectSame();
    return up;
  }
  // Pulls the job's work directory, with the older version at home in `have`, and checks it.
  // Returns the bytes on the wire from the node.
  int64_t Pull(const TempDir& have) {
    const auto wire = node_.ToSend();
    PullSubject subject;
    subject.job_id = "j-1";
    subject.path = "work";
    subject.have = have.path();
    TempDir to;
    auto pulled = PullTree(StreamOf(wire), subject, to.path(), Clock::Real(), {});
    EXPECT_OK(pulled);
    if (pulled.ok()) {
      received_ = pulled->received;
      EXPECT_OK(PublishPulled(*pulled->tree, to.Sub("got")));
      EXPECT_EQ(DigestOf(to.Sub("got")), DigestOf(node_.job.work));
    }
    pulled = absl::UnknownError("done with it");
    wire->Close();
    return wire->down();
  }

  TransferCount received_;
};

TEST_F(InsertTest, AtTheFrontOfAFileInAWorkDirectory) {
  std::string content = RandomBytes(6 * kPartOfFile + 1234, 1);
  EXPECT_GT(Push(content), 6 * kPartBytes);
  content.insert(0, RandomBytes(1000, 2));
  EXPECT_LT(Push(content), kAroundBytes);
  content.insert(3 * kPartOfFile + 500, RandomBytes(1000, 3));
  EXPECT_LT(Push(content), kAroundBytes);
  content.erase(kPartOfFile, 2 * kPartOfFile + 77);
  EXPECT_LT(Push(content), kAroundBytes);
}

TEST_F(InsertTest, IntoAStoredTree) {
  std::string content = RandomBytes(4 * kPartOfFile, 4);
  OnLaptop("large", content);
  laptop_.Scan();
  ASSERT_OK(node_.Push(laptop_));
  const std::string first = laptop_.digest();
  content.insert(5, "a few bytes");
  OnLaptop("large", content);
  laptop_.Scan();
  int64_t up = 0;
  const auto outcome = node_.Push(laptop_, {}, {}, &up);
  ASSERT_OK(outcome);
  EXPECT_LT(up, kAroundBytes);
  EXPECT_LT(outcome->sent.bytes, kAroundBytes);
  EXPECT_EQ(outcome->sent.bytes, outcome->sent.total_bytes);
  EXPECT_EQ(outcome->sent.files, 1);
  node_.ExpectWhole(laptop_.digest());
  node_.ExpectWhole(first);
}

TEST_F(InsertTest, BesideFilesThatAreNew) {
  std::string content = RandomBytes(3 * kPartOfFile, 5);
  Push(content);
  content.insert(0, "x");
  OnLaptop("new", RandomBytes(2 * kPartOfFile, 6));
  OnLaptop("small", "small");
  const int64_t up = Push(content);
  EXPECT_GT(up, 2 * kPartBytes);
  EXPECT_LT(up, 2 * kPartBytes + kAroundBytes);
}

TEST_F(InsertTest, IntoAFileThatComesHome) {
  const std::string before = RandomBytes(4 * kPartOfFile + 99, 7);
  TempDir have;
  have.Write("large", before);
  std::string content = before;
  content.insert(kPartOfFile + 9, RandomBytes(5000, 8));
  content.insert(0, "front");
  OnJob("large", content);
  EXPECT_LT(Pull(have), 2 * kAroundBytes);
  EXPECT_LT(received_.bytes, 2 * kAroundBytes);
  EXPECT_EQ(received_.bytes, received_.total_bytes);
  EXPECT_TRUE(ReadFileToString(have.Sub("large")).value() == before);
}

// Larger offers than a pipe holds, because everything differs a little.
TEST_F(InsertTest, AnEditInEveryPartOfAFileThatComesHome) {
  const std::string before = RandomBytes(7 * kPartOfFile, 9);
  TempDir have;
  have.Write("large", before);
  std::string content = before;
  for (size_t part = 7; part-- > 0;) {
    content.insert(part * kPartOfFile + 3'000'000 + part * 1000, "an edit");
  }
  OnJob("large", content);
  EXPECT_LT(Pull(have), 7 * kAroundBytes);
}

// A laptop of an older build does not say that it answers, and is not asked.
TEST_F(InsertTest, AnOlderLaptopSendsWholeParts) {
  std::string content = RandomBytes(2 * kPartOfFile, 10);
  Push(content);
  content.insert(0, "x");
  OnLaptop("large", content);
  laptop_.Scan();
  PushTarget target;
  target.job_id = "j-1";
  std::vector<gpuctl::v1::TransferFrame> heard;
  ASSERT_OK(
      ReceiveScript(node_, laptop_.FramesOf(laptop_.manifest, laptop_.digest(), target), &heard));
  for (const auto& frame : heard) {
    EXPECT_FALSE(frame.has_find_parts());
    EXPECT_EQ(frame.missing().offers_size(), 0);
  }
  ExpectSame();
}

// The node reads a file to which a job goes on writing.
TEST_F(InsertTest, WhatTheNodeWasPromisedAndDoesNotGetIsNotTaken) {
  std::string content = RandomBytes(2 * kPartOfFile, 11);
  Push(content);
  const std::string before = content;
  content.insert(0, "x");
  OnLaptop("large", content);
  laptop_.Scan();
  PushTarget target;
  target.job_id = "j-1";
  auto frames = laptop_.FramesOf(laptop_.manifest, laptop_.digest(), target);
  frames[0].mutable_push_begin()->set_finds_parts(true);
  gpuctl::v1::TransferFrame anchors, reference;
  for (int i = 0; i < 3; ++i) {
    anchors.mutable_anchors()->add_ends(i < 2 ? 64 : 0);
    anchors.mutable_anchors()->add_hashes(7);
  }
  reference.mutable_file_data()->set_copied(kPartBytes);
  const auto at = std::find_if(frames.begin(), frames.end(),
                               [](const auto& frame) { return frame.has_file_data(); });
  frames.insert(at, {anchors, reference});
  EXPECT_THAT(ReceiveScript(node_, frames), StatusIs(kUnavailable));
  EXPECT_TRUE(There("large") == before);
}

TEST_F(InsertTest, APullRefusesOffersThatAreNone) {
  OnJob("large", RandomBytes(kPartOfFile + 5, 12));
  gpuctl::v1::TransferFrame begin, question, want;
  begin.mutable_pull_begin()->set_job_id("j-1");
  begin.mutable_pull_begin()->set_path("work");
  const auto serve = [&](const gpuctl::v1::TransferFrame& asked) {
    ScriptedPeer peer(Encode({begin, asked, DoneFrame()}));
    return SendPull(node_.root, peer.in_fd(), peer.out_fd());
  };
  gpuctl::v1::FindParts::File& file = *question.mutable_find_parts()->add_files();
  file.set_path("large");
  file.add_parts(0);
  file.add_parts(2);
  EXPECT_OK(serve(question));
  file.set_path("../ckpt/secret");
  EXPECT_THAT(serve(question), StatusIs(kInvalid));
  gpuctl::v1::Want::Piece& piece = *want.mutable_want()->add_pieces();
  piece.set_path("large");
  piece.set_length(kPartBytes);
  gpuctl::v1::Offer& offer = *piece.add_offers();
  EXPECT_OK(serve(want));
  offer.add_sizes(5);
  EXPECT_THAT(serve(want), StatusIs(kInvalid));
}

// Over a slow link equal content in several files is sent once, also when it is far apart and does
// not compress by itself.
TEST_F(InsertTest, ASlowLinkCarriesOneCompressedStream) {
  const std::string content = RandomBytes(600'000, 13);
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    OnLaptop(name, absl::StrCat(name, content));
  }
  laptop_.Scan();
  PushTarget target;
  target.job_id = "j-1";
  auto wire = node_.ToReceive();
  TransferStream stream = StreamOf(wire);
  stream.round_trip = absl::Milliseconds(20);
  EXPECT_OK(PushTree(stream, laptop_.dir.path(), laptop_.manifest, target, Clock::Real(), {}));
  stream = TransferStream();
  wire->Close();
  EXPECT_LT(wire->up(), 700'000);
  ExpectSame();
  wire = node_.ToSend();
  stream = StreamOf(wire);
  stream.round_trip = absl::Milliseconds(20);
  PullSubject subject;
  subject.job_id = "j-1";
  subject.path = "work";
  TempDir to;
  {
    const auto pulled = PullTree(stream, subject, to.path(), Clock::Real(), {});
    ASSERT_OK(pulled);
    EXPECT_OK(PublishPulled(*pulled->tree, to.Sub("got")));
  }
  EXPECT_EQ(DigestOf(to.Sub("got")), laptop_.digest());
  stream = TransferStream();
  wire->Close();
  EXPECT_LT(wire->down(), 700'000);
}

}  // namespace
}  // namespace gpuctl
