#include "common/transfer/pieces.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/delta/offers.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "common/files/sync_fs.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileData;
using gpuctl::v1::FileEntry;
using gpuctl::v1::TransferFrame;

constexpr std::array<absl::string_view, 34> kIncompressible = {
    ".safetensors", ".pt",  ".pth",  ".ckpt", ".gguf", ".npz",  ".gz",   ".tgz", ".zst",
    ".xz",          ".bz2", ".lz4",  ".zip",  ".7z",   ".rar",  ".whl",  ".jar", ".parquet",
    ".arrow",       ".png", ".jpg",  ".jpeg", ".gif",  ".webp", ".avif", ".mp3", ".mp4",
    ".mkv",         ".mov", ".webm", ".flac", ".ogg",  ".avi",  ".br"};

// The size from which files bypass the page cache. Smaller ones have room in it and may be read
// soon.
constexpr int64_t kWorthPassingCache = 64 << 20;

// No file has more bytes. A reference to a place beyond would overflow.
constexpr int64_t kMaxOlderOffset = int64_t{1} << 56;

// The size from which SendFile pays. Below it the system call costs more than the copies it saves.
constexpr size_t kWorthSendingFile = 32 << 10;

bool IsZero(absl::string_view data) {
  return data.empty() ||
         (data[0] == '\0' && memcmp(data.data(), data.data() + 1, data.size() - 1) == 0);
}

absl::Status PWriteAll(int fd, absl::string_view data, int64_t offset, const std::string& shown) {
  while (!data.empty()) {
    const ssize_t written = file_ops::PWrite(fd, data.data(), data.size(), offset);
    if (written < 0) return ErrnoStatus(errno, absl::StrCat("write ", shown));
    data.remove_prefix(static_cast<size_t>(written));
    offset += written;
  }
  return absl::OkStatus();
}

absl::Status Changed(absl::string_view path) {
  return absl::AbortedError(
      absl::StrCat("send ", absl::CHexEscape(path), ": the file changed while it was being read"));
}

absl::Status ReadAll(int fd, char* bytes, size_t size, int64_t offset, const std::string& path) {
  while (size > 0) {
    const ssize_t got = pread(fd, bytes, size, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, absl::StrCat("send ", absl::CHexEscape(path)));
    if (got == 0) return Changed(path);
    bytes += got;
    size -= static_cast<size_t>(got);
    offset += got;
  }
  return absl::OkStatus();
}

}  // namespace

bool MayCompress(absl::string_view path) {
  const std::string name = absl::AsciiStrToLower(BaseName(path));
  return std::none_of(kIncompressible.begin(), kIncompressible.end(),
                      [&](absl::string_view ending) { return absl::EndsWith(name, ending); });
}

