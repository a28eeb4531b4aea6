#include "common/transfer/pull.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/files/background_sync.h"
#include "common/files/dir_walk.h"
#include "common/files/files.h"
#include "common/files/regular_file.h"
#include "common/files/relative_path.h"
#include "common/files/sync_fs.h"
#include "common/transfer/find_parts.h"
#include "common/transfer/frame_channel.h"
#include "common/transfer/pieces.h"
#include "common/transfer/pull_times.h"
#include "common/transfer/stream_team.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;
using gpuctl::v1::TransferFrame;
using gpuctl::v1::Want;

// The limits of content that is requested and has not come: as much as the fastest link holds, and
// so few bytes of requests that the node's pipe always takes them, even while nobody reads its
// answers.
constexpr int64_t kOutstandingBytes = 16 << 20;
constexpr int64_t kOutstandingRequestBytes = 32 << 10;
constexpr int64_t kRequestBytes = 32;  // of a request beside the path

TransferFrame Begin(const PullSubject& subject, bool slow_link, bool joins) {
  TransferFrame frame;
  gpuctl::v1::PullBegin& begin = *frame.mutable_pull_begin();
  begin.set_job_id(subject.job_id);
  begin.set_path(subject.path);
  begin.set_joins(joins);
  begin.set_compress(slow_link);
  begin.set_snapshots(subject.snapshots);
  begin.set_times(true);
  begin.set_follow(subject.follow);
  begin.set_takes_packed_streams(true);
  if (!joins) {
    for (const std::string& file : subject.files) begin.add_files(file);
  }
  return frame;
}

class Puller {
 public:
  // `offers` is what there is at home near missing parts. It must outlive the puller.
  Puller(TreeBuilder& builder, const PullSubject& subject,
         const std::vector<gpuctl::v1::Offer>& offers, StreamTeam& team)
      : builder_(builder), subject_(subject), team_(team) {
    for (const gpuctl::v1::Offer& offer : offers) {
      offers_[{offer.index(), offer.part()}] = &offer;
    }
  }

  absl::Status RunFirst(FrameChannel& channel) { return TakePieces(channel); }

  absl::Status RunFurther(const TransferStream& stream) {
    FrameChannel channel(*stream.bytes);
    RETURN_IF_ERROR(channel.Write(Begin(subject_, stream.IsSlow(), true)));
    return TakePieces(channel);
  }

 private:
  struct Outstanding {
    std::deque<Piece> pieces;
    std::deque<Piece> next;  // requested when there is room
    int64_t bytes = 0;
    int64_t request_bytes = 0;
    bool more = true;
  };

  // Returns what there is at home near this piece, or null.
  const gpuctl::v1::Offer* OfferFor(const Piece& piece) const {
    const auto offer = offers_.find({piece.index, piece.offset / kPartBytes});
    return offer == offers_.end() ? nullptr : offer->second;
  }

  int64_t RequestBytes(const Piece& piece) const {
    const gpuctl::v1::Offer* offer = OfferFor(piece);
    return kRequestBytes + static_cast<int64_t>(builder_.manifest()[piece.index].path().size()) +
           (offer == nullptr ? 0 : static_cast<int64_t>(offer->ByteSizeLong()));
  }

  // Returns a request for the next pieces, as many as fit. At least one piece is always under way.
  TransferFrame WantNext(Outstanding& outstanding) {
    TransferFrame frame;
    while (!outstanding.next.empty()) {
      const Piece& piece = outstanding.next.front();
      const int64_t request_bytes = RequestBytes(piece);
      if (!outstanding.pieces.empty() &&
          outstanding.request_bytes + request_bytes > kOutstandingRequestBytes) {
        break;
      }
      Want::Piece* wanted = frame.mutable_want()->add_pieces();
      wanted->set_index(static_cast<uint32_t>(piece.index));
      wanted->set_path(builder_.manifest()[piece.index].path());
      wanted->set_offset(piece.offset);
      wanted->set_length(piece.length);
      if (const gpuctl::v1::Offer* offer = OfferFor(piece); offer != nullptr) {
        *wanted->add_offers() = *offer;
      }
      outstanding.bytes += piece.length;
      outstanding.request_bytes += request_bytes;
      outstanding.pieces.push_back(piece);
      outstanding.next.pop_front();
    }
    return frame;
  }

