#include "common/transfer/push.h"

#include <fcntl.h>

#include <cerrno>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "common/transfer/find_parts.h"
#include "common/transfer/frame_channel.h"
#include "common/transfer/missing_frames.h"
#include "common/transfer/pieces.h"
#include "common/transfer/stream_team.h"
#include "common/transfer/taken_frames.h"
#include "common/tree/missing_content.h"

namespace gpuctl {
namespace {

using gpuctl::v1::TransferFrame;

class Pusher {
 public:
  Pusher(FrameChannel& first, bool slow_link, const Manifest& manifest, Clock& clock,
         const TransferOptions& options)
      : first_(first),
        slow_link_(slow_link),
        manifest_(manifest),
        clock_(clock),
        options_(options) {}

  absl::StatusOr<PushOutcome> Push(int root_fd, const PushTarget& target);

 private:
  absl::Status Begin(const PushTarget& target);
  absl::StatusOr<MissingContent> ReadWhatIsMissing();
  std::string PathOf(int64_t index) const;
  absl::Status SendPieces(FrameChannel& channel, StreamTeam& team);
  absl::Status SendOffered(const std::vector<Piece>& pieces, const MissingContent& others,
                           StreamTeam& team);
  absl::Status RunFurther(const TransferStream& stream, StreamTeam& team);
  absl::Status SendAll(const MissingContent& missing);
  absl::Status End();
  absl::Status Run(const PushTarget& target);

