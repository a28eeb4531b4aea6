#include "common/transfer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/dir_walk.h"
#include "common/files.h"
#include "common/sha256.h"
#include "common/staging_dir.h"
#include "common/status_macros.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileData;
using gpuctl::v1::FileEntry;
using gpuctl::v1::Manifest;
using gpuctl::v1::TransferFrame;

absl::string_view Parent(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == path.npos ? absl::string_view() : path.substr(0, slash);
}

// Moves the files of one manifest in one direction.
class Mover {
 public:
  Mover(FrameChannel& channel, int root_fd, const TransferProgress& progress)
      : channel_(channel), walk_(root_fd), progress_(progress) {}

  absl::Status Send(int64_t index, const FileEntry& entry);
  absl::Status Receive(int64_t index, const FileEntry& entry);

 private:
  void Moved(int64_t bytes) {
    moved_bytes_ += bytes;
    if (progress_) progress_(moved_bytes_);
  }

  FrameChannel& channel_;
  DirWalk walk_;
  const TransferProgress& progress_;
  int64_t moved_bytes_ = 0;
};

// Fills `buffer` from `offset`, up to its size or the end of the file.
absl::Status ReadAt(int fd, int64_t offset, std::string& buffer, const std::string& shown) {
  size_t have = 0;
  while (have < buffer.size()) {
    const ssize_t got =
        pread(fd, buffer.data() + have, buffer.size() - have, offset + static_cast<int64_t>(have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, absl::StrCat("read ", shown));
    if (got == 0) break;
    have += static_cast<size_t>(got);
  }
  buffer.resize(have);
  return absl::OkStatus();
}

absl::Status Mover::Send(int64_t index, const FileEntry& entry) {
  const std::string shown = absl::CHexEscape(entry.path());
  const auto changed = [&] {
    return absl::AbortedError(
        absl::StrCat("send ", shown, ": the file changed while it was being read"));
  };
  ASSIGN_OR_RETURN(const int dir_fd, walk_.Open(Parent(entry.path())));
  const UniqueFd fd(
      OpenBelow(dir_fd, BaseName(entry.path()), O_RDONLY | O_NONBLOCK, 0, entry.path()));
  if (!fd.valid()) {
    if (errno == ENOENT || errno == ELOOP) return changed();
    return ErrnoStatus(errno, absl::StrCat("send ", shown));
  }
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, absl::StrCat("send ", shown));
  if (!S_ISREG(info.st_mode) || int64_t{info.st_size} != entry.size()) return changed();
  Sha256 hash;
  int64_t offset = 0;
  do {
    TransferFrame frame;
    FileData& data = *frame.mutable_file_data();
    data.set_index(index);
    data.set_offset(offset);
    const int64_t wanted = std::min(kFileDataBytes, entry.size() - offset);
    data.mutable_data()->resize(static_cast<size_t>(wanted));
    RETURN_IF_ERROR(ReadAt(fd.get(), offset, *data.mutable_data(), shown));
    if (static_cast<int64_t>(data.data().size()) != wanted) return changed();
    hash.Update(data.data());
    offset += wanted;
    // The last piece is held back until the whole is known to be right: the receiver then hears
    // the reason instead of finding a wrong hash.
    if (offset == entry.size() && hash.Finish() != entry.sha256()) return changed();
    if (wanted > 0) RETURN_IF_ERROR(channel_.Write(frame));
    Moved(wanted);
  } while (offset < entry.size());
  return absl::OkStatus();
}

absl::Status Mover::Receive(int64_t index, const FileEntry& entry) {
  const std::string shown = absl::CHexEscape(entry.path());
  ASSIGN_OR_RETURN(const int dir_fd, walk_.OpenOrMake(Parent(entry.path())));
  const UniqueFd fd(
      OpenBelow(dir_fd, BaseName(entry.path()), O_WRONLY | O_CREAT | O_EXCL, 0600, entry.path()));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("create ", shown));
  Sha256 hash;
  int64_t offset = 0;
  while (offset < entry.size()) {
    ASSIGN_OR_RETURN(const TransferFrame frame, channel_.ReadOrError());
    const FileData& data = frame.file_data();
    const int64_t size = static_cast<int64_t>(data.data().size());
    if (!frame.has_file_data() || data.index() != index || data.offset() != offset || size == 0 ||
        size > entry.size() - offset) {
      return absl::InvalidArgumentError(
          absl::StrCat("receive ", shown, ": the peer sent something out of order"));
    }
    RETURN_IF_ERROR(WriteAll(fd.get(), data.data(), shown));
    hash.Update(data.data());
    offset += size;
    Moved(size);
  }
  if (hash.Finish() != entry.sha256()) {
    return absl::DataLossError(
        absl::StrCat("receive ", shown, ": content does not match its sha256"));
  }
  if (fchmod(fd.get(), entry.mode()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("set mode of ", shown));
  }
  return absl::OkStatus();
}

