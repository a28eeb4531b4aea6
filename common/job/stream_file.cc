#include "common/job/stream_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr size_t kSegmentNameDigits = 20;

std::string SegmentFileName(const std::string& path, const StreamShape& shape, int64_t start) {
  if (shape.segment_bytes == 0) return path;
  return JoinPath(path, absl::StrFormat("%020d", start));
}

// Returns the file's size, or -1 when there is no such file.
absl::StatusOr<int64_t> FileSize(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return -1;
    return ErrnoStatus(errno, absl::StrCat("look at ", path));
  }
  return static_cast<int64_t>(info.st_size);
}

// A segment on disk: the stream's bytes [start, end).
struct Segment {
  int64_t start;
  int64_t end;
};

// Returns the existing segments in order. A segment that is removed meanwhile counts as absent. One
// that somebody else made too long counts up to the segment size.
absl::StatusOr<std::vector<Segment>> StatSegments(const std::string& path,
                                                  const StreamShape& shape) {
  std::vector<int64_t> starts = {0};
  if (shape.segment_bytes != 0) {
    ASSIGN_OR_RETURN(starts, ListSegments(path));
  }
  std::vector<Segment> segments;
  for (const int64_t start : starts) {
    if (shape.segment_bytes != 0 && start % shape.segment_bytes != 0) continue;
    if (start > kMaxStreamOffset) continue;
    ASSIGN_OR_RETURN(int64_t size, FileSize(SegmentFileName(path, shape, start)));
    if (size < 0) continue;
    if (shape.segment_bytes != 0) size = std::min(size, shape.segment_bytes);
    segments.push_back({start, start + size});
  }
  return segments;
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> ListSegments(const std::string& path) {
  absl::StatusOr<std::vector<std::string>> names = ListDirectory(path);
  if (!names.ok()) {
    if (absl::IsNotFound(names.status())) return std::vector<int64_t>();
    return names.status();
  }
  std::vector<int64_t> starts;
  for (const std::string& name : *names) {
    int64_t start = 0;
    if (name.size() != kSegmentNameDigits ||
        !std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; }) ||
        !absl::SimpleAtoi(name, &start)) {
      continue;
    }
    starts.push_back(start);  // fixed width: names sort as numbers do
  }
  return starts;
}

StreamReader::StreamReader(std::string path, StreamShape shape)
    : path_(std::move(path)), shape_(shape) {}

absl::StatusOr<Extent> StreamReader::GetExtent() {
  ASSIGN_OR_RETURN(const std::vector<Segment> segments, StatSegments(path_, shape_));
  if (segments.empty()) return Extent{};
  return Extent{segments.front().start, segments.back().end};
}

