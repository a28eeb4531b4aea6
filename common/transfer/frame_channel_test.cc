#include "common/transfer/frame_channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <zstd.h>

#include <cerrno>
#include <csignal>

#include "absl/strings/str_cat.h"
#include "common/base/link_fault.h"
#include "common/base/status_macros.h"
#include "tests/support/matchers.h"
#include "tests/support/scripted_peer.h"
#include "tests/support/transfer_peers.h"

namespace gpuctl {
namespace {

using gpuctl::v1::TransferFrame;
using ::testing::HasSubstr;

std::string Compressed(const std::string& bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 1));
  return out;
}

TransferFrame PackedFrame(const std::string& zstd, uint32_t size) {
  TransferFrame frame;
  frame.mutable_packed()->set_zstd(zstd);
  frame.mutable_packed()->set_size(size);
  return frame;
}

// Returns what a channel with compression sends for `frames`.
std::string Packed(const std::vector<TransferFrame>& frames) {
  ScriptedPeer peer("");
  EXPECT_THAT(peer.channel().SetCompression(true), IsOk());
  for (const TransferFrame& frame : frames) EXPECT_THAT(peer.channel().Write(frame), IsOk());
  EXPECT_THAT(peer.channel().Flush(), IsOk());
  return peer.Heard();
}

TEST(FrameChannel, CarriesFramesOfEverySize) {
  std::vector<TransferFrame> frames;
  for (const size_t size : {1u, 2u, 127u, 128u, 65536u, 1u << 20}) {
    frames.push_back(DataFrame(3, 5, std::string(size, 'd')));
  }
  ScriptedPeer peer(Encode(frames));
  for (const TransferFrame& frame : frames) {
    const auto read = peer.channel().Read();
    ASSERT_THAT(read, IsOk());
    EXPECT_EQ(read->file_data().data(), frame.file_data().data());
  }
  EXPECT_THAT(peer.channel().Read(), StatusIs(kUnavailable));
}

// Writes a frame with PrepareContent and CommitContent.
void WriteContent(FrameChannel& channel, uint32_t index, int64_t offset,
                  const std::string& content) {
  const auto room = channel.PrepareContent(index, offset, content.size());
  ASSERT_THAT(room, IsOk());
  memcpy(*room, content.data(), content.size());
  ASSERT_THAT(channel.CommitContent(), IsOk());
}

