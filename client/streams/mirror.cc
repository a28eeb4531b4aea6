#include "client/streams/mirror.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/job/job_layout.h"

namespace gpuctl {

using gpuctl::v1::Stream;

namespace {

constexpr Stream kStreams[] = {gpuctl::v1::STREAM_LIFECYCLE, gpuctl::v1::STREAM_METRICS,
                               gpuctl::v1::STREAM_TELEMETRY, gpuctl::v1::STREAM_OUTPUT};

absl::string_view NameOf(Stream stream) {
  switch (stream) {
    case gpuctl::v1::STREAM_LIFECYCLE:
      return "lifecycle";
    case gpuctl::v1::STREAM_METRICS:
      return "metrics";
    case gpuctl::v1::STREAM_TELEMETRY:
      return "telemetry";
    default:
      return "output";
  }
}

absl::Status AddProofs(StreamReader reader, gpuctl::v1::Cursor& cursor) {
  ASSIGN_OR_RETURN(const std::vector<StreamProof> proofs, MakeProofs(reader));
  for (const StreamProof& proof : proofs) {
    gpuctl::v1::Proof& sent = *cursor.add_proofs();
    sent.set_offset(proof.offset);
    sent.set_sha256(proof.sha256);
  }
  return absl::OkStatus();
}

// A file that is larger was stored by an older gpuctl; nobody can say what it means.
absl::StatusOr<std::string> ReadLifecycleFile(const std::string& path) {
  absl::StatusOr<std::string> contents = ReadFileToString(path, MirrorLimits().lifecycle);
  if (absl::IsNotFound(contents.status())) return std::string();
  return contents;
}

int64_t SizeOf(const std::string& file) {
  struct stat info {};
  return lstat(file.c_str(), &info) == 0 && S_ISREG(info.st_mode) ? int64_t{info.st_size} : 0;
}

// What a small file takes from the disk. It is counted for each file that a node can cause at
// will: what was set aside, and the segment before a hole.
constexpr int64_t kFileCost = 4096;

// The disk space of a stream: the file, or those in its directory, and what was set aside from it.
struct DiskUse {
  int64_t bytes = 0;  // with kFileCost
  int asides = 0;
};

DiskUse DiskUseOf(const std::string& path, const StreamShape& shape) {
  DiskUse use;
  use.bytes = SizeOf(path);
  if (const auto segments = ListDirectory(path); segments.ok()) {
    for (const std::string& name : *segments) {
      const int64_t size = SizeOf(JoinPath(path, name));
      use.bytes += size;
      if (size < shape.segment_bytes && name != segments->back()) use.bytes += kFileCost;
    }
  }
  const std::string aside = absl::StrCat(BaseName(path), ".diverged-");
  if (const auto names = ListDirectory(DirName(path)); names.ok()) {
    for (const std::string& name : *names) {
      if (!absl::StartsWith(name, aside)) continue;
      use.bytes += SizeOf(JoinPath(DirName(path), name)) + kFileCost;
      ++use.asides;
    }
  }
  return use;
}

}  // namespace

int64_t MirrorLimits::Of(Stream stream) const {
  switch (stream) {
    case gpuctl::v1::STREAM_LIFECYCLE:
      return lifecycle;
    case gpuctl::v1::STREAM_METRICS:
      return metrics;
    case gpuctl::v1::STREAM_TELEMETRY:
      return telemetry;
    default:
      return output;
  }
}

MirrorPaths::MirrorPaths(std::string mirror_dir)
    : dir(std::move(mirror_dir)),
      lock(JoinPath(dir, "lock")),
      lifecycle(JoinPath(dir, "lifecycle.jsonl")),
      beside(JoinPath(dir, "lifecycle.beside.jsonl")),
      output(JoinPath(dir, "output")),
      metrics(JoinPath(dir, "metrics.jsonl")),
      telemetry(JoinPath(dir, "telemetry")) {}

Mirror::Mirror(std::string dir, UniqueFd lock) : paths_(std::move(dir)), lock_(std::move(lock)) {}

absl::StatusOr<std::unique_ptr<Mirror>> Mirror::Open(const std::string& dir,
                                                     int64_t output_segment_bytes,
                                                     const MirrorLimits& limits) {
  RETURN_IF_ERROR(MakeDirectories(dir));
  ASSIGN_OR_RETURN(UniqueFd lock, TryLock(MirrorPaths(dir).lock));
  std::unique_ptr<Mirror> mirror(new Mirror(dir, std::move(lock)));
  mirror->limits_ = limits;
  if (output_segment_bytes > 0) mirror->output_segment_bytes_ = output_segment_bytes;
  for (const Stream stream : kStreams) {
    ASSIGN_OR_RETURN(StreamWriter writer,
                     StreamWriter::Open(mirror->Path(stream), mirror->Shape(stream)));
    mirror->streams_.emplace(stream, std::move(writer));
    mirror->stored_[stream] = DiskUseOf(mirror->Path(stream), mirror->Shape(stream)).bytes;
  }
  return mirror;
}

std::string Mirror::Path(Stream stream) const {
  switch (stream) {
    case gpuctl::v1::STREAM_LIFECYCLE:
      return paths_.lifecycle;
    case gpuctl::v1::STREAM_METRICS:
      return paths_.metrics;
    case gpuctl::v1::STREAM_TELEMETRY:
      return paths_.telemetry;
    default:
      return paths_.output;
  }
}

StreamShape Mirror::Shape(Stream stream) const {
  switch (stream) {
    case gpuctl::v1::STREAM_OUTPUT:
      return StreamShape{output_segment_bytes_};
    case gpuctl::v1::STREAM_TELEMETRY:
      return TelemetryShape();
    default:
      return PlainShape();
  }
}

StreamWriter* Mirror::Find(Stream stream) {
  const auto it = streams_.find(stream);
  return it == streams_.end() ? nullptr : &it->second;
}

absl::StatusOr<std::vector<gpuctl::v1::Cursor>> Mirror::Cursors() {
  std::vector<gpuctl::v1::Cursor> cursors;
  for (const Stream stream : kStreams) {
    gpuctl::v1::Cursor& cursor = cursors.emplace_back();
    cursor.set_stream(stream);
    cursor.set_offset(Find(stream)->size());
    RETURN_IF_ERROR(AddProofs(StreamReader(Path(stream), Shape(stream)), cursor));
  }
  return cursors;
}

absl::StatusOr<std::optional<std::string>> Mirror::Apply(const gpuctl::v1::StreamHeader& header) {
  StreamWriter* writer = Find(header.stream());
  if (writer == nullptr) return std::nullopt;  // a stream of a later version
  const int64_t stored = writer->size();
  if (header.resume_offset() < 0 || header.resume_offset() > kMaxStreamOffset) {
    return absl::DataLossError(absl::StrCat("store ", NameOf(header.stream()), " from ",
                                            header.resume_offset(), ": no stream is that long"));
  }
  if (header.resume_offset() < stored) {
    if (!header.diverged()) return std::nullopt;  // repeated bytes are skipped later
    if (header.stream() == gpuctl::v1::STREAM_LIFECYCLE) {
      if (file_ops::Unlink(paths_.beside) != 0 && errno != ENOENT) {
        return ErrnoStatus(errno, absl::StrCat("remove ", paths_.beside));
      }
    }
    ASSIGN_OR_RETURN(const std::string where, SetAside(header.stream(), header.resume_offset()));
    return absl::StrCat("the node's ", NameOf(header.stream()),
                        " is not the one stored here from byte ", header.resume_offset(),
                        " on (it was cut, or the machine rebuilt); ",
                        stored - header.resume_offset(), " stored bytes were ", where);
  }
  if (header.resume_offset() > stored) {
    RETURN_IF_ERROR(writer->SkipTo(header.resume_offset()));
    stored_[header.stream()] = DiskUseOf(Path(header.stream()), Shape(header.stream())).bytes;
    if (header.stream() == gpuctl::v1::STREAM_TELEMETRY) return std::nullopt;  // only the present
    return absl::StrCat(
        header.resume_offset() - stored, " bytes of ", NameOf(header.stream()), " (", stored,
        " to ", header.resume_offset(),
        ") are past the output limit and were removed on the node before they came home");
  }
  return std::nullopt;
}

// Sets the stored bytes from `offset` on aside; returns "set aside in FILE". A node that diverges
// again and again fills no disk: past the stream's limit only the first file of them stays.
absl::StatusOr<std::string> Mirror::SetAside(Stream stream, int64_t offset) {
  const absl::StatusOr<std::string> moved = Find(stream)->SetAside(offset, RandomHex(4));
  if (absl::IsInvalidArgument(moved.status())) {
    return absl::DataLossError(absl::StrCat("store ", NameOf(stream), " from ", offset,
                                            ": the bytes before it are not here"));
  }
  RETURN_IF_ERROR(moved.status());
  const std::string& aside = *moved;
  // Telemetry's limit is for its newest bytes alone.
  const StreamShape shape = Shape(stream);
  const int64_t most = stream == gpuctl::v1::STREAM_TELEMETRY
                           ? 2 * (limits_.Of(stream) + shape.segment_bytes)
                           : limits_.Of(stream);
  DiskUse use = DiskUseOf(Path(stream), shape);
  const bool keep = use.bytes <= most || use.asides <= 1;
  if (!keep) {
    if (file_ops::Unlink(aside) != 0) return ErrnoStatus(errno, absl::StrCat("remove ", aside));
    use = DiskUseOf(Path(stream), shape);
  }
  stored_[stream] = use.bytes;
  if (use.bytes < limits_.Of(stream)) full_.erase(stream);
  return keep ? absl::StrCat("set aside in ", aside)
              : "removed: as much as is kept was set aside before";
}

absl::Status Mirror::Apply(const gpuctl::v1::Chunk& chunk) {
  StreamWriter* writer = Find(chunk.stream());
  if (writer == nullptr || chunk.display_only()) return absl::OkStatus();
  const Stream stream = chunk.stream();
  if (only_lifecycle_ && stream != gpuctl::v1::STREAM_LIFECYCLE) return absl::OkStatus();
  const int64_t limit = limits_.Of(stream);
  if (stream == gpuctl::v1::STREAM_TELEMETRY) {
    RETURN_IF_ERROR(
        writer->CutTo(limit, [](int64_t /*first*/) { return absl::OkStatus(); }).status());
  } else if (full_.count(stream) > 0) {
    return absl::OkStatus();
  }
  // Bytes that are here already take no room.
  const int64_t known = std::clamp<int64_t>(writer->size() - std::max<int64_t>(chunk.offset(), 0),
                                            0, static_cast<int64_t>(chunk.data().size()));
  absl::string_view data = chunk.data();
  const int64_t room = std::max<int64_t>(0, limit - stored_[stream]);
  if (stream != gpuctl::v1::STREAM_TELEMETRY && static_cast<int64_t>(data.size()) - known > room) {
    data = data.substr(0, static_cast<size_t>(known + room));
    full_.insert(stream);
    notice_ = absl::StrCat("only the first ", limit >> 20, " MiB of ", NameOf(stream),
                           " are kept here; what the node has of the rest is in ../",
                           BaseName(Path(stream)), " of the work directory, for gpuctl exec");
  }
  const int64_t before = writer->size();
  absl::Status status = writer->WriteAt(chunk.offset(), data);
  stored_[stream] += writer->size() - before;
  if (absl::IsFailedPrecondition(status)) {
    return absl::DataLossError(absl::StrCat("store ", NameOf(chunk.stream()), " at ",
                                            chunk.offset(), ": only ", writer->size(),
                                            " bytes came before"));
  }
  return status;
}

std::optional<std::string> Mirror::TakeNotice() { return std::exchange(notice_, std::nullopt); }

int64_t Mirror::size(Stream stream) const {
  const auto it = streams_.find(stream);
  return it == streams_.end() ? 0 : it->second.size();
}

absl::Status Mirror::Sync() {
  absl::Status result;
  for (auto& [stream, writer] : streams_) result.Update(writer.Sync());
  return result;
}

absl::StatusOr<Lifecycle> ReadMirrorLifecycle(const std::string& mirror_dir) {
  const MirrorPaths paths(mirror_dir);
  ASSIGN_OR_RETURN(const std::string mirrored, ReadLifecycleFile(paths.lifecycle));
  ASSIGN_OR_RETURN(const std::string beside, ReadLifecycleFile(paths.beside));
  return ParseLifecycle(beside.size() > mirrored.size() ? beside : mirrored);
}

absl::Status StoreLifecycleBeside(const std::string& mirror_dir, absl::string_view lifecycle) {
  const MirrorPaths paths(mirror_dir);
  for (const std::string& path : {paths.lifecycle, paths.beside}) {
    ASSIGN_OR_RETURN(const std::string stored, ReadLifecycleFile(path));
    if (stored.size() >= lifecycle.size()) return absl::OkStatus();
  }
  return WriteFileAtomic(paths.beside, lifecycle);
}

namespace {

StreamShape SegmentedShape(int64_t segment_bytes) {
  return StreamShape{segment_bytes > 0 ? segment_bytes : kDefaultSegmentBytes};
}

}  // namespace

absl::StatusOr<std::vector<gpuctl::v1::Cursor>> CursorsBeside(const std::string& mirror_dir,
                                                              int64_t output_segment_bytes) {
  const MirrorPaths paths(mirror_dir);
  std::vector<gpuctl::v1::Cursor> cursors(3);
  cursors[0].set_stream(gpuctl::v1::STREAM_LIFECYCLE);
  const auto fill = [](gpuctl::v1::Cursor& cursor, Stream stream, const std::string& path,
                       StreamShape shape) -> absl::Status {
    cursor.set_stream(stream);
    RETURN_IF_ERROR(AddProofs(StreamReader(path, shape), cursor));
    if (cursor.proofs_size() > 0) cursor.set_offset(cursor.proofs(0).offset());
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(fill(cursors[1], gpuctl::v1::STREAM_METRICS, paths.metrics, PlainShape()));
  RETURN_IF_ERROR(fill(cursors[2], gpuctl::v1::STREAM_OUTPUT, paths.output,
                       SegmentedShape(output_segment_bytes)));
  return cursors;
}

absl::StatusOr<bool> MirrorIsComplete(const std::string& mirror_dir, int64_t output_segment_bytes,
                                      const MirrorLimits& limits) {
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadMirrorLifecycle(mirror_dir));
  if (!IsOver(lifecycle)) return false;
  const LifecycleEvent& last = *LastStateEvent(lifecycle);
  const MirrorPaths paths(mirror_dir);
  const StreamShape shape = SegmentedShape(output_segment_bytes);
  ASSIGN_OR_RETURN(const Extent output, StreamReader(paths.output, shape).GetExtent());
  ASSIGN_OR_RETURN(const Extent metrics, StreamReader(paths.metrics, PlainShape()).GetExtent());
  return (output.size >= last.output_size ||
          DiskUseOf(paths.output, shape).bytes >= limits.output) &&
         (metrics.size >= last.metrics_size ||
          DiskUseOf(paths.metrics, PlainShape()).bytes >= limits.metrics);
}

absl::StatusOr<MirrorSizes> ReadMirrorSizes(const std::string& mirror_dir,
                                            int64_t output_segment_bytes) {
  const MirrorPaths paths(mirror_dir);
  MirrorSizes sizes;
  const auto read = [](const std::string& path, StreamShape shape, int64_t& size) -> absl::Status {
    ASSIGN_OR_RETURN(const Extent extent, StreamReader(path, shape).GetExtent());
    size = extent.size;
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(read(paths.lifecycle, PlainShape(), sizes.lifecycle));
  RETURN_IF_ERROR(read(paths.metrics, PlainShape(), sizes.metrics));
  RETURN_IF_ERROR(read(paths.output, SegmentedShape(output_segment_bytes), sizes.output));
  RETURN_IF_ERROR(read(paths.telemetry, TelemetryShape(), sizes.telemetry));
  return sizes;
}

absl::StatusOr<int64_t> MirroredBytes(const std::string& mirror_dir, int64_t output_segment_bytes) {
  ASSIGN_OR_RETURN(const MirrorSizes sizes, ReadMirrorSizes(mirror_dir, output_segment_bytes));
  return sizes.lifecycle + sizes.output + sizes.metrics + sizes.telemetry;
}

}  // namespace gpuctl
