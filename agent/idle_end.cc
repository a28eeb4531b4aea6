#include "agent/idle_end.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "absl/strings/numbers.h"
#include "agent/jobs/job_state.h"
#include "agent/limits/contact.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kDefaultAfter = absl::Hours(1);
constexpr absl::Duration kLongestLook = absl::Minutes(1);
constexpr int kLooksInAll = 10;

}  // namespace

IdleEnd::IdleEnd(const RootPaths& paths, absl::Duration after, Clock& clock)
    : paths_(paths),
      clock_(clock),
      after_(after),
      look_every_(std::min(after / kLooksInAll, kLongestLook)),
      used_at_(clock.SinceBoot()) {}

bool IdleEnd::IsDue() {
  const absl::Duration now = clock_.SinceBoot();
  if (now < look_at_) return false;
  look_at_ = now + look_every_;
  // A contact may begin and end between two looks.
  const int64_t seen = ContactMark(paths_);
  if (seen != seen_ || PathExists(paths_.limits) || InContact(paths_)) {
    seen_ = seen;
    used_at_ = now;
    return false;
  }
  if (now - used_at_ < after_) return false;
  if (!HasOpenJob()) return true;
  used_at_ = now;
  return false;
}

bool IdleEnd::HasOpenJob() const {
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(paths_.jobs);
  if (!names.ok()) return true;
  return std::any_of(names->begin(), names->end(), [this](const std::string& name) {
    const absl::StatusOr<gpuctl::v1::Job> job = DeriveJob(paths_.Job(name));
    if (!job.ok()) return !absl::IsNotFound(job.status());
    return job->state() != gpuctl::v1::JOB_STATE_FINISHED &&
           job->state() != gpuctl::v1::JOB_STATE_LOST;
  });
}

absl::Duration IdleEndAfter() {
  const char* const text = std::getenv("GPUCTL_IDLE_END");
  int64_t seconds = 0;
  if (text == nullptr || !absl::SimpleAtoi(text, &seconds) || seconds <= 0) return kDefaultAfter;
  return absl::Seconds(seconds);
}

}  // namespace gpuctl
