#include "client/runs/run_end.h"

#include <utility>

#include "absl/strings/match.h"
#include "common/job/lifecycle.h"

namespace gpuctl {
namespace {

constexpr char kJobWord[] = "job";
constexpr char kGpuctlWord[] = "gpuctl";

constexpr std::pair<EndCause, const char*> kCauseWords[] = {
    {EndCause::kNone, "none"},           {EndCause::kUser, "user"},
    {EndCause::kLimit, "limit"},         {EndCause::kCannotRun, "cannot_run"},
    {EndCause::kPreempted, "preempted"}, {EndCause::kAlert, "alert"},
    {EndCause::kSetup, "setup"},
};

}  // namespace

EndCause CauseOfExit(absl::string_view reason) {
  switch (StopCauseOf(reason)) {
    case StopCause::kUser:
      return EndCause::kUser;
    case StopCause::kLimit:
      return EndCause::kLimit;
    case StopCause::kAlert:
      return EndCause::kAlert;
    default:
      return EndCause::kNone;
  }
}

bool IsPreempted(const RunEnd& end) { return end.cause == EndCause::kPreempted; }

std::string StateWord(gpuctl::v1::JobState state) {
  return state == gpuctl::v1::JOB_STATE_UNSPECIFIED ? "" : gpuctl::v1::JobState_Name(state);
}

std::string SourceWord(EndSource source) {
  return source == EndSource::kJob ? kJobWord : kGpuctlWord;
}

std::string CauseWord(EndCause cause) {
  for (const auto& [known, word] : kCauseWords) {
    if (known == cause) return word;
  }
  return "";
}

gpuctl::v1::JobState StateOfWord(const std::string& word) {
  gpuctl::v1::JobState state = gpuctl::v1::JOB_STATE_UNSPECIFIED;
  return gpuctl::v1::JobState_Parse(word, &state) ? state : gpuctl::v1::JOB_STATE_UNSPECIFIED;
}

EndSource SourceOfWord(absl::string_view word) {
  return word == kJobWord ? EndSource::kJob : EndSource::kGpuctl;
}

EndCause CauseOfWord(absl::string_view word) {
  for (const auto& [cause, known] : kCauseWords) {
    if (word == known) return cause;
  }
  return EndCause::kNone;
}

EndCause CauseOfOldEnd(const RunEnd& end) {
  switch (end.state) {
    case gpuctl::v1::JOB_STATE_LOST:
      return absl::StartsWith(end.reason, kPreemptedReason) ? EndCause::kPreempted
                                                            : EndCause::kNone;
    case gpuctl::v1::JOB_STATE_FINISHED:
      if (end.source == EndSource::kGpuctl && end.job_code < 0) return EndCause::kCannotRun;
      return CauseOfExit(end.reason);
    default:
      return EndCause::kNone;
  }
}

}  // namespace gpuctl
