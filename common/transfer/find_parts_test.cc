#include "common/transfer/find_parts.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "common/delta/offers.h"
#include "common/files/files.h"
#include "common/transfer/missing_frames.h"
#include "common/transfer/push.h"
#include "common/tree/tree.h"
#include "tests/support/matchers.h"
#include "tests/support/scripted_peer.h"
#include "tests/support/temp_dir.h"
#include "tests/support/transfer_peers.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FindParts;
using gpuctl::v1::Offer;
using gpuctl::v1::TransferFrame;

constexpr auto kOnePart = static_cast<size_t>(kPartBytes);

TransferFrame CopiedFrame(int64_t offset, int64_t bytes, int64_t from) {
  TransferFrame frame;
  frame.mutable_file_data()->set_offset(offset);
  frame.mutable_file_data()->set_copied(bytes);
  frame.mutable_file_data()->set_copied_from(from);
  return frame;
}

// A builder of "f", a byte and then the older version, which it has met.
struct Moved {
  Moved() {
    old_dir.Write("f", older);
    new_dir.Write("f", newer);
    manifest = ScanTree(new_dir.path()).value();
    builder = TreeBuilder::Begin(to.path(), manifest).value();
    const UniqueFd fd(file_ops::Open(old_dir.path(), O_RDONLY | O_DIRECTORY));
    EXPECT_OK(builder->TakeSamePaths(fd.get()));
  }

  // Lets the builder ask a peer that gives `answer`.
  absl::Status Ask(const TransferFrame& answer, std::vector<TransferFrame>* asked = nullptr) {
    ScriptedPeer peer(Encode({answer}));
    absl::Status status = TakeMovedParts(peer.channel(), *builder, true);
    if (asked != nullptr) *asked = Decode(peer.Heard());
    return status;
  }
  // Returns the answer of a peer that has the newer version.
  absl::StatusOr<TransferFrame> Answer(const FindParts& question) const {
    const UniqueFd fd(file_ops::Open(new_dir.path(), O_RDONLY | O_DIRECTORY));
    PieceReader reader(fd.get());
    ScriptedPeer peer("");
    const absl::Status status = AnswerFindParts(
        peer.channel(), reader, question, [](const FindParts::File& file) { return file.path(); });
    if (!status.ok()) return status;
    return Decode(peer.Heard()).at(0);
  }
  // Returns the status of taking these frames of "f".
  absl::Status Take(const std::vector<TransferFrame>& frames, bool with_older = true) const {
    TempDir root;
    const UniqueFd fd(file_ops::Open(root.path(), O_RDONLY | O_DIRECTORY));
    PieceWriter writer(fd.get(), manifest);
    if (with_older) {
      writer.TakeFromOlder([this](int64_t index) { return builder->OlderFile(index); });
    }
    for (const TransferFrame& frame : frames) {
      const auto complete = writer.Take(frame.file_data(), frame.file_data().data());
      if (!complete.ok()) return complete.status();
    }
    return writer.Finish();
  }

  const std::string older = RandomBytes(2 * kOnePart + 500, 1);
  const std::string newer = "x" + older;
  TempDir old_dir, new_dir, to;
  Manifest manifest;
  std::unique_ptr<TreeBuilder> builder;
};

TEST(FindParts, QuestionAndAnswerFindWhatMoved) {
  Moved moved;
  std::vector<TransferFrame> asked;
  EXPECT_THAT(moved.Ask(DoneFrame(absl::StatusCode::kAborted), &asked),
              StatusIs(absl::StatusCode::kAborted));
  ASSERT_EQ(asked.size(), 1u);
  const FindParts& question = asked[0].find_parts();
  ASSERT_EQ(question.files_size(), 1);
  EXPECT_EQ(question.files(0).path(), "f");
  EXPECT_EQ(
      std::vector<uint32_t>(question.files(0).parts().begin(), question.files(0).parts().end()),
      (std::vector<uint32_t>{0, 3}));
  const auto answer = moved.Answer(question);
  ASSERT_OK(answer);
  EXPECT_OK(moved.Ask(*answer));
  EXPECT_EQ(moved.builder->missing().Bytes(moved.manifest), kPartBytes);
  EXPECT_FALSE(moved.builder->missing().Has(0, 1));
}

