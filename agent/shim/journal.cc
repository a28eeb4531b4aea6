#include "agent/shim/journal.h"

#include "absl/strings/str_cat.h"
#include "agent/base/platform.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/job/job_layout.h"

namespace gpuctl {
namespace {

constexpr int64_t kReserveBytes = 64 << 10;

}  // namespace

absl::StatusOr<Journal> Journal::Open(const std::string& path) {
  ASSIGN_OR_RETURN(StreamWriter writer, StreamWriter::Open(path, PlainShape()));
  RETURN_IF_ERROR(writer.TerminateLine());
  // This puts the file's name on the disk. Later lines need only their own bytes synced.
  RETURN_IF_ERROR(writer.Sync());
  Journal journal(std::move(writer));
  ASSIGN_OR_RETURN(const std::string contents, ReadFileToString(path));
  journal.past_ = ParseLifecycle(contents);
  journal.Reserve();
  return journal;
}

void Journal::Reserve() {
  // Half of the reserve is enough, and saves the call for most lines.
  if (reserved_ - writer_.size() > kReserveBytes / 2) return;
  const auto tail = writer_.TailForSplice();
  if (tail.ok() && ReserveBlocks(tail->fd, tail->position, kReserveBytes)) {
    reserved_ = writer_.size() + kReserveBytes;
  }
}

absl::Status Journal::Append(const LifecycleEvent& event) {
  queue_.push_back(FormatLifecycleEvent(event));
  return Flush();
}

absl::Status Journal::AppendTogether(const LifecycleEvent& event, const LifecycleEvent& next) {
  queue_.push_back(absl::StrCat(FormatLifecycleEvent(event), FormatLifecycleEvent(next)));
  return Flush();
}

absl::Status Journal::Flush() {
  while (!queue_.empty()) {
    const std::string& line = queue_.front();
    if (front_start_ < 0) front_start_ = writer_.size();
    RETURN_IF_ERROR(writer_.WriteAt(front_start_, line));  // skips stored bytes
    if (rewrite_) RETURN_IF_ERROR(writer_.Rewrite(front_start_, line));
    if (absl::Status status = writer_.Sync(); !status.ok()) {
      rewrite_ = true;
      return status;
    }
    rewrite_ = false;
    front_start_ = -1;
    queue_.pop_front();
    Reserve();
  }
  return absl::OkStatus();
}

bool Journal::LastIsVisible() const {
  return queue_.size() == 1 && front_start_ >= 0 &&
         writer_.size() >= front_start_ + static_cast<int64_t>(queue_.front().size());
}

void Journal::EndReservation() {
  const auto tail = writer_.TailForSplice();
  // A failure only leaves 64 KiB allocated to a finished job, so it is ignored.
  if (tail.ok()) file_ops::Truncate(tail->fd, tail->position);
  reserved_ = 0;
}

}  // namespace gpuctl
