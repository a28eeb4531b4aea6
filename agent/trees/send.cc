#include "agent/trees/send.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
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
using gpuctl::v1::TransferFrame;
using gpuctl::v1::Want;

constexpr int64_t kMaxOffset = int64_t{1} << 56;

// The subject of a pull: everything below a directory, or one file in it.
struct Subject {
  UniqueFd dir;
  std::string file;  // empty: the whole directory
};

// True when `path`, from a peer, may be a file of the subject.
bool IsOf(const Subject& subject, const std::string& path) {
  return subject.file.empty() ? IsSafeRelativePath(path) : path == subject.file;
}

bool IsJobsOwn(absl::string_view path) {
  const absl::string_view top = path.substr(0, path.find('/'));
  return top == "work" || top == "ckpt";
}

absl::StatusOr<Subject> OpenSubject(const std::string& job_dir, const std::string& path) {
  const auto error = [&](int error_number) {
    return ErrnoStatus(error_number, absl::StrCat("send ", absl::CHexEscape(path)));
  };
  const UniqueFd job_fd(file_ops::Open(job_dir, O_RDONLY | O_DIRECTORY));
  if (!job_fd.valid()) return error(errno);
  DirWalk walk(job_fd.get());
  const size_t slash = path.rfind('/');
  ASSIGN_OR_RETURN(const int parent_fd, walk.Open(slash == path.npos ? "" : path.substr(0, slash)));
  const std::string name = BaseName(path);
  struct stat info {};
  if (fstatat(parent_fd, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return error(errno);
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

absl::StatusOr<Manifest> Describe(const Subject& subject, const PullBegin& begin) {
  if (!subject.file.empty()) return ScanFileAt(subject.dir.get(), subject.file);
  if (begin.files().empty()) return ScanTreeAt(subject.dir.get(), begin.path());
  std::vector<std::string> files(begin.files().begin(), begin.files().end());
  for (const std::string& file : files) {
    if (!IsSafeRelativePath(file)) {
      return absl::InvalidArgumentError("send: the peer named no file below the directory");
    }
  }
  std::sort(files.begin(), files.end(), PathLess);
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return ScanFilesAt(subject.dir.get(), begin.path(), files);
}

// Sends a piece without what the peer offers of it.
absl::Status SendRestOf(FrameChannel& channel, PieceReader& reader, const Want::Piece& piece) {
  std::vector<const gpuctl::v1::Offer*> offers;
  for (const gpuctl::v1::Offer& offer : piece.offers()) {
    RETURN_IF_ERROR(CheckOffer(offer));
    offers.push_back(&offer);
  }
  return reader
      .SendRest(channel, {piece.index(), piece.offset(), piece.length()}, piece.path(), offers)
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
    RETURN_IF_ERROR(
        piece.offers().empty()
            ? reader.Send(channel, {piece.index(), piece.offset(), piece.length()}, piece.path())
            : SendRestOf(channel, reader, piece));
  }
  return channel.Flush();
}

absl::Status Serve(FrameChannel& channel, const std::string& root) {
  ASSIGN_OR_RETURN(const TransferFrame frame, channel.Read());
  const PullBegin& begin = frame.pull_begin();
  if (!frame.has_pull_begin() || !IsValidId(begin.job_id()) || !IsSafeRelativePath(begin.path()) ||
      !IsJobsOwn(begin.path())) {
    return absl::InvalidArgumentError("send: the peer did not name a file of a job");
  }
  ASSIGN_OR_RETURN(const Subject subject,
                   OpenSubject(RootPaths(root).Job(begin.job_id()).dir, begin.path()));
  if (!begin.joins()) {
    ASSIGN_OR_RETURN(const Manifest manifest, Describe(subject, begin));
    RETURN_IF_ERROR(WriteManifest(channel, manifest, !subject.file.empty(), /*finds_parts=*/true));
  }
  if (begin.takes_packed_streams()) channel.CompressInStream();
  PieceReader reader(subject.dir.get());
  const auto path_of = [&](const gpuctl::v1::FindParts::File& file) -> absl::StatusOr<std::string> {
    if (IsOf(subject, file.path())) return file.path();
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
