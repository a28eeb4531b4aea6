#include "client/streams/beside.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "client/streams/mirror.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kFirstPause = absl::Seconds(2);
constexpr absl::Duration kLongestPause = absl::Seconds(15);
constexpr absl::Duration kAnswerPatience = absl::Seconds(10);
// Time in which a writer that works stores what the node has.
constexpr absl::Duration kWriterPatience = absl::Seconds(3);

}  // namespace

Beside::Beside(Options options, LinkFactory& links, std::function<void(Link*)> use_link,
               Clock& clock)
    : options_(std::move(options)),
      links_(links),
      use_link_(std::move(use_link)),
      clock_(clock),
      grown_at_(clock.SinceBoot()),
      ask_at_(grown_at_ + options_.ask_after),
      pause_(kFirstPause) {}

Beside::~Beside() { DropLink(); }

void Beside::DropLink() {
  use_link_(nullptr);
  link_.reset();
}

absl::StatusOr<bool> Beside::Look() {
  ASSIGN_OR_RETURN(const int64_t stored,
                   MirroredBytes(options_.mirror_dir, options_.output_segment_bytes));
  const bool grew = stored_.has_value() && stored > *stored_;
  stored_ = stored;
  if (!grew) return false;
  grown_at_ = clock_.SinceBoot();
  ask_at_ = std::max(ask_at_, grown_at_ + options_.ask_after);
  pause_ = kFirstPause;
  ahead_since_.reset();
  return true;
}

bool Beside::AskIsDue() const { return clock_.SinceBoot() >= ask_at_; }

bool Beside::WriterIsStuck() const {
  return ahead_since_.has_value() && clock_.SinceBoot() - *ahead_since_ >= kWriterPatience;
}

absl::StatusOr<JobAnswer> Beside::Ask() {
  absl::StatusOr<JobAnswer> answer = AskNow();
  if (!answer.ok()) DropLink();
  ask_at_ = clock_.SinceBoot() + pause_;
  pause_ = ahead_since_.has_value() ? kFirstPause : std::min(2 * pause_, kLongestPause);
  return answer;
}

absl::StatusOr<JobAnswer> Beside::AskNow() {
  if (link_ == nullptr) {
    ASSIGN_OR_RETURN(link_, links_.Connect());
    use_link_(link_.get());
  }
  ASSIGN_OR_RETURN(const std::vector<gpuctl::v1::Cursor> cursors,
                   CursorsBeside(options_.mirror_dir, options_.output_segment_bytes));
  ASSIGN_OR_RETURN(JobAnswer answer, AskJob(*link_, options_.job_id, cursors, kAnswerPatience));
  RETURN_IF_ERROR(Compare(answer));
  RETURN_IF_ERROR(StoreLifecycleBeside(options_.mirror_dir, answer.lifecycle));
  return answer;
}

absl::Status Beside::Compare(const JobAnswer& answer) {
  ASSIGN_OR_RETURN(const MirrorSizes sizes,
                   ReadMirrorSizes(options_.mirror_dir, options_.output_segment_bytes));
  const bool ahead = answer.heartbeat.lifecycle_size() > sizes.lifecycle ||
                     answer.heartbeat.output_size() > sizes.output ||
                     answer.heartbeat.metrics_size() > sizes.metrics;
  if (!ahead) ahead_since_.reset();
  if (ahead && !ahead_since_.has_value()) ahead_since_ = clock_.SinceBoot();
  return absl::OkStatus();
}

}  // namespace gpuctl
