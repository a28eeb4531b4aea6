#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/base/exit_codes.h"
#include "client/base/paths.h"
#include "client/base/run_program.h"
#include "client/keep/keep_schedule.h"
#include "client/self_test/parts.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr char kSchedulerCheck[] = "scheduler";
constexpr absl::Duration kRunsWithin = absl::Seconds(8);

struct SchedulerWords {
  const char *title, *fix;
};

SchedulerWords WordsOf(Scheduler scheduler) {
  switch (scheduler) {
    case Scheduler::kLaunchd:
      return {"launchd",
              "log in at this Mac's own screen (a login by ssh alone has no domain gui), and see "
              "that ~/Library/LaunchAgents is yours: ls -ld ~/Library/LaunchAgents"};
    case Scheduler::kSystemd:
      return {"systemd's user manager",
              "systemctl --user status must work; loginctl "
              "enable-linger keeps it running without a login"};
    case Scheduler::kCron:
      return {"cron", "crontab -l and crontab FILE must work for this user"};
    case Scheduler::kNone:
      break;
  }
  return {"nothing", ""};
}

// The job of keep --install under another name, with directories in which there is nothing to do:
// no market is asked without a key and a ledger.
KeepJob JobOf(const TestPlace& place) {
  KeepJob job;
  job.name = absl::StrCat("self-test-", place.token());
  job.program = ExecutablePath();
  job.where = {{"GPUCTL_STATE_DIR", JoinPath(place.dir, "keep")},
               {"GPUCTL_CONFIG_DIR", JoinPath(place.dir, "config")},
               {"GPUCTL_CACHE_DIR", JoinPath(place.dir, "cache")},
               {"GPUCTL_KEY_STORE", "file"}};
  job.every = absl::Minutes(5);
  job.log = JoinPath(place.dir, "keep.stderr");
  job.at_once = true;
  return job;
}

// A pass of keep ends with this file.
std::string SignOf(const TestPlace& place) { return JoinPath(place.dir, "keep/keep.json"); }

// Runs the command of a crontab's line in the surroundings that cron gives.
absl::Status RunAsCron(const KeepJob& job) {
  const absl::StatusOr<std::string> line = CronLine(job);
  if (!line.ok()) return line.status();
  size_t command = 0;
  for (int field = 0; field < 5; ++field) command = line->find(' ', command) + 1;
  const char* home = std::getenv("HOME");
  return OutputOf({"/usr/bin/env", "-i", absl::StrCat("HOME=", home == nullptr ? "/" : home),
                   "PATH=/usr/bin:/bin", "SHELL=/bin/sh", "/bin/sh", "-c",
                   absl::StrReplaceAll(line->substr(command), {{"\\%", "%"}})})
      .status();
}

// Waits until the job has run. Cron would take up to a minute, so its line is run here instead.
absl::Status SeeItRun(Scheduler scheduler, const KeepJob& job, const TestPlace& place,
                      Clock& clock) {
  if (scheduler == Scheduler::kCron) {
    if (const absl::Status ran = RunAsCron(job); !ran.ok()) return ran;
  }
  const absl::Duration end = clock.SinceBoot() + kRunsWithin;
  while (!PathExists(SignOf(place))) {
    if (clock.SinceBoot() > end) {
      return absl::DeadlineExceededError(absl::StrCat(
          "a job that was installed did not run within ", absl::FormatDuration(kRunsWithin)));
    }
    clock.SleepFor(absl::Milliseconds(20));
  }
  return absl::OkStatus();
}

bool SameSchedule(const absl::StatusOr<std::optional<KeepSchedule>>& a,
                  const absl::StatusOr<std::optional<KeepSchedule>>& b) {
  if (a.ok() != b.ok()) return false;
  if (!a.ok() || !a->has_value() || !b->has_value())
    return !a.ok() || a->has_value() == b->has_value();
  return (*a)->by == (*b)->by && (*a)->where == (*b)->where && (*a)->every == (*b)->every;
}

}  // namespace

void TestScheduler(const TestPlace& place, Reporter& report) {
  const Scheduler scheduler = FindScheduler();
  const SchedulerWords words = WordsOf(scheduler);
  if (scheduler == Scheduler::kNone) {
    return report.Ok(kSchedulerCheck,
                     "neither systemd's user manager nor crontab is here, so keep --install would "
                     "refuse; gpuctl keep can be called by other means");
  }
  const auto failed = [&](const absl::Status& status) {
    CleanScheduler(place).IgnoreError();
    report.Fail(kSchedulerCheck, absl::StrCat(words.title, ": ", status.message()), words.fix);
  };
  const auto before = FindKeepSchedule();
  const KeepJob job = JobOf(place);
  const absl::StatusOr<std::string> put = PutJob(scheduler, job);
  if (!put.ok()) return failed(put.status());
  const absl::StatusOr<bool> there = HasJob(scheduler, job.name);
  if (!there.ok()) return failed(there.status());
  if (!*there) return failed(absl::DataLossError("a job that was installed is not there"));
  if (const absl::Status ran = SeeItRun(scheduler, job, place, report.clock()); !ran.ok()) {
    return failed(ran);
  }
  if (const absl::Status removed = RemoveJob(job.name); !removed.ok()) return failed(removed);
  const absl::StatusOr<bool> left = HasJob(scheduler, job.name);
  if (!left.ok()) return failed(left.status());
  if (*left) return failed(absl::DataLossError("a job that was removed is still there"));
  if (!SameSchedule(before, FindKeepSchedule())) {
    return failed(absl::DataLossError("what keep --install wrote is not the same as before"));
  }
  report.Ok(kSchedulerCheck,
            scheduler == Scheduler::kCron
                ? "cron: a line was written and removed, and its command works; cron "
                  "itself starts it only at the next minute, which was not awaited"
                : absl::StrCat(words.title, ": a job was installed, ran, and was removed"));
}

absl::Status CleanScheduler(const TestPlace& place) { return RemoveJob(JobOf(place).name); }

}  // namespace gpuctl