absl::StatusOr<int64_t> StreamReader::ReadSegment(int64_t offset, char* buffer, int64_t size) {
  const int64_t segment = shape_.segment_bytes;
  const int64_t start = segment == 0 ? 0 : offset / segment * segment;
  if (open_segment_start_ != start || !open_segment_.valid()) {
    const std::string file = SegmentFileName(path_, shape_, start);
    open_segment_.reset(file_ops::Open(file, O_RDONLY));
    open_segment_start_ = open_segment_.valid() ? start : -1;
    if (!open_segment_.valid()) {
      if (errno == ENOENT || errno == ENOTDIR) return 0;
      return ErrnoStatus(errno, absl::StrCat("read ", file));
    }
  }
  if (segment != 0) size = std::min(size, start + segment - offset);
  ssize_t got = 0;
  do {
    got = pread(open_segment_.get(), buffer, static_cast<size_t>(size), offset - start);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return ErrnoStatus(errno, absl::StrCat("read ", path_, " at ", offset));
  return static_cast<int64_t>(got);
}

absl::StatusOr<int64_t> StreamReader::Read(int64_t offset, char* buffer, int64_t size) {
  if (offset < 0) return absl::InvalidArgumentError(absl::StrCat("read ", path_, " at ", offset));
  if (size <= 0) return 0;
  ASSIGN_OR_RETURN(int64_t got, ReadSegment(offset, buffer, size));
  if (got > 0) return got;
  // Nothing is there: this is the end or a hole. The writer may append between two looks, so it is
  // a hole only if the bytes are still missing after the extent shows later ones.
  ASSIGN_OR_RETURN(const Extent extent, GetExtent());
  if (offset >= extent.size) return 0;
  open_segment_.reset();  // it may have been set aside, with another in its place
  ASSIGN_OR_RETURN(got, ReadSegment(offset, buffer, size));
  if (got > 0) return got;
  return absl::OutOfRangeError(absl::StrCat("read ", path_, " at ", offset, ": not stored (",
                                            extent.first_offset, " to ", extent.size, " are)"));
}

absl::StatusOr<int64_t> StreamReader::NextStored(int64_t offset) {
  ASSIGN_OR_RETURN(const std::vector<Segment> segments, StatSegments(path_, shape_));
  for (const Segment& segment : segments) {
    if (segment.end > offset) return std::max(offset, segment.start);
  }
  return segments.empty() ? 0 : segments.back().end;
}

std::string StreamWriter::SegmentPath(int64_t start) const {
  return SegmentFileName(path_, shape_, start);
}

absl::StatusOr<StreamWriter> StreamWriter::Open(std::string path, StreamShape shape) {
  StreamWriter writer(std::move(path), shape);
  if (shape.segment_bytes != 0 && file_ops::MkDir(writer.path_) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("make directory ", writer.path_));
  }
  ASSIGN_OR_RETURN(const std::vector<Segment> segments, StatSegments(writer.path_, shape));
  if (!segments.empty()) {
    writer.first_offset_ = segments.front().start;
    writer.size_ = segments.back().end;
  }
  // The tail is opened now, not at the first byte, so that the owner learns at once that it cannot
  // write here.
  RETURN_IF_ERROR(writer.OpenTail());
  return writer;
}

absl::Status StreamWriter::OpenTail() {
  const int64_t segment = shape_.segment_bytes;
  const int64_t start = segment == 0 ? 0 : size_ / segment * segment;
  if (tail_.valid() && tail_start_ == start) return absl::OkStatus();
  const std::string file = SegmentPath(start);
  UniqueFd fd(file_ops::Open(file, O_RDWR | O_CREAT));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", file));
  tail_ = std::move(fd);
  tail_start_ = start;
  directory_dirty_ = true;
  return absl::OkStatus();
}

absl::Status StreamWriter::TerminateLine() {
  if (size_ <= first_offset_) return absl::OkStatus();
  StreamReader reader(path_, shape_);
  char last = 0;
  ASSIGN_OR_RETURN(const int64_t got, reader.Read(size_ - 1, &last, 1));
  if (got == 1 && last == '\n') return absl::OkStatus();
  return Append("\n");
}