TEST(FindParts, AnAnswerThatDoesNotFitIsRefused) {
  Moved moved;
  std::vector<TransferFrame> asked;
  (void)moved.Ask(DoneFrame(), &asked);
  const TransferFrame good = moved.Answer(asked[0].find_parts()).value();
  const auto refused = [&](const std::function<void(gpuctl::v1::Anchors&)>& spoil) {
    TransferFrame answer = good;
    spoil(*answer.mutable_anchors());
    EXPECT_THAT(moved.Ask(answer), StatusIs(kInvalid)) << answer.ShortDebugString();
  };
  refused([](auto& anchors) { anchors.mutable_ends()->RemoveLast(); });
  refused([](auto& anchors) { anchors.add_hashes(1); });
  refused([](auto& anchors) { anchors.Clear(); });
  refused([](auto& anchors) { anchors.set_ends(0, 1); });
  refused([](auto& anchors) { anchors.set_ends(1, kAnchorRangeBytes + 1); });
  refused([](auto& anchors) { anchors.set_ends(2, 600); });  // the last part is shorter
  EXPECT_THAT(moved.Ask(NeedFrame()), StatusIs(kInvalid));
  EXPECT_EQ(moved.builder->missing().Bytes(moved.manifest), 2 * kPartBytes + 501);
}

TEST(FindParts, AQuestionForTooMuchIsRefused) {
  const Moved moved;
  FindParts question;
  FindParts::File& file = *question.add_files();
  file.set_path("f");
  file.add_parts(0);
  EXPECT_THAT(moved.Answer(question), StatusIs(kInvalid));
  file.add_parts(0xffffffff);
  EXPECT_THAT(moved.Answer(question), StatusIs(kInvalid));
  // Beyond the end there is no anchor.
  file.set_parts(0, 0xffffffff);
  file.set_parts(1, 2);
  const auto answer = moved.Answer(question);
  ASSERT_OK(answer);
  EXPECT_EQ(answer->anchors().ends(1), 0u);
  file.set_path("../f");
  EXPECT_FALSE(moved.Answer(question).ok());
  file.set_path("gone");
  EXPECT_THAT(moved.Answer(question), StatusIs(absl::StatusCode::kAborted));
}

TEST(PieceWriter, TakesContentOfAnOlderFile) {
  const Moved moved;
  EXPECT_OK(moved.Take({DataFrame(0, 0, "x"), CopiedFrame(1, kPartBytes - 1, 0)}));
  // In several pieces, and from the second part on.
  EXPECT_OK(moved.Take({CopiedFrame(kPartBytes, 1000, kPartBytes - 1),
                        CopiedFrame(kPartBytes + 1000, kPartBytes - 1000, kPartBytes + 999)}));
}

TEST(PieceWriter, RefusesReferencesToWhatWasNotOffered) {
  const Moved moved;
  const std::vector<TransferFrame> good = {DataFrame(0, 0, "x"), CopiedFrame(1, kPartBytes - 1, 0)};
  EXPECT_THAT(moved.Take(good, false), StatusIs(kInvalid));
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  TransferFrame both = CopiedFrame(0, 5, 0);
  both.mutable_file_data()->set_data("xxxxx");
  TransferFrame zeros = CopiedFrame(0, 5, 0);
  zeros.mutable_file_data()->set_zeros(5);
  for (const TransferFrame& bad :
       {CopiedFrame(0, kPartBytes + 1, 0), CopiedFrame(0, -1, 0), CopiedFrame(0, kMost, 0),
        CopiedFrame(0, 5, -1), CopiedFrame(0, 5, kMost), CopiedFrame(1, 5, 0), both, zeros}) {
    EXPECT_THAT(moved.Take({bad}), StatusIs(kInvalid)) << bad.ShortDebugString();
  }
}

