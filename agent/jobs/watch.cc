#include "agent/jobs/watch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/jobs/job_table.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/job/lifecycle.h"
#include "common/process/process.h"

namespace gpuctl {

using gpuctl::v1::WatchReply;

namespace {

constexpr int64_t kMessageBytes = 256 << 10;
constexpr int64_t kMaxTailBytes = 256 << 10;
constexpr absl::Duration kMaxWait = absl::Milliseconds(250);
// The wait for the release of a shim's lock, which is not a file change. It comes soon after the
// last lines.
constexpr absl::Duration kWaitForLock = absl::Milliseconds(5);
constexpr absl::Duration kHeartbeatEvery = absl::Seconds(5);
constexpr absl::Duration kMaxWaitForJob = absl::Seconds(10);
// The time for which a job's lines are gathered, so that not every line costs a message. The first
// line after a pause is sent at once.
constexpr absl::Duration kGather = absl::Milliseconds(5);

}  // namespace

WatchSession::WatchSession(const RootPaths& root, std::string node_id,
                           gpuctl::v1::WatchRequest request, Callbacks callbacks, Clock& clock)
    : root_(root),
      node_id_(std::move(node_id)),
      request_(std::move(request)),
      callbacks_(std::move(callbacks)),
      clock_(clock),
      job_(root.Job(request_.job_id())) {}

absl::Status WatchSession::Run() {
  RETURN_IF_ERROR(WaitForJob());
  RETURN_IF_ERROR(SendHeadersAndTail());
  for (;;) {
    if (callbacks_.is_over()) return absl::CancelledError("watch: the client is gone");
    for (StreamState& stream : streams_) notifier_.Add(stream.directory);
    WatchReply reply;
    ASSIGN_OR_RETURN(int64_t filled, Fill(reply));
    Progress progress = Progress::kRunning;
    if (filled == 0) {
      ASSIGN_OR_RETURN(progress, GetProgress());
      // The streams of a job that is over cannot grow, so a second look at them is the last.
      if (progress == Progress::kOver) {
        ASSIGN_OR_RETURN(filled, Fill(reply));
        if (filled == 0) {
          reply.set_complete(true);
          RETURN_IF_ERROR(AddHeartbeat(reply));
          return Send(reply);
        }
      }
    }
    const absl::Duration now = clock_.SinceBoot();
    if (now - last_heartbeat_ >= kHeartbeatEvery) RETURN_IF_ERROR(AddHeartbeat(reply));
    if (filled > 0 || reply.has_heartbeat()) RETURN_IF_ERROR(Send(reply));
    if (filled >= kMessageBytes) continue;
    if (filled > 0 && now - last_sent_ < kGather) {
      ChangeNotifier().Wait(kGather);
    } else if (filled == 0) {
      notifier_.Wait(progress == Progress::kRunning ? kMaxWait : kWaitForLock);
    }
    if (filled > 0) last_sent_ = now;
  }
}

absl::Status WatchSession::WaitForJob() {
  if (!IsValidId(request_.job_id())) return absl::InvalidArgumentError("watch: bad job id");
  const absl::Duration deadline =
      clock_.SinceBoot() + std::min(absl::Milliseconds(request_.wait_for_job_ms()), kMaxWaitForJob);
  notifier_.Add(root_.jobs);
  last_heartbeat_ = clock_.SinceBoot();
  for (;;) {
    absl::StatusOr<StoredSpec> stored = ReadStoredSpec(job_);
    if (stored.ok()) {
      OpenStreams(stored->spec);
      return absl::OkStatus();
    }
    if (!absl::IsNotFound(stored.status())) return stored.status();
    if (callbacks_.is_over()) return absl::CancelledError("watch: the client is gone");
    const absl::Duration now = clock_.SinceBoot();
    if (now >= deadline && !callbacks_.is_accepting()) {
      return DetailedError(
          absl::StatusCode::kNotFound,
          absl::StrCat("watch job ", request_.job_id(), ": the node has no such job"),
          gpuctl::v1::ErrorDetail::KIND_UNSPECIFIED, node_id_);
    }
    notifier_.Add(job_.dir);
    // An empty message shows that this side lives.
    if (now - last_heartbeat_ >= kHeartbeatEvery) {
      last_heartbeat_ = now;
      RETURN_IF_ERROR(Send(WatchReply()));
    }
    // The job may have appeared before the first Add. A short wait covers that.
    notifier_.Wait(absl::Milliseconds(20));
  }
}

void WatchSession::OpenStreams(const gpuctl::v1::JobSpec& spec) {
  auto add = [this](gpuctl::v1::Stream id, const std::string& path, StreamShape shape,
                    const std::string& directory) {
    for (const gpuctl::v1::Cursor& cursor : request_.cursors()) {
      if (cursor.stream() != id) continue;
      streams_.push_back(StreamState{id, StreamReader(path, shape), 0, directory});
    }
  };
  add(gpuctl::v1::STREAM_LIFECYCLE, job_.lifecycle, PlainShape(), job_.dir);
  add(gpuctl::v1::STREAM_METRICS, job_.metrics, PlainShape(), job_.dir);
  add(gpuctl::v1::STREAM_TELEMETRY, root_.telemetry, TelemetryShape(), root_.telemetry);
  add(gpuctl::v1::STREAM_OUTPUT, job_.output, OutputShape(spec), job_.output);
}

absl::Status WatchSession::SendHeadersAndTail() {
  WatchReply reply;
  for (StreamState& stream : streams_) {
    RETURN_IF_ERROR(AddHeader(stream, reply));
    if (stream.id == gpuctl::v1::STREAM_OUTPUT && request_.display_tail_bytes() > 0) {
      RETURN_IF_ERROR(AddTail(stream, reply));
    }
  }
  RETURN_IF_ERROR(AddHeartbeat(reply));
  return Send(reply);
}

absl::Status WatchSession::AddHeader(StreamState& stream, WatchReply& reply) {
  int64_t cursor_offset = 0;
  std::vector<StreamProof> proofs;
  for (const gpuctl::v1::Cursor& cursor : request_.cursors()) {
    if (cursor.stream() != stream.id) continue;
    if (cursor.offset() < 0 || cursor.proofs_size() > 64) {
      return absl::InvalidArgumentError("watch: bad cursor");
    }
    cursor_offset = cursor.offset();
    for (const gpuctl::v1::Proof& proof : cursor.proofs()) {
      proofs.push_back(StreamProof{proof.offset(), proof.sha256()});
    }
  }
  ASSIGN_OR_RETURN(const Extent extent, stream.reader.GetExtent());
  ASSIGN_OR_RETURN(ResumePoint point, FindResumePoint(stream.reader, cursor_offset, proofs));
  if (stream.id == gpuctl::v1::STREAM_TELEMETRY && cursor_offset == 0) {
    // A new reader needs the present, so it gets the segment that is being written.
    const int64_t segment = TelemetryShape().segment_bytes;
    point.offset = std::max(extent.first_offset, extent.size / segment * segment);
  }
  stream.offset = point.offset;
  gpuctl::v1::StreamHeader& header = *reply.add_headers();
  header.set_stream(stream.id);
  header.set_size(extent.size);
  header.set_first_offset(extent.first_offset);
  header.set_resume_offset(point.offset);
  header.set_diverged(point.diverged);
  return absl::OkStatus();
}

absl::Status WatchSession::AddTail(StreamState& output, WatchReply& reply) {
  ASSIGN_OR_RETURN(const Extent extent, output.reader.GetExtent());
  const int64_t wanted = std::min(request_.display_tail_bytes(), kMaxTailBytes);
  int64_t offset = std::max(extent.first_offset, extent.size - wanted);
  // When little is missing, the normal chunks are as fast.
  if (offset <= output.offset) return absl::OkStatus();
  buffer_.resize(static_cast<size_t>(kMaxTailBytes));
  while (offset < extent.size) {
    ASSIGN_OR_RETURN(const int64_t got,
                     output.reader.Read(offset, buffer_.data(), extent.size - offset));
    if (got == 0) break;
    gpuctl::v1::Chunk& chunk = *reply.add_chunks();
    chunk.set_stream(gpuctl::v1::STREAM_OUTPUT);
    chunk.set_offset(offset);
    chunk.set_data(buffer_.data(), static_cast<size_t>(got));
    chunk.set_display_only(true);
    offset += got;
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> WatchSession::Fill(WatchReply& reply) {
  int64_t filled = 0;
  for (StreamState& stream : streams_) {
    if (filled >= kMessageBytes) break;
    ASSIGN_OR_RETURN(const int64_t added, FillFrom(stream, kMessageBytes - filled, reply));
    filled += added;
  }
  return filled;
}

absl::StatusOr<int64_t> WatchSession::FillFrom(StreamState& stream, int64_t room,
                                               WatchReply& reply) {
  buffer_.resize(static_cast<size_t>(kMessageBytes));
  absl::StatusOr<int64_t> got = stream.reader.Read(stream.offset, buffer_.data(), room);
  if (absl::IsOutOfRange(got.status())) {
    // The stream was cut while this client was behind. Go on at the oldest byte kept, and say so.
    ASSIGN_OR_RETURN(const int64_t next, stream.reader.NextStored(stream.offset));
    ASSIGN_OR_RETURN(const Extent extent, stream.reader.GetExtent());
    gpuctl::v1::StreamHeader& header = *reply.add_headers();
    header.set_stream(stream.id);
    header.set_size(extent.size);
    header.set_first_offset(next);
    header.set_resume_offset(next);
    stream.offset = next;
    got = stream.reader.Read(stream.offset, buffer_.data(), room);
  }
  if (!got.ok()) return got.status();
  if (*got == 0) return 0;
  gpuctl::v1::Chunk& chunk = *reply.add_chunks();
  chunk.set_stream(stream.id);
  chunk.set_offset(stream.offset);
  chunk.set_data(buffer_.data(), static_cast<size_t>(*got));
  stream.offset += *got;
  return *got;
}

absl::StatusOr<WatchSession::Progress> WatchSession::GetProgress() {
  if (callbacks_.goes_on) {
    ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadLifecycle(job_));
    return IsOver(lifecycle) ? Progress::kOver : Progress::kRunning;
  }
  if (PathExists(job_.kept)) {
    ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadLifecycle(job_));
    if (IsOver(lifecycle)) return Progress::kOver;
    return absl::NotFoundError(
        "the allocation was over before the job's end was kept on the shared file system");
  }
  ASSIGN_OR_RETURN(const gpuctl::v1::Job job, DeriveJob(job_));
  switch (job.state()) {
    case gpuctl::v1::JOB_STATE_FINISHED:
      return Progress::kOver;
    case gpuctl::v1::JOB_STATE_FINISHING:
      return Progress::kEnding;
    case gpuctl::v1::JOB_STATE_LOST: {
      // Lost is final when it is written. Before that Tend may still add a retry.
      ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadLifecycle(job_));
      const LifecycleEvent* last = LastStateEvent(lifecycle);
      return last != nullptr && last->type == LifecycleEvent::Type::kLost ? Progress::kOver
                                                                          : Progress::kEnding;
    }
    default:
      return Progress::kRunning;
  }
}

