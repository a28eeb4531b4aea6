#include "common/transfer/find_parts.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/delta/gear.h"
#include "common/tree/manifest.h"

namespace gpuctl {
namespace {

using gpuctl::v1::Anchors;
using gpuctl::v1::FindParts;
using gpuctl::v1::TransferFrame;

FindParts::File QuestionFor(const LostParts& lost) {
  FindParts::File file;
  file.set_index(static_cast<uint32_t>(lost.index));
  for (const LostPart& part : lost.parts) {
    const auto number = static_cast<uint32_t>(part.part);
    const int last = file.parts_size() - 1;
    if (last > 0 && file.parts(last - 1) + file.parts(last) == number) {
      file.set_parts(last, file.parts(last) + 1);
    } else {
      file.add_parts(number);
      file.add_parts(1);
    }
  }
  return file;
}

// Puts the answer into the parts that were asked for, in the same order.
absl::Status TakeAnchors(const Anchors& anchors, std::vector<LostParts>& files) {
  int count = 0;
  for (const LostParts& lost : files) count += static_cast<int>(lost.parts.size());
  if (anchors.ends_size() != count || anchors.hashes_size() != count) {
    return absl::InvalidArgumentError("transfer: the peer answered for other parts");
  }
  int next = 0;
  for (LostParts& lost : files) {
    for (LostPart& part : lost.parts) {
      part.anchor = {anchors.ends(next), anchors.hashes(next)};
      ++next;
      if (part.anchor.end == 0) continue;
      if (part.anchor.end < kGearBytes || part.anchor.end > kAnchorRangeBytes ||
          int64_t{part.anchor.end} > part.length) {
        return absl::InvalidArgumentError("transfer: the peer named a place outside of a part");
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status TakeMovedParts(FrameChannel& channel, TreeBuilder& builder, bool paths) {
  std::vector<LostParts> files = builder.PartsToFind();
  if (files.empty()) return absl::OkStatus();
  TransferFrame question;
  for (const LostParts& lost : files) {
    FindParts::File* file = question.mutable_find_parts()->add_files();
    *file = QuestionFor(lost);
    if (paths) file->set_path(builder.manifest()[lost.index].path());
  }
  RETURN_IF_ERROR(channel.Write(question));
  RETURN_IF_ERROR(channel.Flush());
  ASSIGN_OR_RETURN(const TransferFrame answer, channel.ReadOrError());
  if (!answer.has_anchors()) {
    return absl::InvalidArgumentError("transfer: the peer sent another frame than anchors");
  }
  RETURN_IF_ERROR(TakeAnchors(answer.anchors(), files));
  return builder.TakeMoved(std::move(files));
}

absl::Status AnswerFindParts(FrameChannel& channel, PieceReader& reader, const FindParts& question,
                             const PathOfFile& path_of) {
  const auto bad = [] {
    return absl::InvalidArgumentError("transfer: the peer asks for parts that are none");
  };
  TransferFrame answer;
  Anchors& anchors = *answer.mutable_anchors();
  int64_t count = 0;
  for (const FindParts::File& file : question.files()) {
    ASSIGN_OR_RETURN(const std::string path, path_of(file));
    if (file.parts_size() % 2 != 0) return bad();
    for (int i = 0; i < file.parts_size(); i += 2) {
      const int64_t first = file.parts(i);
      const int64_t number = file.parts(i + 1);
      count += number;
      if (count > kMostLostParts) return bad();
      for (int64_t part = first; part < first + number; ++part) {
        ASSIGN_OR_RETURN(const Anchor anchor, reader.AnchorAt(path, part * kPartBytes));
        anchors.add_ends(anchor.end);
        anchors.add_hashes(anchor.hash);
      }
    }
  }
  RETURN_IF_ERROR(channel.Write(answer));
  return channel.Flush();
}

}  // namespace gpuctl
