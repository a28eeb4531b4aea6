#include "agent/trees/send.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/delta/offers.h"
#include "common/files/dir_walk.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "common/job/job_layout.h"
#include "common/transfer/find_parts.h"
#include "common/transfer/frame_channel.h"
#include "common/transfer/pieces.h"
#include "common/tree/manifest.h"
#include "common/tree/tree.h"

namespace gpuctl {
namespace {

using gpuctl::v1::PullBegin;
using gpuctl::v1::PullNotes;
using gpuctl::v1::TransferFrame;
using gpuctl::v1::Want;

constexpr int64_t kMaxOffset = int64_t{1} << 56;
// The room for names in the notes of a pull, which share a frame with a part of the manifest.
constexpr size_t kMaxNotesBytes = 512 << 10;
constexpr size_t kNameBytes = 8;  // of a name beside its own

// The subject of a pull: everything below a directory, or one file in it.
struct Subject {
  UniqueFd dir;
  std::string file;    // empty: the whole directory
  std::string prefix;  // "a/b/" when `dir` is this directory below the subject's path
};

// True when `path`, from a peer, may be a file of the subject.
bool IsOf(const Subject& subject, const std::string& path) {
  return subject.file.empty() ? IsSafeRelativePath(path) && absl::StartsWith(path, subject.prefix)
                              : path == subject.file;
}

// Returns such a path as it is below the subject's directory.
std::string PathIn(const Subject& subject, const std::string& path) {
  return path.substr(subject.prefix.size());
}

bool IsJobsOwn(absl::string_view path) {
  const absl::string_view top = path.substr(0, path.find('/'));
  return top == "work" || top == "ckpt";
}

// Says what `name` is, which is neither a file nor a directory. Its stat is `info`.
std::string DescribeOther(int dir, const std::string& name, const struct stat& info) {
  if (S_ISFIFO(info.st_mode)) return "it is a FIFO, no file or directory";
  if (!S_ISLNK(info.st_mode)) return "it is a device or socket, no file or directory";
  char target[4096];
  const ssize_t size = readlinkat(dir, name.c_str(), target, sizeof(target));
  if (size < 0) return "it is a symlink, no file or directory";
  return absl::StrCat("it is a symlink to ",
                      absl::CHexEscape(absl::string_view(target, static_cast<size_t>(size))),
                      "; name the file or directory itself");
}

// Opens `path` below `base`, without following symlinks.
absl::StatusOr<Subject> OpenSubjectBelow(const std::string& base, const std::string& path) {
  const auto error = [&](int error_number) {
    return ErrnoStatus(error_number, absl::StrCat("send ", absl::CHexEscape(path)));
  };
  const UniqueFd base_fd(file_ops::Open(base, O_RDONLY | O_DIRECTORY));
  if (!base_fd.valid()) return error(errno);
  DirWalk walk(base_fd.get());
  const size_t slash = path.rfind('/');
  ASSIGN_OR_RETURN(const int parent_fd, walk.Open(slash == path.npos ? "" : path.substr(0, slash)));
  const std::string name = BaseName(path);
  struct stat info {};
  if (fstatat(parent_fd, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return error(errno);
  if (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode)) {
    return absl::NotFoundError(
        absl::StrCat("send ", absl::CHexEscape(path), ": ", DescribeOther(parent_fd, name, info)));
  }
  Subject subject;
  if (S_ISDIR(info.st_mode)) {
    subject.dir.reset(OpenBelow(parent_fd, name, O_RDONLY | O_DIRECTORY, 0, path));
  } else {
    subject.dir.reset(OpenBelow(parent_fd, ".", O_RDONLY | O_DIRECTORY, 0, path));
    subject.file = name;
  }
  if (!subject.dir.valid()) return error(errno);
  return subject;
}

// Returns the part of `path` below `dir`, or nothing when it is not below.
std::optional<std::string> PartBelow(absl::string_view path, absl::string_view dir) {
  if (!absl::ConsumePrefix(&path, dir) || !absl::ConsumePrefix(&path, "/")) return std::nullopt;
  return std::string(path);
}

absl::StatusOr<Subject> OpenSubject(const std::string& job_dir, const PullBegin& begin) {
  const std::string& path = begin.path();
  const std::string& follow = begin.follow();
  if (follow.empty()) return OpenSubjectBelow(job_dir, path);
  const std::string followed = JoinPath(job_dir, follow);
  if (const auto below = PartBelow(path, follow); below.has_value()) {
    return OpenSubjectBelow(followed, *below);
  }
  Subject subject;
  subject.dir.reset(file_ops::Open(followed, O_RDONLY | O_DIRECTORY));
  if (!subject.dir.valid()) {
    return ErrnoStatus(errno, absl::StrCat("send ", absl::CHexEscape(follow)));
  }
  if (follow == path) return subject;
  const auto inside = PartBelow(follow, path);
  if (!inside.has_value() || (begin.files().empty() && !begin.joins())) {
    return absl::InvalidArgumentError("send: the peer follows what is not on the way");
  }
  subject.prefix = absl::StrCat(*inside, "/");
  return subject;
}

// Returns `manifest` with `prefix` before each path.
Manifest WithPrefix(const Manifest& manifest, const std::string& prefix) {
  Manifest prefixed;
  for (gpuctl::v1::FileEntry entry : manifest) {
    entry.set_path(absl::StrCat(prefix, entry.path()));
    prefixed.Append(entry);
  }
  return prefixed;
}

absl::StatusOr<Manifest> Scan(const Subject& subject, const PullBegin& begin,
                              ScanOptions& options) {
  if (!subject.file.empty()) return ScanFileAt(subject.dir.get(), subject.file, options);
  if (begin.files().empty()) return ScanTreeAt(subject.dir.get(), begin.path(), options);
  std::vector<std::string> files(begin.files().begin(), begin.files().end());
  for (std::string& file : files) {
    if (!IsSafeRelativePath(file) || !absl::StartsWith(file, subject.prefix)) {
      return absl::InvalidArgumentError("send: the peer named no file below the directory");
    }
    file.erase(0, subject.prefix.size());
  }
  std::sort(files.begin(), files.end(), PathLess);
  files.erase(std::unique(files.begin(), files.end()), files.end());
  options.leave_changed = true;
  return ScanFilesAt(subject.dir.get(), begin.path(), files, options);
}

// Adds `names` to the note, as many as fit into a frame.
bool Note(const std::vector<std::string>& names,
          google::protobuf::RepeatedPtrField<std::string>& to, size_t& room) {
  for (const std::string& name : names) {
    if (name.size() + kNameBytes > room) return false;
    room -= name.size() + kNameBytes;
    *to.Add() = name;
  }
  return true;
}

// Returns the manifest of the subject. `notes` gets the files that are not in it as they are.
absl::StatusOr<Manifest> Describe(const Subject& subject, const PullBegin& begin,
                                  PullNotes& notes) {
  ScanOptions options;
  ScanNotes found;
  options.times = begin.times();
  if (begin.snapshots()) options.notes = &found;
  ASSIGN_OR_RETURN(Manifest manifest, Scan(subject, begin, options));
  if (!subject.prefix.empty()) {
    manifest = WithPrefix(manifest, subject.prefix);
    for (auto* names : {&found.changed, &found.grown, &found.set_id}) {
      for (std::string& name : *names) name.insert(0, subject.prefix);
    }
  }
  size_t room = kMaxNotesBytes;
  if (!Note(found.changed, *notes.mutable_changed(), room)) {
    return absl::AbortedError("send: too many files changed while they were being read");
  }
  (void)Note(found.grown, *notes.mutable_grown(), room);
  (void)Note(found.set_id, *notes.mutable_set_id(), room);
  return manifest;
}

// Sends a piece without what the peer offers of it.
absl::Status SendRestOf(FrameChannel& channel, PieceReader& reader, const Want::Piece& piece,
                        const std::string& path) {
  std::vector<const gpuctl::v1::Offer*> offers;
  for (const gpuctl::v1::Offer& offer : piece.offers()) {
    RETURN_IF_ERROR(CheckOffer(offer));
    offers.push_back(&offer);
  }
  return reader.SendRest(channel, {piece.index(), piece.offset(), piece.length()}, path, offers)
      .status();
}

// Answers one request for content.
absl::Status Answer(FrameChannel& channel, PieceReader& reader, const Subject& subject,
                    const Want& want, bool compress) {
  for (const Want::Piece& piece : want.pieces()) {
    if (!IsOf(subject, piece.path()) || piece.offset() < 0 || piece.offset() > kMaxOffset ||
        piece.length() <= 0 || piece.length() > kPartBytes) {
      return absl::InvalidArgumentError("send: the peer wants what is no piece of a file");
    }
    RETURN_IF_ERROR(channel.SetCompression(compress && MayCompress(piece.path())));
    const std::string path = PathIn(subject, piece.path());
    RETURN_IF_ERROR(
        piece.offers().empty()
            ? reader.Send(channel, {piece.index(), piece.offset(), piece.length()}, path)
            : SendRestOf(channel, reader, piece, path));
  }
  return channel.Flush();
}

absl::Status Serve(FrameChannel& channel, const std::string& root) {
  ASSIGN_OR_RETURN(const TransferFrame frame, channel.Read());
  const PullBegin& begin = frame.pull_begin();
  if (!frame.has_pull_begin() || !IsValidId(begin.job_id()) || !IsSafeRelativePath(begin.path()) ||
      !IsJobsOwn(begin.path()) ||
      (!begin.follow().empty() &&
       (!IsSafeRelativePath(begin.follow()) || !IsJobsOwn(begin.follow())))) {
    return absl::InvalidArgumentError("send: the peer did not name a file of a job");
  }
  ASSIGN_OR_RETURN(const Subject subject,
                   OpenSubject(RootPaths(root).Job(begin.job_id()).dir, begin));
  if (!begin.joins()) {
    PullNotes notes;
    ASSIGN_OR_RETURN(const Manifest manifest, Describe(subject, begin, notes));
    RETURN_IF_ERROR(
        WriteManifest(channel, manifest, !subject.file.empty(), /*finds_parts=*/true, &notes));
  }
  if (begin.takes_packed_streams()) channel.CompressInStream();
  PieceReader reader(subject.dir.get());
  const auto path_of = [&](const gpuctl::v1::FindParts::File& file) -> absl::StatusOr<std::string> {
    if (IsOf(subject, file.path())) return PathIn(subject, file.path());
    return absl::InvalidArgumentError("send: the peer asks for parts of no file of the subject");
  };
  while (true) {
    ASSIGN_OR_RETURN(const TransferFrame next, channel.ReadOrError());
    if (next.has_done()) return absl::OkStatus();
    if (next.has_find_parts()) {
      RETURN_IF_ERROR(AnswerFindParts(channel, reader, next.find_parts(), path_of));
      continue;
    }
    if (!next.has_want()) {
      return absl::InvalidArgumentError("send: the peer sent another frame than a request");
    }
    RETURN_IF_ERROR(Answer(channel, reader, subject, next.want(), begin.compress()));
  }
}

}  // namespace

absl::Status SendPull(const std::string& root, int in_fd, int out_fd) {
  signal(SIGPIPE, SIG_IGN);
  FrameChannel channel(in_fd, out_fd);
  absl::Status status = Serve(channel, root);
  status.Update(channel.WriteDone(status));
  return status;
}

int RunSend(const std::string& root, int in_fd, int out_fd) {
  const absl::Status status = SendPull(root, in_fd, out_fd);
  if (status.ok()) return 0;
  fprintf(stderr, "gpuctl-agent: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace gpuctl
