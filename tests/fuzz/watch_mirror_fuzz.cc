// Fuzzes what a hostile node answers to Watch: the mirror that is written from it, and its readers.
//
// Input: a first byte, then WatchReply messages with their lengths. An empty record ends a Watch;
// the next one goes on with a new link, or with the mirror opened anew. Bit 0 of the first byte: a
// Follower stores the replies; else a Mirror with small limits does, and a model checks each byte.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/runs/run_status.h"
#include "client/streams/ask_job.h"
#include "client/streams/follower.h"
#include "client/streams/mirror.h"
#include "client/streams/mirror_reader.h"
#include "common/base/fake_clock.h"
#include "common/files/files.h"
#include "common/job/job_layout.h"
#include "tests/fuzz/delimited.h"
#include "tests/fuzz/scripted_agent.h"

namespace gpuctl {
namespace {

using gpuctl::v1::Stream;
using gpuctl::v1::WatchReply;

constexpr int64_t kSegment = 512;
// An input of 64 KiB repeats few bytes so often that it passes these.
constexpr MirrorLimits kLimits = {
    .lifecycle = 6000, .metrics = 6000, .telemetry = 64 << 10, .output = 20'000};
constexpr int64_t kFileCost = 4096;  // what a file takes at least on most disks
constexpr Stream kAll[] = {gpuctl::v1::STREAM_LIFECYCLE, gpuctl::v1::STREAM_METRICS,
                           gpuctl::v1::STREAM_TELEMETRY, gpuctl::v1::STREAM_OUTPUT};

// The bytes that a stream must hold, as runs without gaps.
class StreamModel {
 public:
  void Append(int64_t offset, absl::string_view bytes) {
    if (bytes.empty()) return;
    if (!runs_.empty()) {
      auto& [begin, text] = *runs_.rbegin();
      const int64_t end = begin + static_cast<int64_t>(text.size());
      Require(offset >= end);
      if (offset == end) {
        text.append(bytes.data(), bytes.size());
        return;
      }
    }
    runs_[offset] = std::string(bytes);
  }
  void CutAt(int64_t offset) {
    while (!runs_.empty() && runs_.rbegin()->first >= offset) runs_.erase(runs_.rbegin()->first);
    if (runs_.empty()) return;
    auto& [begin, text] = *runs_.rbegin();
    text.resize(std::min(text.size(), static_cast<size_t>(offset - begin)));
  }
  // True when all of `bytes` stand at `offset`.
  bool Holds(int64_t offset, absl::string_view bytes) const {
    auto run = runs_.upper_bound(offset);
    if (run == runs_.begin()) return false;
    --run;
    const auto skip = static_cast<size_t>(offset - run->first);
    return skip <= run->second.size() &&
           absl::StartsWith(absl::string_view(run->second).substr(skip), bytes);
  }

 private:
  std::map<int64_t, std::string> runs_;
};

std::string PathOf(const std::string& dir, Stream stream) {
  const MirrorPaths paths(dir);
  switch (stream) {
    case gpuctl::v1::STREAM_LIFECYCLE:
      return paths.lifecycle;
    case gpuctl::v1::STREAM_METRICS:
      return paths.metrics;
    case gpuctl::v1::STREAM_TELEMETRY:
      return paths.telemetry;
    default:
      return paths.output;
  }
}

StreamShape ShapeOf(Stream stream) {
  if (stream == gpuctl::v1::STREAM_TELEMETRY) return TelemetryShape();
  return stream == gpuctl::v1::STREAM_OUTPUT ? StreamShape{kSegment} : PlainShape();
}

// Reads a stream as readers do. Every byte of it must be the model's.
void CheckBytes(const std::string& dir, Stream stream, int64_t size, const StreamModel& model) {
  StreamReader reader(PathOf(dir, stream), ShapeOf(stream));
  const auto extent = reader.GetExtent();
  Require(extent.ok() && extent->size == size && extent->first_offset <= size);
  char buffer[4096];
  for (int64_t at = extent->first_offset; at < size;) {
    const auto got = reader.Read(at, buffer, sizeof(buffer));
    if (absl::IsOutOfRange(got.status())) {
      const auto next = reader.NextStored(at);
      Require(next.ok() && *next > at);
      at = *next;
      continue;
    }
    Require(got.ok() && *got > 0);
    Require(model.Holds(at, {buffer, static_cast<size_t>(*got)}));
    at += *got;
  }
}

// The files below a directory.
struct Files {
  int64_t count = 0;
  int64_t bytes = 0;
};
Files FilesBelow(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return {};
  if (!S_ISDIR(info.st_mode)) return {1, int64_t{info.st_size}};
  Files all;
  const auto names = ListDirectory(path);
  Require(names.ok());
  for (const std::string& name : *names) {
    const Files some = FilesBelow(JoinPath(path, name));
    all.count += some.count;
    all.bytes += some.bytes;
  }
  return all;
}

// However long a node sends, it fills neither the disk nor its table of files.
void CheckRoom(const std::string& dir, const MirrorLimits& limits) {
  for (const Stream stream : kAll) {
    const std::string path = PathOf(dir, stream);
    const int64_t segment = ShapeOf(stream).segment_bytes;
    const int64_t limit = limits.Of(stream);
    Files all = FilesBelow(path);
    // One segment is being written, and one may be a hole's edge.
    Require(all.count <= 3 + limit / kFileCost + (segment == 0 ? 0 : limit / segment));
    const auto names = ListDirectory(dir);
    Require(names.ok());
    int64_t asides = 0;
    for (const std::string& name : *names) {
      if (!absl::StartsWith(name, absl::StrCat(BaseName(path), ".diverged-"))) continue;
      all.bytes += FilesBelow(JoinPath(dir, name)).bytes;
      ++asides;
    }
    // Telemetry's limit is for its newest bytes alone.
    const int64_t most = stream == gpuctl::v1::STREAM_TELEMETRY ? 2 * (limit + segment) : limit;
    Require(asides <= 1 + most / kFileCost);
    Require(all.bytes <= most);
  }
}

// What shows a run reads it to its end, or says why not.
void ReadMirror(const std::string& dir) {
  MirrorReader reader(dir, kSegment);
  (void)reader.RefreshAll();
  (void)reader.ForEachMetricsLine([](absl::string_view) {});
  int64_t offset = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto bytes = reader.ReadOutput(offset);
    if (!bytes.ok() || bytes->empty()) break;
    offset += static_cast<int64_t>(bytes->size());
  }
  (void)MirrorIsComplete(dir, kSegment, kLimits);
  (void)CursorsBeside(dir, kSegment);
  Require(ReadMirrorSizes(dir, kSegment).ok());
  const auto lifecycle = ReadMirrorLifecycle(dir);
  if (!lifecycle.ok()) return;
  const RunStatus status = DeriveStatus(RunRow(), *lifecycle);
  Require(!status.over || (status.end.exit_code >= 0 && status.end.exit_code <= 255));
}

class CheckedMirror {
 public:
  explicit CheckedMirror(std::string dir) : dir_(std::move(dir)) { Open(); }