absl::Status ExpectDone(FrameChannel& channel) {
  ASSIGN_OR_RETURN(const TransferFrame frame, channel.ReadOrError());
  if (frame.has_done()) return absl::OkStatus();
  return absl::InvalidArgumentError("transfer: the peer went on after the end");
}

// Manifest, content and Done, as the push's sender; stops at the first error.
absl::Status SendTree(FrameChannel& channel, const std::string& root, const Manifest& manifest,
                      const TransferProgress& progress) {
  RETURN_IF_ERROR(WriteManifest(channel, manifest));
  RETURN_IF_ERROR(SendFiles(channel, root, manifest, progress));
  return channel.WriteDone(absl::OkStatus());
}

}  // namespace

absl::Status SendFilesAt(FrameChannel& channel, int root_fd, const Manifest& manifest,
                         const TransferProgress& progress) {
  Mover mover(channel, root_fd, progress);
  for (int i = 0; i < manifest.entries_size(); ++i) {
    if (manifest.entries(i).kind() != FileEntry::KIND_FILE) continue;
    RETURN_IF_ERROR(mover.Send(i, manifest.entries(i)));
  }
  return absl::OkStatus();
}

absl::Status SendFiles(FrameChannel& channel, const std::string& root, const Manifest& manifest,
                       const TransferProgress& progress) {
  const UniqueFd root_fd(file_ops::Open(root, O_RDONLY | O_DIRECTORY));
  if (!root_fd.valid()) return ErrnoStatus(errno, absl::StrCat("send ", root));
  return SendFilesAt(channel, root_fd.get(), manifest, progress);
}

absl::Status ReceiveFiles(FrameChannel& channel, const std::string& root, const Manifest& manifest,
                          const TransferProgress& progress) {
  const UniqueFd root_fd(file_ops::Open(root, O_RDONLY | O_DIRECTORY));
  if (!root_fd.valid()) return ErrnoStatus(errno, absl::StrCat("receive into ", root));
  RETURN_IF_ERROR(MakeTreeDirectories(root_fd.get(), manifest));
  Mover mover(channel, root_fd.get(), progress);
  for (int i = 0; i < manifest.entries_size(); ++i) {
    if (manifest.entries(i).kind() != FileEntry::KIND_FILE) continue;
    RETURN_IF_ERROR(mover.Receive(i, manifest.entries(i)));
  }
  RETURN_IF_ERROR(FinishTree(root_fd.get(), manifest));
  return SyncTree(root, manifest);
}

absl::Status PushTree(FrameChannel& channel, const std::string& root, const Manifest& manifest,
                      const std::string& digest, const TransferProgress& progress) {
  TransferFrame begin;
  begin.mutable_push_begin()->set_manifest_digest(digest);
  RETURN_IF_ERROR(channel.Write(begin));
  RETURN_IF_ERROR(channel.Flush());
  ASSIGN_OR_RETURN(const TransferFrame need, channel.ReadOrError());
  if (!need.has_push_need()) {
    return absl::InvalidArgumentError("push: the node answered with another frame");
  }
  if (need.push_need().have()) return absl::OkStatus();
  const absl::Status sent = SendTree(channel, root, manifest, progress);
  if (sent.ok()) return ExpectDone(channel);
  if (!absl::IsUnavailable(sent)) {
    // Our own trouble with a file: the node is told, and needs no answer.
    (void)channel.WriteDone(sent);
    return sent;
  }
  // The node stopped listening; what it said before tells why.
  const absl::Status said = ExpectDone(channel);
  return said.ok() || absl::IsUnavailable(said) ? sent : said;
}

absl::StatusOr<Manifest> PullTree(FrameChannel& channel, const std::string& job_id,
                                  const std::string& path, const std::string& into_dir,
                                  const TransferProgress& progress) {
  if (PathExists(into_dir)) {
    return absl::AlreadyExistsError(absl::StrCat("pull into ", into_dir, ": it is there already"));
  }
  const std::string parent = DirName(into_dir);
  (void)RemoveAbandonedStaging(parent);
  TransferFrame begin;
  begin.mutable_pull_begin()->set_job_id(job_id);
  begin.mutable_pull_begin()->set_path(path);
  RETURN_IF_ERROR(channel.Write(begin));
  RETURN_IF_ERROR(channel.Flush());
  ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(channel));
  ASSIGN_OR_RETURN(const StagingDir staging, StagingDir::Create(parent));
  const std::string tree = JoinPath(staging.path(), "tree");
  if (file_ops::MkDir(tree, 0777) != 0) {
    return ErrnoStatus(errno, absl::StrCat("make directory ", tree));
  }
  RETURN_IF_ERROR(ReceiveFiles(channel, tree, manifest, progress));
  RETURN_IF_ERROR(ExpectDone(channel));
  // rename would replace an empty directory; only a race with somebody else's gets that far.
  if (file_ops::Rename(tree, into_dir) != 0) {
    const int error_number = errno == ENOTEMPTY ? EEXIST : errno;
    return ErrnoStatus(error_number, absl::StrCat("publish ", into_dir));
  }
  RETURN_IF_ERROR(SyncDirectory(parent));
  return manifest;
}

}  // namespace gpuctl