TEST(FrameChannel, ContentWrittenInPlaceIsAFrameLikeOthers) {
  for (const uint32_t index : {0u, 1u, 300u, 500'000u}) {
    for (const int64_t offset : {int64_t{0}, int64_t{5}, int64_t{1} << 40}) {
      for (const size_t size : {1u, 127u, 128u, 262144u}) {
        const std::string content(size, 'c');
        ScriptedPeer peer("");
        // Content that is not committed is not sent.
        ASSERT_THAT(peer.channel().PrepareContent(7, 7, 1000), IsOk());
        WriteContent(peer.channel(), index, offset, content);
        ASSERT_THAT(peer.channel().Flush(), IsOk());
        EXPECT_EQ(peer.Heard(), Encode({DataFrame(index, offset, content)}))
            << index << " " << offset << " " << size;
      }
    }
  }
  ScriptedPeer peer("");
  EXPECT_THAT(peer.channel().PrepareContent(0, 0, 2 << 20), StatusIs(absl::StatusCode::kInternal));
}

TEST(FrameChannel, ContentReadInPlaceIsWhatTheFrameHolds) {
  std::vector<TransferFrame> frames;
  for (const size_t size : {1u, 127u, 128u, 65536u, 1u << 20}) {
    frames.push_back(DataFrame(3, 5, std::string(size, 'd')));
  }
  TransferFrame zeros;
  zeros.mutable_file_data()->set_index(4);
  zeros.mutable_file_data()->set_zeros(1000);
  frames.push_back(zeros);
  TransferFrame done;
  done.mutable_done();
  frames.push_back(done);
  for (const std::string& bytes : {Encode(frames), Packed(frames)}) {
    ScriptedPeer peer(bytes);
    for (const TransferFrame& frame : frames) {
      absl::string_view content;
      const auto read = peer.channel().ReadContentOrError(content);
      ASSERT_THAT(read, IsOk());
      EXPECT_EQ(read->frame_case(), frame.frame_case());
      EXPECT_EQ(read->file_data().index(), frame.file_data().index());
      EXPECT_EQ(read->file_data().offset(), frame.file_data().offset());
      EXPECT_EQ(read->file_data().zeros(), frame.file_data().zeros());
      EXPECT_EQ(content, frame.file_data().data());
      EXPECT_EQ(read->file_data().data(), "");
    }
  }
}

// Protobuf allows other ways to write the same message.
TEST(FrameChannel, ContentIsFoundWhateverTheOrderOfItsFields) {
  const auto framed = [](const std::string& message) {
    return std::string{static_cast<char>(message.size()), 0, 0, 0} + message;
  };
  const std::string data_first =
      "\x22\x07\x1a\x03"
      "abc"
      "\x08\x02";
  const std::string unknown_field(
      "\x22\x09\x08\x02\x7a\0\x1a\x03"
      "abc",
      11);
  const std::string twice =
      "\x22\x05\x1a\x03"
      "xyz"
      "\x22\x07\x08\x02\x1a\x03"
      "abc";
  for (const std::string& message : {data_first, unknown_field, twice}) {
    ScriptedPeer peer(framed(message));
    absl::string_view content;
    const auto read = peer.channel().ReadContentOrError(content);
    ASSERT_THAT(read, IsOk());
    EXPECT_EQ(content, "abc");
    EXPECT_EQ(read->file_data().index(), 2u);
  }
  for (const std::string& message : {std::string("\x22\x05\x1a\x7f"
                                                 "abc"),
                                     std::string("\x22\x7f\x1a\x03"
                                                 "abc")}) {
    ScriptedPeer peer(framed(message));
    absl::string_view content;
    EXPECT_THAT(peer.channel().ReadContentOrError(content), StatusIs(kInvalid));
  }
}

TEST(FrameChannel, RefusesTooLargeFramesBothWays) {
  ScriptedPeer peer("");
  EXPECT_THAT(peer.channel().Write(DataFrame(0, 0, std::string(kMaxFrameBytes, 'x'))),
              StatusIs(absl::StatusCode::kInternal));
  // Nothing follows the length: it is refused before the reader waits or allocates.
  for (const std::string& length :
       {std::string("\xff\xff\xff\xff"), std::string("\x01\x10\x10\x00", 4),
        std::string("\x00\x00\x00\x80", 4)}) {
    ScriptedPeer hostile(length);
    EXPECT_THAT(hostile.channel().Read(), StatusIs(kInvalid));
  }
}

TEST(FrameChannel, AFrameCutAnywhereIsTheEndOfTheStream) {
  const std::string bytes = Encode({DataFrame(1, 2, "some data")});
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    ScriptedPeer peer(bytes.substr(0, cut));
    EXPECT_THAT(peer.channel().Read(), StatusIs(kUnavailable)) << cut;
  }
}

TEST(FrameChannel, RefusesWhatIsNoFrame) {
  for (const std::string& bytes : {std::string(4, '\0'), std::string("\x02\0\0\0\xff\xff", 6),
                                   std::string("\x02\0\0\0\x7a\0", 6)}) {
    ScriptedPeer peer(bytes);
    EXPECT_THAT(peer.channel().Read(), StatusIs(kInvalid));
  }
}

TEST(FrameChannel, ReadOrErrorTurnsADoneIntoItsError) {
  ScriptedPeer peer(Encode({DoneFrame(), DoneFrame(absl::StatusCode::kResourceExhausted)}));
  EXPECT_THAT(peer.channel().ReadOrError(), IsOk());
  EXPECT_THAT(peer.channel().ReadOrError(),
              StatusIs(absl::StatusCode::kResourceExhausted, "because"));
}

TEST(FrameChannel, DoneCarriesPathsOfAnyBytes) {
  ScriptedPeer writer("");
  ASSERT_THAT(writer.channel().WriteDone(absl::AbortedError("send \xff\xfe: changed")), IsOk());
  ScriptedPeer reader(writer.Heard());
  EXPECT_THAT(reader.channel().ReadOrError(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("changed")));
}