  // Opens the mirror anew, as the next attach does: nothing is lost.
  void Open() {
    mirror_.reset();
    auto opened = Mirror::Open(dir_, kSegment, kLimits);
    Require(opened.ok());
    mirror_ = *std::move(opened);
    for (const Stream stream : kAll) {
      CheckBytes(dir_, stream, mirror_->size(stream), models_[stream]);
    }
    Require(mirror_->Cursors().ok());
  }

  // Returns false when the mirror refuses the reply, which ends the Watch.
  bool Take(const WatchReply& reply) {
    for (const auto& header : reply.headers()) {
      const auto notice = mirror_->Apply(header);
      // Other streams, as of a later version, have no size.
      if (!notice.ok()) return false;
      if (header.diverged() && header.resume_offset() <= mirror_->size(header.stream())) {
        models_[header.stream()].CutAt(header.resume_offset());
      }
    }
    for (const auto& chunk : reply.chunks()) {
      const int64_t before = mirror_->size(chunk.stream());
      const auto status = mirror_->Apply(chunk);
      const int64_t grew = mirror_->size(chunk.stream()) - before;
      Require(grew >= 0);
      if (grew > 0) {
        Require(status.ok() && chunk.offset() >= 0 && chunk.offset() <= before);
        const auto skip = static_cast<size_t>(before - chunk.offset());
        Require(skip + static_cast<size_t>(grew) <= chunk.data().size());
        models_[chunk.stream()].Append(
            before, absl::string_view(chunk.data()).substr(skip, static_cast<size_t>(grew)));
      }
      if (!status.ok()) return false;
    }
    (void)mirror_->TakeNotice();
    return true;
  }