  absl::Status Ask(FrameChannel& channel, Outstanding& outstanding) {
    // Requests are sent in batches, not for each piece that came.
    if (outstanding.request_bytes > kOutstandingRequestBytes / 2) return absl::OkStatus();
    while (outstanding.bytes < kOutstandingBytes) {
      if (outstanding.next.empty() && outstanding.more) {
        const std::vector<Piece> batch = team_.Next();
        outstanding.next.assign(batch.begin(), batch.end());
        outstanding.more = !batch.empty();
      }
      const TransferFrame frame = WantNext(outstanding);
      if (!frame.has_want()) break;
      RETURN_IF_ERROR(channel.Write(frame));
    }
    return channel.Flush();
  }

  absl::Status TakePieces(FrameChannel& channel) {
    PieceWriter writer(builder_.root_fd(), builder_.manifest(),
                       PieceWriter::Cache::kPassByLargeFiles);
    writer.TakeFromOlder([this](int64_t index) { return builder_.OlderFile(index); });
    BackgroundSync small_files([fd = builder_.root_fd()] { return SyncFileSystem(fd) == 0; });
    Outstanding outstanding;
    while (true) {
      RETURN_IF_ERROR(Ask(channel, outstanding));
      if (outstanding.pieces.empty()) break;
      absl::string_view content;
      ASSIGN_OR_RETURN(const TransferFrame frame, channel.ReadContentOrError(content));
      if (!frame.has_file_data()) {
        return absl::InvalidArgumentError("pull: the node sent another frame in a file's place");
      }
      ASSIGN_OR_RETURN(const bool complete, writer.Take(frame.file_data(), content));
      if (!complete) continue;
      if (writer.piece().length < kPartBytes) small_files.Wrote(writer.piece().length);
      const Piece asked = outstanding.pieces.front();
      const Piece& piece = writer.piece();
      if (asked.index != piece.index || asked.offset != piece.offset) {
        return absl::InvalidArgumentError("pull: the node sent what was not asked for");
      }
      outstanding.pieces.pop_front();
      outstanding.bytes -= piece.length;
      outstanding.request_bytes -= RequestBytes(piece);
      {
        MutexLock lock(mutex_);
        builder_.missing().RemovePart(piece.index, piece.offset / kPartBytes,
                                      PartCount(builder_.manifest()[piece.index].size()));
      }
      team_.Moved(piece, writer.copied());
    }
    RETURN_IF_ERROR(channel.WriteDone(absl::OkStatus()));
    ASSIGN_OR_RETURN(const TransferFrame done, channel.ReadOrError());
    if (done.has_done()) return absl::OkStatus();
    return absl::InvalidArgumentError("pull: the node went on after the end");
  }

  TreeBuilder& builder_;
  const PullSubject& subject_;
  StreamTeam& team_;
  std::map<std::pair<int64_t, int64_t>, const gpuctl::v1::Offer*> offers_;  // by index and part
  Mutex mutex_;  // guards what is missing
};

absl::Status NotAskedFor(const PullSubject& subject, absl::string_view path) {
  return absl::InvalidArgumentError(absl::StrCat("pull ", absl::CHexEscape(subject.path),
                                                 ": the node sent ", absl::CHexEscape(path),
                                                 ", which was not asked for"));
}

// Checks that the node's manifest names only what the subject does.
absl::Status CheckAnswer(const PullSubject& subject, const Manifest& manifest, bool is_file) {
  if (!is_file && subject.files.empty()) return absl::OkStatus();
  if (is_file && (manifest.size() != 1 || !subject.files.empty())) {
    return absl::InvalidArgumentError("pull: the node names one file and sends another number");
  }
  std::set<absl::string_view> asked(subject.files.begin(), subject.files.end());
  const std::string name = BaseName(subject.path);
  if (is_file) asked.insert(name);
  for (const FileEntry& entry : manifest) {
    if (asked.count(entry.path()) == 0) return NotAskedFor(subject, entry.path());
    if (entry.kind() != FileEntry::KIND_FILE) {
      return absl::AbortedError(
          absl::StrCat("pull ", absl::CHexEscape(entry.path()), ": it is no file any more"));
    }
  }
  return absl::OkStatus();
}

