#include "agent/trees/receive.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "agent/store/tree_store.h"
#include "agent/trees/work_merge.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/files/background_sync.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "common/files/sha256.h"
#include "common/files/staging_dir.h"
#include "common/files/sync_fs.h"
#include "common/job/job_layout.h"
#include "common/transfer/find_parts.h"
#include "common/transfer/frame_channel.h"
#include "common/transfer/missing_frames.h"
#include "common/transfer/pieces.h"
#include "common/transfer/taken_frames.h"
#include "common/tree/manifest.h"
#include "common/tree/tree_builder.h"

namespace gpuctl {
namespace {

using gpuctl::v1::PushBegin;
using gpuctl::v1::TransferFrame;

// The prefix of a file in the staging directory where a further stream records its written pieces:
// one number for the entry, one for the part.
constexpr absl::string_view kNotePrefix = "pieces.";
struct PieceNote {
  int64_t index;
  int64_t part;
};

// Returns the token of a staging directory: the variable parts of its path below the root, with a
// slash.
std::string TokenOf(const std::string& root, const std::string& staging_path) {
  absl::string_view token = absl::StripPrefix(staging_path, root);
  while (absl::ConsumePrefix(&token, "/")) {
  }
  return std::string(token);
}

// Returns the staging directory of a token. INVALID_ARGUMENT unless it belongs to the store or to a
// job, and is not in a place where jobs write.
absl::StatusOr<std::string> StagingOf(const std::string& root, const std::string& token) {
  const std::vector<absl::string_view> parts = absl::StrSplit(token, '/');
  const bool plausible = IsSafeRelativePath(token) && parts.size() == 3 &&
                         ((parts[0] == "blobs" && parts[1] == "trees") ||
                          (parts[0] == "jobs" && IsValidId(parts[1]))) &&
                         absl::StartsWith(parts[2], kStagingPrefix);
  const std::string path = JoinPath(root, token);
  struct stat info {};
  if (!plausible || lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError("receive: the peer did not name a push that is going on");
  }
  return path;
}

// Takes pieces until the peer's Done. Calls `done` for each complete piece. `older` is empty, or
// the files to which the peer may refer; see PieceWriter.
absl::Status TakePieces(FrameChannel& channel, int root_fd, const Manifest& manifest,
                        std::function<int(int64_t)> older,
                        const std::function<absl::Status(const Piece&)>& done) {
  PieceWriter writer(root_fd, manifest);
  writer.TakeFromOlder(std::move(older));
  BackgroundSync small_files([root_fd] { return SyncFileSystem(root_fd) == 0; });
  while (true) {
    absl::string_view content;
    ASSIGN_OR_RETURN(const TransferFrame frame, channel.ReadContentOrError(content));
    if (frame.has_done()) return writer.Finish();
    if (!frame.has_file_data()) {
      return absl::InvalidArgumentError("receive: the peer sent another frame in a file's place");
    }
    ASSIGN_OR_RETURN(const bool complete, writer.Take(frame.file_data(), content));
    if (!complete) continue;
    if (writer.piece().length < kPartBytes) small_files.Wrote(writer.piece().length);
    RETURN_IF_ERROR(done(writer.piece()));
  }
}

absl::Status ReadNotes(TreeBuilder& builder) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(builder.staging_path()));
  const Manifest& manifest = builder.manifest();
  for (const std::string& name : names) {
    if (!absl::StartsWith(name, kNotePrefix)) continue;
    ASSIGN_OR_RETURN(const std::string bytes,
                     ReadFileToString(JoinPath(builder.staging_path(), name), 1 << 30));
    for (size_t at = 0; at + sizeof(PieceNote) <= bytes.size(); at += sizeof(PieceNote)) {
      PieceNote note{};
      memcpy(&note, bytes.data() + at, sizeof(note));
      if (note.index < 0 || note.index >= manifest.size()) continue;
      const int64_t parts = PartCount(manifest[note.index].size());
      if (note.part >= 0 && note.part < parts) {
        builder.missing().RemovePart(note.index, note.part, parts);
      }
    }
  }
  return absl::OkStatus();
}

// The channel of a push, and its stream.
struct Peer {
  YieldingStream stream;
  FrameChannel channel{stream};
};