absl::Status PieceReader::Open(const std::string& path) {
  if (fd_.valid() && path == path_) return absl::OkStatus();
  fd_.reset();
  ASSIGN_OR_RETURN(const int dir_fd, walk_.Open(ParentPath(path)));
  // Opened non-blocking, because it may be a FIFO by now.
  fd_.reset(OpenBelow(dir_fd, BaseName(path), O_RDONLY | O_NONBLOCK, 0, path));
  if (!fd_.valid()) {
    if (errno == ENOENT || errno == ELOOP) return Changed(path);
    return ErrnoStatus(errno, absl::StrCat("send ", absl::CHexEscape(path)));
  }
  struct stat info {};
  if (fstat(fd_.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    fd_.reset();
    return Changed(path);
  }
  path_ = path;
  has_holes_ = int64_t{info.st_blocks} * 512 < int64_t{info.st_size};
  return absl::OkStatus();
}

absl::Status PieceReader::Send(FrameChannel& channel, const Piece& piece, const std::string& path) {
  RETURN_IF_ERROR(Open(path));
  const auto index = static_cast<uint32_t>(piece.index);
  const int64_t end = piece.offset + piece.length;
  for (int64_t offset = piece.offset; offset < end;) {
    const auto size = static_cast<size_t>(std::min(kFileDataBytes, end - offset));
    if (size >= kWorthSendingFile && !has_holes_ && channel.SendsFiles()) {
      const absl::Status sent = channel.WriteFileContent(index, offset, fd_.get(), size);
      if (absl::IsAborted(sent)) return Changed(path);
      if (!sent.ok()) return Annotate(sent, absl::StrCat("send ", absl::CHexEscape(path)));
      offset += static_cast<int64_t>(size);
      continue;
    }
    ASSIGN_OR_RETURN(char* const bytes, channel.PrepareContent(index, offset, size));
    RETURN_IF_ERROR(ReadAll(fd_.get(), bytes, size, offset, path));
    if (IsZero({bytes, size})) {
      TransferFrame frame;
      frame.mutable_file_data()->set_index(index);
      frame.mutable_file_data()->set_offset(offset);
      frame.mutable_file_data()->set_zeros(static_cast<int64_t>(size));
      RETURN_IF_ERROR(channel.Write(frame));
    } else {
      RETURN_IF_ERROR(channel.CommitContent());
    }
    offset += static_cast<int64_t>(size);
  }
  return absl::OkStatus();
}

absl::Status PieceReader::SendBytes(FrameChannel& channel, uint32_t index, int64_t offset,
                                    absl::string_view bytes) {
  while (!bytes.empty()) {
    const absl::string_view now = bytes.substr(0, kFileDataBytes);
    if (IsZero(now)) {
      TransferFrame frame;
      frame.mutable_file_data()->set_index(index);
      frame.mutable_file_data()->set_offset(offset);
      frame.mutable_file_data()->set_zeros(static_cast<int64_t>(now.size()));
      RETURN_IF_ERROR(channel.Write(frame));
    } else {
      ASSIGN_OR_RETURN(char* const to, channel.PrepareContent(index, offset, now.size()));
      memcpy(to, now.data(), now.size());
      RETURN_IF_ERROR(channel.CommitContent());
    }
    offset += static_cast<int64_t>(now.size());
    bytes.remove_prefix(now.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> PieceReader::SendRest(FrameChannel& channel, const Piece& piece,
                                              const std::string& path,
                                              const std::vector<const gpuctl::v1::Offer*>& offers) {
  RETURN_IF_ERROR(Open(path));
  std::string content(static_cast<size_t>(piece.length), '\0');
  RETURN_IF_ERROR(ReadAll(fd_.get(), content.data(), content.size(), piece.offset, path));
  const auto index = static_cast<uint32_t>(piece.index);
  int64_t sent = 0;
  for (const Segment& segment : MatchOffers(content, offers)) {
    const int64_t offset = piece.offset + segment.offset;
    if (segment.from < 0) {
      RETURN_IF_ERROR(
          SendBytes(channel, index, offset,
                    absl::string_view(content).substr(static_cast<size_t>(segment.offset),
                                                      static_cast<size_t>(segment.length))));
      sent += segment.length;
      continue;
    }
    TransferFrame frame;
    frame.mutable_file_data()->set_index(index);
    frame.mutable_file_data()->set_offset(offset);
    frame.mutable_file_data()->set_copied(segment.length);
    frame.mutable_file_data()->set_copied_from(segment.from);
    RETURN_IF_ERROR(channel.Write(frame));
  }
  return sent;
}

absl::StatusOr<Anchor> PieceReader::AnchorAt(const std::string& path, int64_t offset) {
  RETURN_IF_ERROR(Open(path));
  std::string bytes(kAnchorRangeBytes, '\0');
  size_t held = 0;
  while (held < bytes.size()) {
    const ssize_t got = pread(fd_.get(), bytes.data() + held, bytes.size() - held,
                              offset + static_cast<int64_t>(held));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, absl::StrCat("send ", absl::CHexEscape(path)));
    if (got == 0) break;
    held += static_cast<size_t>(got);
  }
  return FindAnchor(absl::string_view(bytes).substr(0, held));
}

absl::Status PieceWriter::Begin(const FileData& data) {
  const int64_t index = data.index();
  if (index >= manifest_.size()) {
    return absl::InvalidArgumentError("receive: the peer sent a file beyond the manifest");
  }
  if (index != entry_index_) {
    fd_.reset();
    entry_ = manifest_[index];
    entry_index_ = index;
  }
  const std::string& path = entry_.path();
  if (entry_.kind() != FileEntry::KIND_FILE || data.offset() < 0 ||
      data.offset() >= entry_.size() || data.offset() % kPartBytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("receive ", absl::CHexEscape(path), ": the peer sent no piece of it"));
  }
  piece_ = {index, data.offset(), std::min(kPartBytes, entry_.size() - data.offset())};
  taken_ = 0;
  copied_ = 0;
  hash_.emplace();
  const auto error = [&] {
    return ErrnoStatus(errno, absl::StrCat("create ", absl::CHexEscape(path)));
  };
  if (!fd_.valid()) {
    ASSIGN_OR_RETURN(const int dir_fd, walk_.OpenOrMake(ParentPath(path)));
    const bool in_parts = entry_.size() > kPartBytes;
    // It may get its final mode at once. Opened non-blocking, because somebody may have put a FIFO
    // there.
    fd_.reset(OpenBelow(dir_fd, BaseName(path), O_RDWR | O_NONBLOCK | O_CREAT,
                        static_cast<mode_t>(in_parts ? 0600 : entry_.mode()), path));
    struct stat info {};
    if (!fd_.valid() || fstat(fd_.get(), &info) != 0) return error();
    if (!S_ISREG(info.st_mode)) {
      return absl::InvalidArgumentError(
          absl::StrCat("receive ", absl::CHexEscape(path), ": something else is in its place"));
    }
    mode_ = info.st_mode & 07777;
    fresh_ = info.st_size == 0 || !in_parts;
    // A file in parts gets its size at once, because parts come in any order and zeros are not
    // sent.
    const int64_t size = in_parts ? entry_.size() : 0;
    if (int64_t{info.st_size} != size && file_ops::Truncate(fd_.get(), size) != 0) return error();
  }
  out_.Begin(fd_.get(), piece_.offset, PassesCache(), absl::CHexEscape(path));
  begun_ = true;
  return absl::OkStatus();
}

bool PieceWriter::PassesCache() const {
  return cache_ == Cache::kPassByLargeFiles && entry_.size() >= kWorthPassingCache;
}

absl::Status PieceWriter::TakeZeros(int64_t offset, int64_t size, const std::string& shown) {
  static const std::string zeros(64 << 10, '\0');
  const bool in_parts = entry_.size() > kPartBytes;
  if (!in_parts && file_ops::Truncate(fd_.get(), offset + size) != 0) {
    return ErrnoStatus(errno, absl::StrCat("write ", shown));
  }
  std::string there;
  while (size > 0) {
    const auto chunk = absl::string_view(zeros).substr(
        0, static_cast<size_t>(std::min<int64_t>(size, static_cast<int64_t>(zeros.size()))));
    hash_->Update(chunk);
    // Places never written are a hole, which reads as zeros and takes no room. They stay a hole
    // also in a file that another stream or an earlier try has begun.
    if (!fresh_) {
      there.resize(chunk.size());
      const ssize_t got = pread(fd_.get(), there.data(), there.size(), offset);
      if (got != static_cast<ssize_t>(chunk.size()) || !IsZero(there)) {
        RETURN_IF_ERROR(PWriteAll(fd_.get(), chunk, offset, shown));
      }
    }
    offset += static_cast<int64_t>(chunk.size());
    size -= static_cast<int64_t>(chunk.size());
  }
  return absl::OkStatus();
}

absl::Status PieceWriter::TakeCopied(int64_t from, int64_t size, const std::string& shown) {
  const int fd = older_ ? older_(piece_.index) : -1;
  if (fd < 0 || from < 0 || from > kMaxOlderOffset) {
    return absl::InvalidArgumentError(
        absl::StrCat("receive ", shown, ": the peer refers to content that was not offered"));
  }
  copied_ += size;
  std::string bytes;
  while (size > 0) {
    bytes.resize(static_cast<size_t>(std::min(size, kFileDataBytes)));
    const ssize_t got = pread(fd, bytes.data(), bytes.size(), from);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, absl::StrCat("read the older ", shown));
    // The file became shorter, or the peer refers to more than there was. The hash will tell.
    if (got == 0) bytes.assign(bytes.size(), '\0');
    const auto now =
        absl::string_view(bytes).substr(0, got == 0 ? bytes.size() : static_cast<size_t>(got));
    RETURN_IF_ERROR(out_.Append(now));
    hash_->Update(now);
    from += static_cast<int64_t>(now.size());
    size -= static_cast<int64_t>(now.size());
  }
  return absl::OkStatus();
}

// OK when the content of the complete piece is that of the manifest.
absl::Status PieceWriter::CheckPiece(const std::string& shown) {
  if (hash_->Finish() == PartHash(entry_, piece_.offset / kPartBytes)) return absl::OkStatus();
  if (copied_ > 0) {
    return absl::UnavailableError(
        absl::StrCat("receive ", shown, ": its older version has changed meanwhile"));
  }
  return absl::DataLossError(
      absl::StrCat("receive ", shown, ": content does not match its sha256"));
}

absl::StatusOr<bool> PieceWriter::Take(const FileData& data, absl::string_view content) {
  if (!begun_) RETURN_IF_ERROR(Begin(data));
  const std::string shown = absl::CHexEscape(entry_.path());
  const int64_t size = data.zeros() > 0    ? data.zeros()
                       : data.copied() > 0 ? data.copied()
                                           : static_cast<int64_t>(content.size());
  const int kinds = (data.zeros() > 0) + (data.copied() > 0) + !content.empty();
  if (data.index() != piece_.index || data.offset() != piece_.offset + taken_ || kinds != 1 ||
      data.zeros() < 0 || data.copied() < 0 || size > piece_.length - taken_) {
    return absl::InvalidArgumentError(
        absl::StrCat("receive ", shown, ": the peer sent something out of order"));
  }
  if (data.copied() > 0) {
    RETURN_IF_ERROR(TakeCopied(data.copied_from(), size, shown));
  } else if (data.zeros() == 0) {
    RETURN_IF_ERROR(out_.Append(content));
    hash_->Update(content);
  } else {
    RETURN_IF_ERROR(out_.Flush());
    RETURN_IF_ERROR(TakeZeros(data.offset(), size, shown));
    out_.Begin(fd_.get(), data.offset() + size, PassesCache(), shown);
  }
  taken_ += size;
  if (taken_ < piece_.length) return false;
  RETURN_IF_ERROR(out_.Flush());
  begun_ = false;
  RETURN_IF_ERROR(CheckPiece(shown));
  // The disk works while more bytes come.
  if (entry_.size() > kPartBytes && !PassesCache()) {
    BeginWriteBack(fd_.get(), piece_.offset, piece_.length);
  }
  // The modes of files in parts are set at the end, because a read-only mode would prevent writing.
  if (entry_.size() <= kPartBytes && mode_ != entry_.mode() &&
      SetMode(fd_.get(), entry_.mode()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("set mode of ", shown));
  }
  return true;
}

absl::Status PieceWriter::Finish() const {
  if (!begun_) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("receive ", absl::CHexEscape(entry_.path()), ": the peer stopped within it"));
}

}  // namespace gpuctl