  void Check() {
    for (const Stream stream : kAll) {
      CheckBytes(dir_, stream, mirror_->size(stream), models_[stream]);
    }
    CheckRoom(dir_, kLimits);
    Require(mirror_->Sync().ok());
  }

 private:
  const std::string dir_;
  std::unique_ptr<Mirror> mirror_;
  std::map<Stream, StreamModel> models_;
};

void StoreWithModel(absl::string_view bytes, const std::string& dir) {
  CheckedMirror mirror(dir);
  absl::string_view record;
  bool open = true;
  while (TakeRecord(bytes, record)) {
    if (record.empty() || !open) mirror.Open();
    open = mirror.Take(ReadMessage<WatchReply>(record));
  }
  mirror.Check();
  mirror.Open();
}

WatchScripts ScriptsOf(absl::string_view bytes) {
  WatchScripts scripts(1);
  absl::string_view record;
  while (TakeRecord(bytes, record) && scripts.size() < 20) {
    if (!record.empty()) {
      scripts.back().replies.push_back(ReadMessage<WatchReply>(record));
      continue;
    }
    // The end has a code of the node.
    const size_t replies = scripts.back().replies.size();
    scripts.back().end =
        grpc::Status(static_cast<grpc::StatusCode>(replies % 17), "the node's words");
    scripts.emplace_back();
  }
  return scripts;
}

void StoreWithFollower(uint8_t mode, absl::string_view bytes, const std::string& dir) {
  const WatchScripts scripts = ScriptsOf(bytes);
  ScriptedLinks links(scripts);
  FollowObserver observer;
  FakeClock clock;
  FollowOptions options;
  options.job_id = "j-1";
  options.client_id = "c-1";
  options.mirror_dir = dir;
  options.output_segment_bytes = kSegment;
  options.give_up_after = absl::ZeroDuration();
  options.free_bytes = [mode, &clock](const std::string&) -> int64_t {
    clock.Advance(absl::Seconds(1));
    const int64_t second = absl::ToInt64Seconds(clock.SinceBoot());
    return (mode & 2) != 0 && second % 4 < 2 ? 0 : int64_t{1} << 40;
  };
  Follower follower(options, links, observer, clock);
  (void)follower.Follow();
  // The same replies, for a process that only asks.
  for (const WatchScript& script : scripts) {
    WatchScripts one = {script};
    ScriptedLink link(one);
    const auto answer = AskJob(link, "j-1", {}, absl::Seconds(1));
    if (!answer.ok()) continue;
    Require(StoreLifecycleBeside(dir, answer->lifecycle).ok());
  }
}

}  // namespace
}  // namespace gpuctl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool in_memory = [] {
    return access("/dev/shm", W_OK | X_OK) == 0 && setenv("TMPDIR", "/dev/shm", 1) == 0;
  }();
  (void)in_memory;
  if (size == 0) return 0;
  const absl::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  const auto root = gpuctl::MakeTempDirectory("gpuctl-fuzz-");
  gpuctl::Require(root.ok());
  const std::string dir = gpuctl::JoinPath(*root, "m");
  if ((data[0] & 1) != 0) {
    gpuctl::StoreWithFollower(data[0], bytes, dir);
  } else {
    gpuctl::StoreWithModel(bytes, dir);
  }
  gpuctl::ReadMirror(dir);
  // Nothing was written beside the mirror.
  gpuctl::Require(gpuctl::ListDirectory(*root)->size() <= 1);
  gpuctl::Require(gpuctl::RemoveTree(*root).ok());
  return 0;
}