// The older file may change meanwhile, because it is a job's. Then the transfer is tried again.
TEST(PieceWriter, CallsAnOlderFileThatHasChangedUnavailable) {
  const Moved moved;
  for (const int64_t from : {int64_t{1}, 2 * kPartBytes, int64_t{1} << 50}) {
    EXPECT_THAT(moved.Take({DataFrame(0, 0, "x"), CopiedFrame(1, kPartBytes - 1, from)}),
                StatusIs(kUnavailable))
        << from;
  }
}

absl::StatusOr<size_t> OffersTaken(const Manifest& manifest, const std::vector<Offer>& offers,
                                   bool wanted = true) {
  ScriptedPeer writer("");
  EXPECT_OK(WriteMissing(writer.channel(), MissingContent(manifest.size()), "token", offers));
  ScriptedPeer reader(writer.Heard());
  MissingExtras extras;
  const auto missing = ReadMissing(reader.channel(), manifest, nullptr, wanted ? &extras : nullptr);
  if (!missing.ok()) return missing.status();
  return extras.offers.size();
}

TEST(MissingFrames, CarryOffers) {
  const Moved moved;
  Offer offer;
  DescribeChunks(moved.builder->OlderFile(0), {0, 2 * kPartBytes}, offer);
  std::vector<Offer> offers(100, offer);
  EXPECT_EQ(OffersTaken(moved.manifest, offers).value_or(0), 100u);
  EXPECT_EQ(OffersTaken(moved.manifest, {}).value_or(7), 0u);
  EXPECT_THAT(OffersTaken(moved.manifest, {offer}, false), StatusIs(kInvalid));
  Offer other = offer;
  other.set_part(3);
  EXPECT_THAT(OffersTaken(moved.manifest, {other}), StatusIs(kInvalid));
  other = offer;
  other.set_index(1);
  EXPECT_THAT(OffersTaken(moved.manifest, {other}), StatusIs(kInvalid));
  other = offer;
  other.set_sizes(0, 0);
  EXPECT_THAT(OffersTaken(moved.manifest, {other}), StatusIs(kInvalid));
  EXPECT_THAT(OffersTaken(ManifestOf({FileOf("f", "small")}), {offer}), StatusIs(kInvalid));
  // More than any receiver has to offer.
  EXPECT_THAT(OffersTaken(moved.manifest, std::vector<Offer>(400, offer)), StatusIs(kInvalid));
  EXPECT_THAT(OffersTaken(moved.manifest, std::vector<Offer>(300'000)), StatusIs(kInvalid));
}

// A node may ask once, before it says what is missing, and only where the laptop answers.
TEST(PushTree, AnswersOneQuestion) {
  const Moved moved;
  TransferFrame question;
  FindParts::File& file = *question.mutable_find_parts()->add_files();
  file.add_parts(0);
  file.add_parts(2);
  const auto push = [&](const std::vector<TransferFrame>& answers, bool use_older = true) {
    ScriptedNode node(Encode(answers));
    TransferOptions options;
    options.use_older = use_older;
    const absl::Status status =
        PushTree(node.stream(), moved.new_dir.path(), moved.manifest, {}, Clock::Real(), options)
            .status();
    const auto heard = Decode(node.Heard());
    EXPECT_EQ(heard.at(0).push_begin().finds_parts(), use_older);
    return status;
  };
  EXPECT_OK(push({NeedFrame(), question, MissingFrame({0, 1}), DoneFrame()}));
  EXPECT_THAT(push({NeedFrame(), question, question}), StatusIs(kInvalid));
  EXPECT_THAT(push({NeedFrame(), MissingFrame({0, 1}), question}), StatusIs(kInvalid));
  EXPECT_THAT(push({NeedFrame(), question, MissingFrame({0, 1}), DoneFrame()}, false),
              StatusIs(kInvalid));
  file.set_index(7);
  EXPECT_THAT(push({NeedFrame(), question}), StatusIs(kInvalid));
}

}  // namespace
}  // namespace gpuctl
