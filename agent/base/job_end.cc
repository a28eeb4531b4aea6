#include "agent/base/job_end.h"

#include <fcntl.h>
#include <signal.h>

#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/job/stream_file.h"
#include "common/process/process.h"

namespace gpuctl {
namespace {

constexpr size_t kMaxWords = 500;

absl::StatusOr<int64_t> SizeOf(const std::string& path, StreamShape shape) {
  StreamReader reader(path, shape);
  ASSIGN_OR_RETURN(const Extent extent, reader.GetExtent());
  return extent.size;
}

}  // namespace

absl::Status AppendEnd(const JobPaths& job, const gpuctl::v1::JobSpec& spec, LifecycleEvent end,
                       Clock& clock) {
  ASSIGN_OR_RETURN(end.output_size, SizeOf(job.output, OutputShape(spec)));
  ASSIGN_OR_RETURN(end.metrics_size, SizeOf(job.metrics, PlainShape()));
  if (end.time_ms == 0) end.time_ms = absl::ToUnixMillis(clock.Now());
  std::string lines = FormatLifecycleEvent(end);
  if (WantsRetry(spec.retry(), end)) {
    LifecycleEvent retry = end;
    retry.type = LifecycleEvent::Type::kRetry;
    retry.attempt = end.attempt + 1;
    retry.not_before_ms = end.time_ms + RetryDelayMs(spec.retry(), retry.attempt);
    lines += FormatLifecycleEvent(retry);
  }
  ASSIGN_OR_RETURN(StreamWriter writer, StreamWriter::Open(job.lifecycle, PlainShape()));
  RETURN_IF_ERROR(writer.TerminateLine());
  RETURN_IF_ERROR(writer.Append(lines));
  return writer.Sync();
}

absl::Status AppendRetry(const JobPaths& job, const gpuctl::v1::JobSpec& spec, int attempt,
                         int64_t delay_ms, Clock& clock) {
  LifecycleEvent retry;
  retry.type = LifecycleEvent::Type::kRetry;
  retry.attempt = attempt;
  retry.time_ms = absl::ToUnixMillis(clock.Now());
  retry.not_before_ms = retry.time_ms + delay_ms;
  ASSIGN_OR_RETURN(retry.output_size, SizeOf(job.output, OutputShape(spec)));
  ASSIGN_OR_RETURN(retry.metrics_size, SizeOf(job.metrics, PlainShape()));
  ASSIGN_OR_RETURN(StreamWriter writer, StreamWriter::Open(job.lifecycle, PlainShape()));
  RETURN_IF_ERROR(writer.TerminateLine());
  RETURN_IF_ERROR(writer.Append(FormatLifecycleEvent(retry)));
  return writer.Sync();
}

namespace {

// Writes `end` for a job that is pending or waits to retry. Fills in its attempt.
absl::Status EndWaiting(const JobPaths& job, LifecycleEvent end, Clock& clock) {
  absl::StatusOr<UniqueFd> owned = TryLock(job.lock);
  if (absl::IsUnavailable(owned.status())) {
    return absl::AbortedError("end job: a shim has just taken it");
  }
  if (!owned.ok()) return owned.status();
  ASSIGN_OR_RETURN(const StoredSpec stored, ReadStoredSpec(job));
  absl::StatusOr<std::string> contents = ReadFileToString(job.lifecycle);
  const Lifecycle lifecycle = contents.ok() ? ParseLifecycle(*contents) : Lifecycle{};
  const LifecycleEvent* last = LastStateEvent(lifecycle);
  if (last != nullptr && last->type != LifecycleEvent::Type::kRetry) {
    return absl::AbortedError("end job: it has moved on");
  }
  end.type = LifecycleEvent::Type::kExited;
  end.attempt = last == nullptr ? 1 : last->attempt;
  return AppendEnd(job, stored.spec, std::move(end), clock);
}

// Returns the last line that the job's shims wrote, or a text in its place.
std::string LastWords(const JobPaths& job) {
  const absl::StatusOr<std::string> said = ReadFileToString(job.shim_stderr);
  const absl::string_view text = said.ok() ? absl::StripAsciiWhitespace(*said) : "";
  const absl::string_view line = text.substr(text.rfind('\n') + 1);
  return line.empty() ? "the shim ends without a word" : std::string(line.substr(0, kMaxWords));
}

}  // namespace

absl::Status EndUnstarted(const JobPaths& job, absl::string_view reason, Clock& clock) {
  LifecycleEvent end;
  end.signal = SIGTERM;
  end.reason = std::string(reason);
  return EndWaiting(job, std::move(end), clock);
}

absl::Status EndWithoutShim(const JobPaths& job, Clock& clock) {
  LifecycleEvent end;
  end.exit_code = 1;
  end.error = absl::StrCat("the node could not start it: ", LastWords(job));
  return EndWaiting(job, std::move(end), clock);
}

absl::Status SendControl(const JobPaths& job, absl::string_view line) {
  // Opened non-blocking: without a reader the open fails with ENXIO and does not wait.
  UniqueFd fifo(file_ops::Open(job.control, O_WRONLY | O_NONBLOCK));
  if (!fifo.valid()) {
    if (errno == ENXIO || errno == ENOENT) {
      return absl::FailedPreconditionError("reach shim: it does not listen");
    }
    return ErrnoStatus(errno, absl::StrCat("reach shim through ", job.control));
  }
  return WriteAll(fifo.get(), line, job.control);
}

}  // namespace gpuctl