  FrameChannel& first_;
  const bool slow_link_;
  const Manifest& manifest_;
  Clock& clock_;
  const TransferOptions& options_;
  int root_fd_ = -1;
  std::vector<std::string> sources_;
  std::string token_;
  bool packs_in_stream_ = false;
  // What the node has near missing parts, by index and part.
  std::map<std::pair<int64_t, int64_t>, std::vector<const gpuctl::v1::Offer*>> offered_;
  MissingExtras extras_;
  PushOutcome outcome_;
};

// Returns the error to report for `ours`. The node's last error tells more than UNAVAILABLE, that
// it stopped listening.
absl::Status Said(FrameChannel& channel, const absl::Status& ours) {
  if (!absl::IsUnavailable(ours)) {
    // This is our own error with a file. The node is told; its answer is not needed.
    (void)channel.WriteDone(ours);
    return ours;
  }
  while (true) {
    const absl::StatusOr<TransferFrame> frame = channel.ReadOrError();
    if (!frame.ok()) return absl::IsUnavailable(frame.status()) ? ours : frame.status();
    if (frame->has_done()) return ours;
  }
}

absl::Status Pusher::Begin(const PushTarget& target) {
  TransferFrame begin;
  begin.mutable_push_begin()->set_manifest_digest(manifest_.Digest());
  begin.mutable_push_begin()->set_job_id(target.job_id);
  begin.mutable_push_begin()->set_into(target.into);
  begin.mutable_push_begin()->set_overwrite(target.overwrite);
  begin.mutable_push_begin()->set_answers_taken(bool{target.stays});
  begin.mutable_push_begin()->set_finds_parts(options_.use_older);
  RETURN_IF_ERROR(first_.Write(begin));
  RETURN_IF_ERROR(first_.Flush());
  // A node that has the tree does not need its manifest.
  absl::Status written = target.likely_there ? absl::OkStatus() : WriteManifest(first_, manifest_);
  ASSIGN_OR_RETURN(const TransferFrame need, first_.ReadOrError());
  if (!need.has_push_need()) {
    return absl::InvalidArgumentError("push: the node answered with another frame");
  }
  outcome_.was_there = need.push_need().have();
  packs_in_stream_ = need.push_need().takes_packed_streams();
  if (packs_in_stream_) first_.CompressInStream();
  if (outcome_.was_there || !target.likely_there)
    return outcome_.was_there ? absl::OkStatus() : written;
  return WriteManifest(first_, manifest_);
}

std::string Pusher::PathOf(int64_t index) const {
  return sources_.empty() ? manifest_[index].path() : sources_[static_cast<size_t>(index)];
}

absl::StatusOr<MissingContent> Pusher::ReadWhatIsMissing() {
  PieceReader reader(root_fd_);
  if (options_.use_older) {
    extras_.find = [&](const gpuctl::v1::FindParts& question) {
      return AnswerFindParts(
          first_, reader, question,
          [&](const gpuctl::v1::FindParts::File& file) -> absl::StatusOr<std::string> {
            if (int64_t{file.index()} < manifest_.size() &&
                manifest_[file.index()].size() > kPartBytes) {
              return PathOf(file.index());
            }
            return absl::InvalidArgumentError("push: the node asks for parts of what has none");
          });
    };
  }
  absl::StatusOr<MissingContent> missing =
      ReadMissing(first_, manifest_, &token_, options_.use_older ? &extras_ : nullptr);
  extras_.find = nullptr;
  for (const gpuctl::v1::Offer& offer : extras_.offers) {
    offered_[{offer.index(), offer.part()}].push_back(&offer);
  }
  return missing;
}

// Sends the pieces for which the node has something, without what it has.
absl::Status Pusher::SendOffered(const std::vector<Piece>& pieces, const MissingContent& others,
                                 StreamTeam& team) {
  PieceReader reader(root_fd_);
  int64_t last = -1;
  for (const Piece& piece : pieces) {
    const std::string path = PathOf(piece.index);
    RETURN_IF_ERROR(first_.SetCompression(slow_link_ && MayCompress(path)));
    ASSIGN_OR_RETURN(const int64_t sent,
                     reader.SendRest(first_, piece, path,
                                     offered_.at({piece.index, piece.offset / kPartBytes})));
    team.MovedBeside(sent, piece.index != last && !others.Has(piece.index));
    last = piece.index;
  }
  return absl::OkStatus();
}

absl::Status Pusher::SendPieces(FrameChannel& channel, StreamTeam& team) {
  PieceReader reader(root_fd_);
  for (std::vector<Piece> batch = team.Next(); !batch.empty(); batch = team.Next()) {
    for (const Piece& piece : batch) {
      const std::string path = PathOf(piece.index);
      RETURN_IF_ERROR(channel.SetCompression(slow_link_ && MayCompress(path)));
      RETURN_IF_ERROR(reader.Send(channel, piece, path));
      team.Moved(piece);
    }
  }
  return channel.Flush();
}

absl::Status Pusher::RunFurther(const TransferStream& stream, StreamTeam& team) {
  FrameChannel channel(*stream.bytes);
  TransferFrame join;
  join.mutable_push_join()->set_token(token_);
  if (packs_in_stream_) channel.CompressInStream();
  absl::Status status = channel.Write(join);
  if (status.ok()) status = SendPieces(channel, team);
  if (status.ok()) status = channel.WriteDone(absl::OkStatus());
  if (!status.ok()) return Said(channel, status);
  ASSIGN_OR_RETURN(const TransferFrame done, channel.ReadOrError());
  if (done.has_done()) return absl::OkStatus();
  return absl::InvalidArgumentError("push: the node went on after the end");
}

absl::Status Pusher::SendAll(const MissingContent& missing) {
  TransferOptions options = options_;
  options.slow_link = slow_link_;
  std::vector<Piece> offered;
  MissingContent others = missing;
  if (!offered_.empty()) {
    missing.ForEachPiece(manifest_, [&](const Piece& piece) {
      const int64_t part = piece.offset / kPartBytes;
      if (offered_.count({piece.index, part}) == 0) return;
      offered.push_back(piece);
      others.RemovePart(piece.index, part, PartCount(manifest_[piece.index].size()));
    });
  }
  StreamTeam team(manifest_, others, clock_, options);
  absl::Status first;
  absl::Status status = team.Run(
      [&] {
        first = SendOffered(offered, others, team);
        return first.ok() ? first = SendPieces(first_, team) : first;
      },
      [&](const TransferStream& stream) { return RunFurther(stream, team); });
  outcome_.sent = team.count();
  if (!first.ok()) return Said(first_, first);
  // Another stream failed. On this one the node still waits for more.
  if (!status.ok()) (void)first_.WriteDone(status);
  return status;
}

absl::Status Pusher::End() {
  RETURN_IF_ERROR(first_.SetCompression(false));
  RETURN_IF_ERROR(first_.WriteDone(absl::OkStatus()));
  while (true) {
    ASSIGN_OR_RETURN(TransferFrame frame, first_.ReadOrError());
    if (frame.has_done()) return absl::OkStatus();
    if (!frame.has_merge_report()) {
      return absl::InvalidArgumentError("push: the node went on after the end");
    }
    outcome_.merge = std::move(*frame.mutable_merge_report());
  }
}

absl::Status Pusher::Run(const PushTarget& target) {
  const auto said = [this](const absl::Status& status) {
    return status.ok() ? status : Said(first_, status);
  };
  RETURN_IF_ERROR(said(Begin(target)));
  if (outcome_.was_there) return absl::OkStatus();
  const absl::StatusOr<MissingContent> missing = ReadWhatIsMissing();
  RETURN_IF_ERROR(said(missing.status()));
  if (target.stays) RETURN_IF_ERROR(said(AnswerTaken(first_, target.stays)));
  RETURN_IF_ERROR(SendAll(*missing));
  return said(End());
}

absl::StatusOr<PushOutcome> Pusher::Push(int root_fd, const PushTarget& target) {
  root_fd_ = root_fd;
  if (!target.sources.empty() && target.sources.size() != static_cast<size_t>(manifest_.size())) {
    return absl::InvalidArgumentError("push: not one source for each entry");
  }
  sources_ = target.sources;
  const absl::Status status = Run(target);
  if (absl::IsDataLoss(status)) {
    return absl::AbortedError(
        absl::StrCat(status.message(), "; it changed while it was being sent"));
  }
  RETURN_IF_ERROR(status);
  return std::move(outcome_);
}

}  // namespace

absl::StatusOr<PushOutcome> PushTree(const TransferStream& stream, const std::string& root,
                                     const Manifest& manifest, const PushTarget& target,
                                     Clock& clock, const TransferOptions& options) {
  const UniqueFd root_fd(file_ops::Open(root, O_RDONLY | O_DIRECTORY));
  if (!root_fd.valid()) return ErrnoStatus(errno, absl::StrCat("send ", root));
  FrameChannel channel(*stream.bytes);
  return Pusher(channel, stream.IsSlow(), manifest, clock, options).Push(root_fd.get(), target);
}

}  // namespace gpuctl
