#include "agent/limits.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "nlohmann/json.hpp"

#include "absl/strings/str_cat.h"
#include "agent/job_end.h"
#include "agent/job_table.h"
#include "common/files.h"
#include "common/log.h"
#include "common/process.h"
#include "common/status_macros.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kLookEvery = absl::Seconds(1);
constexpr absl::Duration kNoteEvery = absl::Minutes(1);

}  // namespace

absl::Duration RunningTime(const Lifecycle& lifecycle, const std::string& boot_id,
                           absl::Duration since_boot, int64_t ticks_per_s) {
  using Type = LifecycleEvent::Type;
  absl::Duration total;
  const LifecycleEvent* running = nullptr;
  for (const LifecycleEvent& event : lifecycle.events) {
    if (event.type == Type::kStarted) {
      running = &event;
    } else if ((event.type == Type::kExited || event.type == Type::kLost) && running != nullptr) {
      total += std::max(absl::ZeroDuration(), absl::Milliseconds(event.time_ms - running->time_ms));
      running = nullptr;
    }
  }
  if (running != nullptr && running->boot_id == boot_id && ticks_per_s > 0) {
    total += since_boot - absl::Seconds(static_cast<double>(running->start_time_ticks) /
                                        static_cast<double>(ticks_per_s));
  }
  return total;
}

LimitKeeper::LimitKeeper(const RootPaths& paths, Clock& clock)
    : paths_(paths), clock_(clock), boot_id_(BootId()) {}

void LimitKeeper::Enforce() {
  const absl::Duration now = clock_.SinceBoot();
  if (now >= next_note_) {
    next_note_ = now + kNoteEvery;
    NoteClock();
  }
  if (now < next_look_) return;
  next_look_ = now + kLookEvery;
  absl::StatusOr<std::vector<std::string>> names = ListDirectory(paths_.jobs);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (done_.count(name) == 0) EnforceTime(name);
  }
}

void LimitKeeper::EnforceTime(const std::string& job_id) {
  const JobPaths job = paths_.Job(job_id);
  absl::StatusOr<StoredSpec> stored = ReadStoredSpec(job);
  if (!stored.ok()) return;
  const int64_t limit_s = stored->spec.limits().time_s();
  absl::StatusOr<gpuctl::v1::Job> state = DeriveJob(job);
  if (limit_s <= 0 || (state.ok() && state->state() == gpuctl::v1::JOB_STATE_FINISHED)) {
    done_.insert(job_id);
    return;
  }
  if (!state.ok() || state->state() != gpuctl::v1::JOB_STATE_RUNNING ||
      told_[job_id] == state->attempt()) {
    return;
  }
  absl::StatusOr<Lifecycle> lifecycle = ReadLifecycle(job);
  if (!lifecycle.ok() || RunningTime(*lifecycle, boot_id_, clock_.SinceBoot(),
                                     sysconf(_SC_CLK_TCK)) < absl::Seconds(limit_s)) {
    return;
  }
  const absl::Status sent = SendControl(job, "stop limit:time\n");
  Log(LogLevel::kInfo,
      absl::StrCat("guard: job ", job_id, " reached its time limit: ", sent.ToString()));
  if (sent.ok()) told_[job_id] = state->attempt();
}

void LimitKeeper::NoteClock() {
  nlohmann::ordered_json note;
  note["boot_id"] = boot_id_;
  note["since_boot_ms"] = absl::ToInt64Milliseconds(clock_.SinceBoot());
  note["time_ms"] = absl::ToUnixMillis(clock_.Now());
  const absl::Status status = WriteFileAtomic(paths_.clock, note.dump() + "\n");
  if (!status.ok()) Log(LogLevel::kWarning, absl::StrCat("guard: ", status.message()));
}

}  // namespace gpuctl