// Takes the content of the first stream and of further streams, and finishes the tree. With
// `finds_parts` the peer helps to find moved parts in older versions of their files. `agree` may
// ask the peer about something else before the content.
absl::Status TakeContent(Peer& peer, const std::string& root, bool finds_parts,
                         TreeBuilder& builder,
                         const std::function<absl::Status()>& agree = nullptr) {
  const Manifest& manifest = builder.manifest();
  FrameChannel& channel = peer.channel;
  peer.stream.Holds(builder.staging_path());
  std::vector<gpuctl::v1::Offer> offers;
  if (finds_parts) {
    RETURN_IF_ERROR(TakeMovedParts(channel, builder, /*paths=*/false));
    offers = builder.MakeOffers();
  }
  RETURN_IF_ERROR(
      WriteMissing(channel, builder.missing(), TokenOf(root, builder.staging_path()), offers));
  if (agree) RETURN_IF_ERROR(agree());
  const auto older = [&](int64_t index) { return builder.OlderFile(index); };
  RETURN_IF_ERROR(TakePieces(channel, builder.root_fd(), manifest, older, [&](const Piece& piece) {
    builder.missing().RemovePart(piece.index, piece.offset / kPartBytes,
                                 PartCount(manifest[piece.index].size()));
    return absl::OkStatus();
  }));
  RETURN_IF_ERROR(ReadNotes(builder));
  return builder.Finish();
}

absl::Status Need(FrameChannel& channel, bool have) {
  TransferFrame need;
  need.mutable_push_need()->set_have(have);
  need.mutable_push_need()->set_takes_packed_streams(true);
  RETURN_IF_ERROR(channel.Write(need));
  return channel.Flush();
}

absl::StatusOr<Manifest> TakeManifest(FrameChannel& channel, const std::string& digest) {
  ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(channel));
  if (manifest.Digest() != digest) {
    return absl::DataLossError(absl::StrCat("receive tree ", digest, ": its manifest differs"));
  }
  return manifest;
}

absl::Status StoreTree(Peer& peer, const std::string& root, const PushBegin& begin) {
  const std::string& digest = begin.manifest_digest();
  const std::string trees = RootPaths(root).trees;
  RETURN_IF_ERROR(MakeDirectories(trees));
  const bool have = [&] {
    // The lock keeps this out of the time between a sweep's choice and its removal.
    const absl::StatusOr<UniqueFd> lock = LockTreeStore(trees, false);
    return UseStoredTree(trees, digest);
  }();
  RETURN_IF_ERROR(Need(peer.channel, have));
  if (have) return absl::OkStatus();
  ASSIGN_OR_RETURN(Manifest manifest, TakeManifest(peer.channel, digest));
  EndSilentPushes(trees);
  ASSIGN_OR_RETURN(const std::unique_ptr<TreeBuilder> builder,
                   TreeBuilder::Begin(trees, std::move(manifest)));
  absl::StatusOr<StoredIdentities> taken = TakeFromStoredTrees(trees, *builder, Reuse::kLink);
  absl::Status status = taken.status();
  if (status.ok()) status = TakeContent(peer, root, begin.finds_parts(), *builder);
  if (status.ok()) status = PublishTree(trees, digest, *builder, *std::move(taken));
  // The next try goes on from here.
  if (!status.ok()) builder->Keep();
  return status;
}

// Merges the tree into a work directory. The caller closes the files in `replaced` after the peer
// has its answer.
absl::Status MergeTree(Peer& peer, const std::string& root, const PushBegin& begin,
                       std::vector<UniqueFd>& replaced) {
  const JobPaths job = RootPaths(root).Job(begin.job_id());
  const std::string trees = RootPaths(root).trees;
  // Only the whole work directory has a manifest to compare with. The job may still have changed
  // something, but a push would not replace that.
  const bool have = begin.into().empty() && !begin.overwrite() &&
                    Sha256HexOfFile(WorkManifestPath(job)).value_or("") == begin.manifest_digest();
  RETURN_IF_ERROR(Need(peer.channel, have));
  if (have) return absl::OkStatus();
  ASSIGN_OR_RETURN(Manifest manifest, TakeManifest(peer.channel, begin.manifest_digest()));
  ASSIGN_OR_RETURN(const std::unique_ptr<WorkMerge> merge,
                   WorkMerge::Plan(job, begin.into(), std::move(manifest), begin.overwrite()));
  TreeBuilder& builder = merge->builder();
  RETURN_IF_ERROR(MakeDirectories(trees));
  absl::Status status = TakeFromStoredTrees(trees, builder, Reuse::kCopy).status();
  std::function<absl::Status()> agree;
  if (begin.answers_taken()) {
    agree = [&] {
      return AskAboutTaken(peer.channel, merge->taken(),
                           [&](size_t index) { merge->Spare(index); });
    };
  }
  if (status.ok()) status = TakeContent(peer, root, begin.finds_parts(), builder, agree);
  TransferFrame frame;
  if (status.ok()) {
    absl::StatusOr<gpuctl::v1::MergeReport> report = merge->Apply();
    status = report.status();
    replaced = merge->TakeReplaced();
    if (report.ok()) *frame.mutable_merge_report() = *std::move(report);
  }
  if (status.ok()) return peer.channel.Write(frame);
  // The next try goes on from here.
  builder.Keep();
  return status;
}