// Returns the bytes of missing files that are at home at the same paths, by their sizes.
int64_t BytesAtHome(TreeBuilder& builder, int have_fd) {
  if (have_fd < 0) return 0;
  DirWalk walk(have_fd);
  int64_t bytes = 0;
  for (int64_t i = 0; i < builder.manifest().size(); ++i) {
    if (!builder.missing().Has(i)) continue;
    const FileEntry entry = builder.manifest()[i];
    const absl::StatusOr<int> dir = walk.Open(ParentPath(entry.path()));
    struct stat info {};
    if (dir.ok() &&
        fstatat(*dir, BaseName(entry.path()).c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(info.st_mode)) {
      bytes += std::min(entry.size(), int64_t{info.st_size});
    }
  }
  return bytes;
}

// Refuses a pull for which the disk below `parent` has no room. `at_home` bytes of what is missing
// may be at home already.
absl::Status CheckRoom(TreeBuilder& builder, const std::string& parent, int64_t at_home,
                       const TransferOptions& options) {
  const int64_t wanted = builder.missing().Bytes(builder.manifest()) - at_home;
  const int64_t free = options.free_bytes ? options.free_bytes(parent) : FreeBytes(parent);
  if (free < 0 || wanted <= free) return absl::OkStatus();
  return ErrnoStatus(ENOSPC, absl::StrCat("pull to ", parent, ": ", wanted,
                                          " bytes are to come, and ", free, " are free"));
}

// Takes what is at home already. IsDiskFull when the disk has no room for it, or for the rest.
absl::Status TakeFromHome(TreeBuilder& builder, const PullSubject& subject,
                          const std::string& parent, const TransferOptions& options) {
  const UniqueFd have(subject.have.empty() ? -1
                                           : file_ops::Open(subject.have, O_RDONLY | O_DIRECTORY));
  RETURN_IF_ERROR(CheckRoom(builder, parent, BytesAtHome(builder, have.get()), options));
  if (!have.valid()) return absl::OkStatus();
  RETURN_IF_ERROR(builder.TakeSamePaths(have.get()));
  // Not all of it had the wanted content. What was taken has its room already.
  return CheckRoom(builder, parent, 0, options);
}

absl::Status TakeContent(FrameChannel& channel, const PullSubject& subject, bool finds_parts,
                         Clock& clock, const TransferOptions& options, Pulled& pulled) {
  TreeBuilder& builder = *pulled.tree;
  std::vector<gpuctl::v1::Offer> offers;
  if (finds_parts && options.use_older) {
    RETURN_IF_ERROR(TakeMovedParts(channel, builder, /*paths=*/true));
    offers = builder.MakeOffers();
  }
  const MissingContent missing = builder.missing();
  StreamTeam team(builder.manifest(), missing, clock, options);
  Puller puller(builder, subject, offers, team);
  absl::Status status =
      team.Run([&] { return puller.RunFirst(channel); },
               [&](const TransferStream& stream) { return puller.RunFurther(stream); });
  pulled.received = team.count();
  RETURN_IF_ERROR(status);
  return builder.Finish();
}

}  // namespace

