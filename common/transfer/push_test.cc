#include "common/transfer/push.h"

#include <gtest/gtest.h>

#include <memory>

#include "common/files/files.h"
#include "common/transfer/frame_channel.h"
#include "common/tree/missing_content.h"
#include "common/tree/tree.h"
#include "tests/support/matchers.h"
#include "tests/support/scripted_peer.h"
#include "tests/support/temp_dir.h"
#include "tests/support/transfer_peers.h"

namespace gpuctl {
namespace {

using gpuctl::v1::TransferFrame;
using ::testing::HasSubstr;

absl::StatusOr<PushOutcome> Push(const TransferStream& stream, const TempDir& from,
                                 const Manifest& manifest, const PushTarget& target = {},
                                 const TransferOptions& options = {}) {
  return PushTree(stream, from.path(), manifest, target, Clock::Real(), options);
}

TransferFrame ReportFrame() {
  TransferFrame frame;
  frame.mutable_merge_report()->set_written(3);
  frame.mutable_merge_report()->add_kept("mine");
  frame.mutable_merge_report()->set_kept_count(1);
  return frame;
}

TEST(PushTree, SaysWhatTheNodeSaid) {
  TempDir from;
  from.Write("f", "content");
  const Manifest manifest = ScanTree(from.path()).value();
  const auto push = [&](const std::vector<TransferFrame>& answers) {
    ScriptedNode node(Encode(answers));
    return Push(node.stream(), from, manifest);
  };
  const TransferFrame need = NeedFrame();
  const TransferFrame missing = MissingFrame({0, 1});
  EXPECT_THAT(push({NeedFrame(true)}), IsOk());
  EXPECT_TRUE(push({NeedFrame(true)})->was_there);
  EXPECT_THAT(push({need, missing, DoneFrame()}), IsOk());
  EXPECT_FALSE(push({need, missing, DoneFrame()})->was_there);
  for (const std::vector<TransferFrame>& refused : std::vector<std::vector<TransferFrame>>{
           {DoneFrame(absl::StatusCode::kPermissionDenied)},
           {need, DoneFrame(absl::StatusCode::kPermissionDenied)},
           {need, missing, DoneFrame(absl::StatusCode::kPermissionDenied)}}) {
    EXPECT_THAT(push(refused), StatusIs(absl::StatusCode::kPermissionDenied, "because"));
  }
  EXPECT_THAT(push({}), StatusIs(kUnavailable));
  EXPECT_THAT(push({need}), StatusIs(kUnavailable));
  EXPECT_THAT(push({need, missing}), StatusIs(kUnavailable));
  EXPECT_THAT(push({need, need}), StatusIs(kInvalid));
  EXPECT_THAT(push({need, missing, need}), StatusIs(kInvalid));
  EXPECT_THAT(push({need, DoneFrame()}), StatusIs(kInvalid));
  EXPECT_THAT(push({missing}), StatusIs(kInvalid));
  EXPECT_THAT(push({DataFrame(0, 0, "x")}), StatusIs(kInvalid));
  EXPECT_THAT(push({need, MissingFrame({0, 2})}), StatusIs(kInvalid));
  EXPECT_THAT(push({need, MissingFrame({7, 1})}), StatusIs(kInvalid));
}

TEST(PushTree, SendsJustWhatIsMissing) {
  TempDir from;
  for (const char* name : {"a", "b", "c"}) from.Write(name, name);
  from.Write("large", RandomBytes(2 * static_cast<size_t>(kPartBytes) + 9, 1));
  const Manifest manifest = ScanTree(from.path()).value();
  TransferFrame missing = MissingFrame({1, 1});
  auto* partial = missing.mutable_missing()->add_partial();
  partial->set_index(3);
  partial->add_parts(2);
  partial->add_parts(1);
  ScriptedNode node(Encode({NeedFrame(), missing, DoneFrame()}));
  TransferCount last;
  TransferOptions options;
  options.progress = [&](const TransferCount& count) { last = count; };
  const auto outcome = Push(node.stream(), from, manifest, {}, options);
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(outcome->sent.bytes, 10);
  EXPECT_EQ(outcome->sent.total_bytes, 10);
  EXPECT_EQ(outcome->sent.total_files, 2);
  EXPECT_EQ(last.bytes, 10);
  std::vector<std::pair<uint32_t, int64_t>> sent;
  for (const TransferFrame& frame : Decode(node.Heard())) {
    if (frame.has_file_data())
      sent.emplace_back(frame.file_data().index(), frame.file_data().offset());
  }
  EXPECT_EQ(sent, (std::vector<std::pair<uint32_t, int64_t>>{{1, 0}, {3, 2 * kPartBytes}}));
}

TEST(PushTree, AsksFirstWhereTheTreeIsLikelyThere) {
  TempDir from;
  from.Write("f", "content");
  const Manifest manifest = ScanTree(from.path()).value();
  PushTarget target;
  target.job_id = "j-1";
  target.into = "sub";
  target.overwrite = true;
  target.likely_there = true;
  ScriptedNode there(Encode({NeedFrame(true)}));
  ASSERT_THAT(Push(there.stream(), from, manifest, target), IsOk());
  const auto asked = Decode(there.Heard());
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].push_begin().manifest_digest(), manifest.Digest());
  EXPECT_EQ(asked[0].push_begin().job_id(), "j-1");
  EXPECT_EQ(asked[0].push_begin().into(), "sub");
  EXPECT_TRUE(asked[0].push_begin().overwrite());