absl::Status Join(Peer& peer, const std::string& root, const std::string& token) {
  ASSIGN_OR_RETURN(const std::string staging, StagingOf(root, token));
  // This stream may outlive its push, so nobody may take over the directory while it still writes.
  ASSIGN_OR_RETURN(const UniqueFd helping, HelpWithStaging(staging));
  peer.stream.Holds(staging);
  ASSIGN_OR_RETURN(const Manifest manifest, ReadStagedManifest(staging));
  const UniqueFd tree(file_ops::Open(StagedTreePath(staging), O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  const std::string note_path = JoinPath(staging, absl::StrCat(kNotePrefix, RandomHex(8)));
  const UniqueFd notes(file_ops::Open(note_path, O_WRONLY | O_CREAT | O_EXCL));
  if (!tree.valid() || !notes.valid()) return ErrnoStatus(errno, "join a push");
  return TakePieces(peer.channel, tree.get(), manifest, nullptr, [&](const Piece& piece) {
    const PieceNote note{piece.index, piece.offset / kPartBytes};
    return WriteAll(notes.get(), {reinterpret_cast<const char*>(&note), sizeof(note)}, note_path);
  });
}

absl::Status Serve(Peer& peer, const std::string& root) {
  ASSIGN_OR_RETURN(const TransferFrame frame, peer.channel.Read());
  if (frame.has_push_join()) {
    RETURN_IF_ERROR(Join(peer, root, frame.push_join().token()));
    return peer.channel.WriteDone(absl::OkStatus());
  }
  const PushBegin& begin = frame.push_begin();
  std::vector<UniqueFd> replaced;
  if (!frame.has_push_begin() || !IsManifestDigest(begin.manifest_digest())) {
    return absl::InvalidArgumentError("receive: the peer did not name a manifest's digest");
  }
  if (begin.job_id().empty()) {
    RETURN_IF_ERROR(StoreTree(peer, root, begin));
  } else {
    if (!IsValidId(begin.job_id()) || !(begin.into().empty() || IsSafeRelativePath(begin.into()))) {
      return absl::InvalidArgumentError("receive: the peer did not name a job's directory");
    }
    RETURN_IF_ERROR(MergeTree(peer, root, begin, replaced));
  }
  return peer.channel.WriteDone(absl::OkStatus());
}

}  // namespace

absl::Status ReceivePush(const std::string& root, int in_fd, int out_fd, absl::Duration silence) {
  signal(SIGPIPE, SIG_IGN);
  Peer peer{YieldingStream(in_fd, out_fd, silence)};
  absl::Status status = Serve(peer, root);
  if (!status.ok()) {
    (void)peer.channel.WriteDone(status);
    return status;
  }
  // The peer has its answer. The store may now be too large.
  (void)SweepIfDue(RootPaths(root).trees, Clock::Real());
  return status;
}

int RunReceive(const std::string& root, int in_fd, int out_fd) {
  const absl::Status status = ReceivePush(root, in_fd, out_fd);
  if (status.ok()) return 0;
  fprintf(stderr, "gpuctl-agent: %s\n", std::string(status.message()).c_str());
  return 1;
}

absl::Status RemoveAbandonedPushes(const std::string& root) {
  return RemoveAbandonedStaging(RootPaths(root).trees);
}

}  // namespace gpuctl