absl::StatusOr<Pulled> PullTree(const TransferStream& stream, const PullSubject& subject,
                                const std::string& parent, Clock& clock,
                                const TransferOptions& options) {
  FrameChannel channel(*stream.bytes);
  RETURN_IF_ERROR(channel.Write(Begin(subject, stream.IsSlow(), false)));
  RETURN_IF_ERROR(channel.Flush());
  Pulled pulled;
  bool finds_parts = false;
  ASSIGN_OR_RETURN(Manifest manifest,
                   ReadManifest(channel, &pulled.is_file, &finds_parts, &pulled.notes));
  const std::vector<int64_t> times = TakeTimes(manifest);
  RETURN_IF_ERROR(CheckAnswer(subject, manifest, pulled.is_file));
  std::vector<bool> chosen;
  if (subject.choose) {
    ASSIGN_OR_RETURN(chosen, subject.choose(manifest));
  }
  ASSIGN_OR_RETURN(pulled.tree, TreeBuilder::Begin(parent, std::move(manifest), std::move(chosen)));
  // Only what an earlier try received is worth its room.
  int64_t wanted = 0;
  for (int64_t i = 0; i < pulled.tree->manifest().size(); ++i) {
    if (pulled.tree->Wants(i)) wanted += pulled.tree->manifest()[i].size();
  }
  const bool received = pulled.tree->missing().Bytes(pulled.tree->manifest()) < wanted;
  if (absl::Status room = TakeFromHome(*pulled.tree, subject, parent, options); !room.ok()) {
    if (received) pulled.tree->Keep();
    return room;
  }
  TransferOptions with_link = options;
  with_link.slow_link = stream.IsSlow();
  const absl::Status status = TakeContent(channel, subject, finds_parts, clock, with_link, pulled);
  if (status.ok()) {
    SetTimes(*pulled.tree, times);
    return pulled;
  }
  pulled.tree->Keep();
  return status;
}

absl::Status PublishPulled(TreeBuilder& tree, const std::string& to) {
  if (PathExists(to)) {
    return absl::AlreadyExistsError(absl::StrCat("publish ", to, ": it is there already"));
  }
  // rename would replace an empty directory. Only a race with somebody else gets that far.
  if (file_ops::Rename(tree.tree_path(), to) != 0) {
    const int error_number = errno == ENOTEMPTY ? EEXIST : errno;
    return ErrnoStatus(error_number, absl::StrCat("publish ", to));
  }
  return SyncDirectory(DirName(to));
}

absl::Status CheckReplaceable(const struct stat& present, const FileEntry& entry) {
  const auto refuse = [&](absl::string_view cause) {
    return absl::FailedPreconditionError(
        absl::StrCat("put into place ", absl::CHexEscape(entry.path()), ": ", cause));
  };
  if (S_ISDIR(present.st_mode) != (entry.kind() == FileEntry::KIND_DIRECTORY)) {
    return refuse(S_ISDIR(present.st_mode) || S_ISREG(present.st_mode)
                      ? "a file and a directory have this name"
                      : "what is there is no directory");
  }
  // A symlink that changed its target is all that is lost.
  if (S_ISLNK(present.st_mode) && entry.kind() == FileEntry::KIND_SYMLINK) return absl::OkStatus();
  if (S_ISDIR(present.st_mode) || S_ISREG(present.st_mode)) return absl::OkStatus();
  return refuse(S_ISLNK(present.st_mode) ? "a symlink is there" : "what is there is no file");
}

absl::Status MergePulled(TreeBuilder& tree, const std::string& to) {
  const UniqueFd to_fd(file_ops::Open(to, O_RDONLY | O_DIRECTORY));
  if (!to_fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", to));
  DirWalk from_walk(tree.root_fd());
  DirWalk to_walk(to_fd.get(), 0777);
  std::string moved;  // "path/" of a directory that moved with all below it
  for (int64_t i = 0; i < tree.manifest().size(); ++i) {
    if (!tree.Wants(i)) continue;
    const FileEntry entry = tree.manifest()[i];
    if (!moved.empty() && absl::StartsWith(entry.path(), moved)) continue;
    moved.clear();
    const std::string name = BaseName(entry.path());
    ASSIGN_OR_RETURN(const int to_dir, to_walk.OpenOrMake(ParentPath(entry.path())));
    struct stat info {};
    const bool present = fstatat(to_dir, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
    const bool is_directory = entry.kind() == FileEntry::KIND_DIRECTORY;
    if (present && is_directory && S_ISDIR(info.st_mode)) continue;
    if (present) RETURN_IF_ERROR(CheckReplaceable(info, entry));
    ASSIGN_OR_RETURN(const int from_dir, from_walk.Open(ParentPath(entry.path())));
    if (RenameBelow(from_dir, name, to_dir, name, entry.path()) != 0) {
      return PathError("put into place", entry.path());
    }
    if (is_directory) moved = absl::StrCat(entry.path(), "/");
  }
  if (SyncFileSystem(to_fd.get()) != 0 && errno != ENOSYS) return PathError("sync", to);
  return absl::OkStatus();
}

}  // namespace gpuctl