absl::Status WatchSession::AddHeartbeat(WatchReply& reply) {
  last_heartbeat_ = clock_.SinceBoot();
  gpuctl::v1::Heartbeat& heartbeat = *reply.mutable_heartbeat();
  ASSIGN_OR_RETURN(*heartbeat.mutable_job(), DeriveJob(job_));
  if (callbacks_.complete) callbacks_.complete(*heartbeat.mutable_job());
  heartbeat.set_node_id(node_id_);
  heartbeat.set_boot_id(BootId());
  heartbeat.set_node_time_ms(absl::ToUnixMillis(clock_.Now()));
  for (StreamState& stream : streams_) {
    ASSIGN_OR_RETURN(const Extent extent, stream.reader.GetExtent());
    if (stream.id == gpuctl::v1::STREAM_LIFECYCLE) heartbeat.set_lifecycle_size(extent.size);
    if (stream.id == gpuctl::v1::STREAM_OUTPUT) heartbeat.set_output_size(extent.size);
    if (stream.id == gpuctl::v1::STREAM_METRICS) heartbeat.set_metrics_size(extent.size);
  }
  return absl::OkStatus();
}

absl::Status WatchSession::Send(const WatchReply& reply) {
  if (!callbacks_.send(reply)) return absl::CancelledError("watch: the client is gone");
  return absl::OkStatus();
}

}  // namespace gpuctl