TEST(FrameChannel, DoneCarriesTheKindOfAFailureAndNotItsWords) {
  const absl::Status full = ErrnoStatus(ENOSPC, "write a");
  ScriptedPeer writer("");
  ASSERT_THAT(writer.channel().WriteDone(Annotate(full, "merge")), IsOk());
  // An older build sends the same words without a kind.
  ASSERT_THAT(writer.channel().WriteDone(absl::Status(full.code(), full.message())), IsOk());
  ScriptedPeer reader(writer.Heard());
  const absl::Status heard = reader.channel().ReadOrError().status();
  EXPECT_THAT(heard, StatusIs(full.code(), HasSubstr(std::string(full.message()))));
  EXPECT_EQ(FaultOf(heard), LinkFault::kPeerDiskFull);
  EXPECT_EQ(FaultOf(reader.channel().ReadOrError().status()), LinkFault::kNone);

  // Sent back to the machine with the full disk, it does not count as a full disk there.
  ScriptedPeer third("");
  ASSERT_THAT(third.channel().WriteDone(heard), IsOk());
  ScriptedPeer fourth(third.Heard());
  EXPECT_EQ(FaultOf(fourth.channel().ReadOrError().status()), LinkFault::kNone);
}

TEST(FrameChannel, AClosedPeerIsUnavailable) {
  signal(SIGPIPE, SIG_IGN);
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  UniqueFd ours(fds[0]);
  close(fds[1]);
  FrameChannel channel(ours.get(), ours.get());
  ASSERT_THAT(channel.Write(DoneFrame()), IsOk());
  EXPECT_THAT(channel.Flush(), StatusIs(kUnavailable));
}