  ScriptedNode gone(Encode({NeedFrame(), MissingFrame({0, 1}), ReportFrame(), DoneFrame()}));
  const auto outcome = Push(gone.stream(), from, manifest, target);
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(outcome->merge.written(), 3);
  EXPECT_EQ(outcome->merge.kept(0), "mine");
  EXPECT_TRUE(Decode(gone.Heard())[1].has_manifest_part());
}

TEST(PushTree, HearsWhyTheNodeStoppedListening) {
  TempDir from;
  from.Write("f", RandomBytes(16 << 20, 1));
  const Manifest manifest = ScanTree(from.path()).value();
  const auto wire = std::make_shared<Wire>([](int fd) {
    FrameChannel channel(fd, fd);
    ASSERT_THAT(channel.Read(), IsOk());
    ASSERT_THAT(channel.Write(NeedFrame()), IsOk());
    ASSERT_THAT(channel.Write(MissingFrame({0, 1})), IsOk());
    ASSERT_THAT(channel.WriteDone(absl::ResourceExhaustedError("disk full")), IsOk());
  });
  EXPECT_THAT(Push(StreamOf(wire), from, manifest),
              StatusIs(absl::StatusCode::kResourceExhausted, "disk full"));
}

TEST(PushTree, TellsTheNodeThatAFileChanged) {
  TempDir from;
  from.Write("f", "content");
  const Manifest manifest = ScanTree(from.path()).value();
  from.Write("f", "short");
  ScriptedNode node(Encode({NeedFrame(), MissingFrame({0, 1})}));
  EXPECT_THAT(Push(node.stream(), from, manifest),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("f")));
  EXPECT_EQ(Decode(node.Heard()).back().done().code(),
            static_cast<int>(absl::StatusCode::kAborted));
}

// The node finds a change that keeps the size.
TEST(PushTree, CallsContentThatTheNodeDidNotAcceptChanged) {
  TempDir from;
  from.Write("f", "content");
  const Manifest manifest = ScanTree(from.path()).value();
  ScriptedNode node(
      Encode({NeedFrame(), MissingFrame({0, 1}), DoneFrame(absl::StatusCode::kDataLoss)}));
  EXPECT_THAT(Push(node.stream(), from, manifest),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("changed")));
}

class SlowLinkTest : public testing::TestWithParam<bool> {};

TEST_P(SlowLinkTest, ContentIsCompressedOnASlowLinkOnly) {
  TempDir from;
  std::string text;
  while (text.size() < 3'000'000) text += "a line like any other line of a log\n";
  from.Write("log.txt", text);
  from.Write("weights.pt", text);
  const Manifest manifest = ScanTree(from.path()).value();
  int64_t text_bytes = 0;
  const auto wire = std::make_shared<Wire>([&](int fd) {
    FrameChannel channel(fd, fd);
    ASSERT_THAT(channel.Read(), IsOk());
    ASSERT_THAT(channel.Write(NeedFrame()), IsOk());
    ASSERT_THAT(channel.Flush(), IsOk());
    ASSERT_THAT(ReadManifest(channel), IsOk());
    ASSERT_THAT(channel.Write(MissingFrame({0, 2})), IsOk());
    ASSERT_THAT(channel.Flush(), IsOk());
    while (true) {
      const auto frame = channel.Read();
      ASSERT_THAT(frame, IsOk());
      if (frame->has_done()) break;
      if (frame->file_data().index() == 0) {
        EXPECT_EQ(frame->file_data().data(),
                  text.substr(static_cast<size_t>(text_bytes), frame->file_data().data().size()));
        text_bytes += static_cast<int64_t>(frame->file_data().data().size());
      }
    }
    ASSERT_THAT(channel.WriteDone(absl::OkStatus()), IsOk());
  });
  TransferStream stream = StreamOf(wire);
  stream.round_trip = absl::Milliseconds(GetParam() ? 30 : 1);
  ASSERT_THAT(Push(stream, from, manifest), IsOk());
  wire->Close();
  EXPECT_EQ(text_bytes, static_cast<int64_t>(text.size()));
  if (GetParam()) {
    EXPECT_LT(wire->up(), manifest.content_bytes() / 2 + 200'000);  // weights are sent as they are
  }
  EXPECT_GT(wire->up(), manifest.content_bytes() / (GetParam() ? 2 : 1));
}

INSTANTIATE_TEST_SUITE_P(Links, SlowLinkTest, testing::Bool());

}  // namespace
}  // namespace gpuctl