absl::Status StreamWriter::WriteAt(int64_t offset, absl::string_view data) {
  if (offset < 0 || offset > size_ ||
      size_ > kMaxStreamOffset - static_cast<int64_t>(data.size())) {
    return absl::FailedPreconditionError(
        absl::StrCat("write ", path_, " at ", offset, ": the stream ends at ", size_));
  }
  const int64_t stored = size_ - offset;
  if (stored >= static_cast<int64_t>(data.size())) return absl::OkStatus();
  data.remove_prefix(static_cast<size_t>(stored));
  while (!data.empty()) {
    ASSIGN_OR_RETURN(const Tail tail, TailForSplice());
    const size_t chunk =
        static_cast<size_t>(std::min(tail.room, static_cast<int64_t>(data.size())));
    const ssize_t written = file_ops::PWrite(tail.fd, data.data(), chunk, tail.position);
    if (written < 0) return ErrnoStatus(errno, absl::StrCat("write ", path_, " at ", size_));
    if (written == 0) return ErrnoStatus(EIO, absl::StrCat("write ", path_, " at ", size_));
    Spliced(written);
    data.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status StreamWriter::Rewrite(int64_t offset, absl::string_view data) {
  if (shape_.segment_bytes != 0 || offset < 0 ||
      offset + static_cast<int64_t>(data.size()) > size_) {
    return absl::FailedPreconditionError(absl::StrCat("rewrite ", path_, " at ", offset));
  }
  while (!data.empty()) {
    const ssize_t written = file_ops::PWrite(tail_.get(), data.data(), data.size(), offset);
    if (written <= 0) {
      return ErrnoStatus(written < 0 ? errno : EIO, absl::StrCat("rewrite ", path_));
    }
    offset += written;
    data.remove_prefix(static_cast<size_t>(written));
  }
  dirty_ = true;
  return absl::OkStatus();
}

absl::Status StreamWriter::SkipTo(int64_t offset) {
  if (offset == size_) return absl::OkStatus();
  if (shape_.segment_bytes == 0 || offset < size_ || offset > kMaxStreamOffset ||
      offset % shape_.segment_bytes != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("skip ", path_, " from ", size_, " to ", offset));
  }
  const int64_t old_size = size_;
  // The empty segment keeps the skip on disk: the next Open finds the end by it.
  size_ = offset;
  if (absl::Status status = OpenTail(); !status.ok()) {
    size_ = old_size;
    return status;
  }
  if (old_size == first_offset_) {
    // Nothing was stored. An empty first segment would look as if something were.
    if (file_ops::Unlink(SegmentPath(first_offset_)) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, absl::StrCat("remove ", SegmentPath(first_offset_)));
    }
    first_offset_ = offset;
  } else if (old_size % shape_.segment_bytes == 0) {
    // So does one from which nothing was written: skips one after another leave one file.
    if (file_ops::Unlink(SegmentPath(old_size)) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, absl::StrCat("remove ", SegmentPath(old_size)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<StreamWriter::Tail> StreamWriter::TailForSplice() {
  RETURN_IF_ERROR(OpenTail());
  const int64_t position = size_ - tail_start_;
  const int64_t room =
      shape_.segment_bytes == 0 ? INT64_MAX - size_ : shape_.segment_bytes - position;
  return Tail{tail_.get(), position, room};
}

void StreamWriter::Spliced(int64_t bytes) {
  size_ += bytes;
  dirty_ = true;
  // Sync will sync the full segment. Here the writer may be draining a pipe and must not wait.
  if (shape_.segment_bytes != 0 && size_ - tail_start_ >= shape_.segment_bytes) {
    unsynced_segments_.push_back(tail_start_);
  }
}

int64_t StreamWriter::FirstOffsetToKeep(int64_t keep_bytes) const {
  const int64_t segment = shape_.segment_bytes;
  if (segment == 0) return first_offset_;
  const int64_t surplus = size_ - std::max<int64_t>(keep_bytes, 0) - segment;
  if (surplus <= first_offset_) return first_offset_;
  const int64_t first = (surplus + segment - 1) / segment * segment;
  return std::min(first, tail_start_);
}

absl::Status StreamWriter::RemoveBefore(int64_t first_offset) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> starts, ListSegments(path_));
  for (const int64_t start : starts) {
    if (start >= first_offset) break;
    if (file_ops::Unlink(SegmentPath(start)) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, absl::StrCat("remove ", SegmentPath(start)));
    }
    std::erase(unsynced_segments_, start);
    first_offset_ = std::min(start + shape_.segment_bytes, first_offset);
  }
  first_offset_ = first_offset;
  return absl::OkStatus();
}

absl::StatusOr<std::string> StreamWriter::SetAside(int64_t offset, absl::string_view suffix) {
  const int64_t segment = shape_.segment_bytes;
  ASSIGN_OR_RETURN(std::vector<Segment> segments, StatSegments(path_, shape_));
  // In the middle of a hole it would make zeros of the bytes before it.
  const bool follows = std::any_of(segments.begin(), segments.end(), [offset](const Segment& each) {
    return offset >= each.start && offset <= each.end;
  });
  if (offset < 0 || offset > size_ || (!follows && (segment == 0 || offset % segment != 0))) {
    return absl::InvalidArgumentError(absl::StrCat("set aside ", path_, " from ", offset,
                                                   ": stored are ", first_offset_, " to ", size_));
  }
  ASSIGN_OR_RETURN(std::string aside, CopyAside(offset, suffix));
  // The copy is safe, so remove the bytes, from the end backwards. If this is interrupted, a
  // shorter stream is left, which can be set aside again.
  tail_.reset();
  tail_start_ = -1;
  for (auto it = segments.rbegin(); it != segments.rend() && it->end >= offset; ++it) {
    const std::string file = SegmentPath(it->start);
    if (segment != 0 && it->start >= offset) {
      if (file_ops::Unlink(file) != 0) return ErrnoStatus(errno, absl::StrCat("remove ", file));
    } else {
      UniqueFd fd(file_ops::Open(file, O_RDWR));
      if (!fd.valid() || file_ops::Truncate(fd.get(), offset - it->start) != 0) {
        return ErrnoStatus(errno, absl::StrCat("truncate ", file));
      }
    }
    std::erase(unsynced_segments_, it->start);
    size_ = std::max(offset, it->start);
  }
  size_ = offset;
  first_offset_ = std::min(first_offset_, offset);
  dirty_ = directory_dirty_ = true;
  RETURN_IF_ERROR(OpenTail());
  RETURN_IF_ERROR(Sync());
  return aside;
}

absl::StatusOr<std::string> StreamWriter::CopyAside(int64_t offset, absl::string_view suffix) {
  std::string name;
  UniqueFd out;
  for (int attempt = 1; !out.valid(); ++attempt) {
    name =
        absl::StrCat(path_, ".diverged-", suffix, attempt == 1 ? "" : absl::StrCat("-", attempt));
    out.reset(file_ops::Open(name, O_WRONLY | O_CREAT | O_EXCL));
    if (!out.valid() && errno != EEXIST) return ErrnoStatus(errno, absl::StrCat("create ", name));
  }
  StreamReader reader(path_, shape_);
  std::vector<char> buffer(1 << 18);
  for (int64_t at = offset; at < size_;) {
    absl::StatusOr<int64_t> got =
        reader.Read(at, buffer.data(), static_cast<int64_t>(buffer.size()));
    if (absl::IsOutOfRange(got.status())) {
      ASSIGN_OR_RETURN(at, reader.NextStored(at));
      continue;
    }
    RETURN_IF_ERROR(got.status());
    if (*got == 0) break;
    RETURN_IF_ERROR(WriteAll(out.get(), {buffer.data(), static_cast<size_t>(*got)}, name));
    at += *got;
  }
  if (file_ops::Sync(out.get()) != 0) return ErrnoStatus(errno, absl::StrCat("sync ", name));
  RETURN_IF_ERROR(SyncDirectory(DirName(path_)));
  return name;
}

absl::Status StreamWriter::Sync() {
  while (!unsynced_segments_.empty()) {
    const int64_t start = unsynced_segments_.back();
    if (start != tail_start_) {
      const std::string file = SegmentPath(start);
      UniqueFd fd(file_ops::Open(file, O_RDWR));
      if (!fd.valid() || file_ops::DataSync(fd.get()) != 0) {
        return ErrnoStatus(errno, absl::StrCat("sync ", file));
      }
    }
    unsynced_segments_.pop_back();
  }
  if (dirty_ && tail_.valid() && file_ops::DataSync(tail_.get()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("sync ", path_));
  }
  dirty_ = false;
  if (directory_dirty_) {
    RETURN_IF_ERROR(SyncDirectory(shape_.segment_bytes == 0 ? DirName(path_) : path_));
    directory_dirty_ = false;
  }
  return absl::OkStatus();
}

}  // namespace gpuctl