TEST(ManifestTransfer, CarriesLargeManifestsInParts) {
  Manifest manifest;
  for (int i = 0; i < 20'000; ++i) {
    manifest.Append(FileOf(absl::StrCat("file-", 100'000 + i), absl::StrCat(i)));
  }
  ScriptedPeer writer("");
  ASSERT_THAT(WriteManifest(writer.channel(), manifest), IsOk());
  EXPECT_GT(Decode(writer.Heard()).size(), 2u);
  EXPECT_LT(writer.Heard().size(), manifest.bytes().size());
  ScriptedPeer reader(writer.Heard());
  const auto read = ReadManifest(reader.channel());
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->Digest(), manifest.Digest());
}

TEST(ManifestTransfer, RefusesWhatIsNoManifest) {
  const std::string whole = Compressed(Manifest().bytes());
  for (const std::vector<TransferFrame>& frames : std::vector<std::vector<TransferFrame>>{
           {PartFrame("not zstd", true)},
           {PartFrame("", true)},
           {PartFrame(whole.substr(0, whole.size() - 1), true)},
           {PartFrame(Compressed("not a manifest"), true)},
           {PartFrame(whole, false), DataFrame(0, 0, "x")},
           {DoneFrame()},
       }) {
    ScriptedPeer peer(Encode(frames));
    EXPECT_THAT(ReadManifest(peer.channel()), StatusIs(kInvalid));
  }
  ScriptedPeer cut(Encode({PartFrame(whole, false)}));
  EXPECT_THAT(ReadManifest(cut.channel()), StatusIs(kUnavailable));
}

TEST(ManifestTransfer, ADecompressionBombStopsAtTheLimit) {
  const std::string bomb = Compressed(std::string(kMaxManifestBytes + 1, 'a'));
  ASSERT_LT(bomb.size(), 100'000u);
  ScriptedPeer peer(Encode({PartFrame(bomb, true)}));
  EXPECT_THAT(ReadManifest(peer.channel()), StatusIs(kInvalid, HasSubstr("too large")));
  // A frame that needs a window of gigabytes is refused.
  std::string wide("\x28\xb5\x2f\xfd\x00\xa8\x00\x00\x00", 9);
  ScriptedPeer window(Encode({PartFrame(wide, true)}));
  EXPECT_THAT(ReadManifest(window.channel()), StatusIs(kInvalid));
}

TEST(Compression, PacksWhatGetsSmallerAndNothingElse) {
  std::vector<TransferFrame> frames;
  for (int i = 0; i < 40; ++i) {
    frames.push_back(DataFrame(3, i, absl::StrCat("line ", i, std::string(100'000, 'l'))));
  }
  frames.push_back(DoneFrame());
  const std::string packed = Packed(frames);
  EXPECT_LT(packed.size(), 100'000u);
  ScriptedPeer reader(packed);
  for (const TransferFrame& frame : frames) {
    const auto read = reader.channel().Read();
    ASSERT_THAT(read, IsOk());
    EXPECT_EQ(read->SerializeAsString(), frame.SerializeAsString());
  }
  EXPECT_THAT(reader.channel().Read(), StatusIs(kUnavailable));

  const std::vector<TransferFrame> random = {DataFrame(0, 0, RandomBytes(300'000, 1)),
                                             DataFrame(0, 300'000, RandomBytes(300'000, 2))};
  EXPECT_EQ(Packed(random), Encode(random));
}

TEST(Compression, TheLargestFrameGoesThroughAsItIs) {
  TransferFrame frame = DataFrame(0, 0, "");
  std::string& data = *frame.mutable_file_data()->mutable_data();
  data.assign(static_cast<size_t>(kMaxFrameBytes) - 16, 'z');
  while (static_cast<int64_t>(frame.ByteSizeLong()) < kMaxFrameBytes) data += 'z';
  ASSERT_EQ(static_cast<int64_t>(frame.ByteSizeLong()), kMaxFrameBytes);
  const std::vector<TransferFrame> frames = {DataFrame(1, 0, "before"), frame,
                                             DataFrame(2, 0, "behind")};
  ScriptedPeer reader(Packed(frames));
  for (const TransferFrame& expected : frames) {
    const auto read = reader.channel().Read();
    ASSERT_THAT(read, IsOk());
    EXPECT_TRUE(read->SerializeAsString() == expected.SerializeAsString());
  }
}

TEST(Compression, CanBeSwitchedBetweenFrames) {
  ScriptedPeer writer("");
  for (int i = 0; i < 6; ++i) {
    ASSERT_THAT(writer.channel().SetCompression(i % 2 == 1), IsOk());
    ASSERT_THAT(writer.channel().Write(DataFrame(7, i, std::string(5'000, 'x'))), IsOk());
  }
  ASSERT_THAT(writer.channel().Flush(), IsOk());
  EXPECT_LT(writer.Heard().size(), 4 * 5'000u);
  ScriptedPeer reader(writer.Heard());
  for (int i = 0; i < 6; ++i) {
    const auto read = reader.channel().Read();
    ASSERT_THAT(read, IsOk());
    EXPECT_EQ(read->file_data().offset(), i);
  }
}

TEST(Compression, RefusesHostilePackedFrames) {
  const std::string frame = Encode({DataFrame(0, 0, "data")});
  const auto size = static_cast<uint32_t>(frame.size());
  const std::string zstd = Compressed(frame);
  const auto read = [](const std::vector<TransferFrame>& frames) {
    ScriptedPeer peer(Encode(frames));
    return peer.channel().Read().status();
  };
  EXPECT_THAT(read({PackedFrame(zstd, size)}), IsOk());
  EXPECT_THAT(read({PackedFrame(zstd, size - 1)}), StatusIs(kInvalid));
  EXPECT_THAT(read({PackedFrame(zstd, size + 1)}), StatusIs(kInvalid));
  EXPECT_THAT(read({PackedFrame(zstd, 0)}), StatusIs(kInvalid));
  EXPECT_THAT(read({PackedFrame(zstd, 0xffffffff)}), StatusIs(kInvalid));
  EXPECT_THAT(read({PackedFrame("", size)}), StatusIs(kInvalid));
  EXPECT_THAT(read({PackedFrame("not zstd", size)}), StatusIs(kInvalid));
  EXPECT_THAT(read({PackedFrame(zstd.substr(0, zstd.size() - 1), size)}), StatusIs(kInvalid));
  // Two bombs: one announces its size, one hides it.
  const std::string bomb = Compressed(std::string(64 << 20, 'a'));
  EXPECT_THAT(read({PackedFrame(bomb, 64 << 20)}), StatusIs(kInvalid));
  EXPECT_THAT(read({PackedFrame(bomb, 1 << 20)}), StatusIs(kInvalid));
  // A packed frame in a packed frame: every layer could multiply by a thousand.
  const std::string inner = Encode({PackedFrame(zstd, size)});
  EXPECT_THAT(read({PackedFrame(Compressed(inner), static_cast<uint32_t>(inner.size()))}),
              StatusIs(kInvalid));
  // Bad contents of a packed frame: half a frame, a length beyond its end, bytes that are not a
  // frame.
  for (const std::string& bytes :
       {frame.substr(0, frame.size() - 1), frame.substr(0, 3), std::string("\xff\xff\xff\xff rest"),
        std::string("\x02\0\0\0\xff\xff", 6)}) {
    EXPECT_THAT(read({PackedFrame(Compressed(bytes), static_cast<uint32_t>(bytes.size()))}),
                StatusIs(kInvalid));
  }
}

}  // namespace
}  // namespace gpuctl
