#include "client/runs/run_status.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "common/files/files.h"
#include "common/release/release_route.h"

namespace gpuctl {
namespace {

using Type = LifecycleEvent::Type;

const char* SignalName(int signal) {
  switch (signal) {
    case 1:
      return "SIGHUP";
    case 2:
      return "SIGINT";
    case 4:
      return "SIGILL";
    case 6:
      return "SIGABRT";
    case 8:
      return "SIGFPE";
    case 9:
      return "SIGKILL";
    case 11:
      return "SIGSEGV";
    case 13:
      return "SIGPIPE";
    case 15:
      return "SIGTERM";
    default:
      return "";
  }
}

constexpr size_t kEnvironmentDigits = 12;

// Returns the JSON of a run's setup; null for a run without one.
nlohmann::ordered_json SetupToJson(const std::optional<SetupState>& setup) {
  if (!setup.has_value()) return {};
  const nlohmann::ordered_json none;
  const char* state = setup->running  ? "running"
                      : setup->failed ? "failed"
                      : setup->reused ? "reused"
                                      : "made";
  const double took_s = static_cast<double>(setup->ended_ms - setup->started_ms) / 1000;
  return {{"state", state},
          {"environment",
           setup->environment.empty() ? none : nlohmann::ordered_json(setup->environment)},
          {"took_s", setup->running ? none : nlohmann::ordered_json(took_s)}};
}

RunPhase PhaseOf(const RunEnd& end) {
  if (end.state == gpuctl::v1::JOB_STATE_LOST) return RunPhase::kLost;
  if (end.cause == EndCause::kLimit) return RunPhase::kLimit;
  if (end.cause == EndCause::kUser || end.cause == EndCause::kAlert) return RunPhase::kStopped;
  // Another member failed, or was lost, whatever this one made of its SIGTERM.
  if (absl::StartsWith(end.reason, kGangPrefix)) return RunPhase::kFailed;
  const bool ran = end.state != gpuctl::v1::JOB_STATE_UNSPECIFIED;
  return ran && end.exit_code == 0 ? RunPhase::kSucceeded : RunPhase::kFailed;
}

int64_t FirstStartMs(const Lifecycle& lifecycle) {
  for (const LifecycleEvent& event : lifecycle.events) {
    if (event.type == Type::kStarted) return event.time_ms;
  }
  return 0;
}

bool IsStopping(const Lifecycle& lifecycle) {
  for (auto event = lifecycle.events.rbegin(); event != lifecycle.events.rend(); ++event) {
    if (event->type == Type::kStarted) return false;
    if (event->type == Type::kStopping) return true;
  }
  return false;
}

}  // namespace

const char* WordOf(RunPhase phase) {
  switch (phase) {
    case RunPhase::kLaunching:
      return "launching";
    case RunPhase::kPending:
      return "pending";
    case RunPhase::kQueued:
      return "queued";
    case RunPhase::kSettingUp:
      return "setting up";
    case RunPhase::kRunning:
      return "running";
    case RunPhase::kStopping:
      return "stopping";
    case RunPhase::kRetrying:
      return "retrying";
    case RunPhase::kSucceeded:
      return "succeeded";
    case RunPhase::kFailed:
      return "failed";
    case RunPhase::kStopped:
      return "stopped";
    case RunPhase::kLimit:
      return "limit";
    case RunPhase::kLost:
      return "lost";
  }
  return "";
}

RunEnd EndOf(const LifecycleEvent& event) {
  RunEnd end;
  end.ended_ms = event.time_ms;
  end.reason = event.reason;
  if (event.type == Type::kLost) {
    end.state = gpuctl::v1::JOB_STATE_LOST;
    end.exit_code = kExitLost;
    end.source = EndSource::kGpuctl;
    // Its machine was taken away before that, and its cluster has not brought it back.
    if (absl::StartsWith(end.reason, kNotStarted)) end.cause = EndCause::kPreempted;
    return end;
  }
  end.state = gpuctl::v1::JOB_STATE_FINISHED;
  end.job_code = ShellExitCode(event);
  end.exit_code = end.job_code;
  end.source = EndSource::kJob;
  if (!event.error.empty()) {
    // The command never ran, so the code is gpuctl's.
    end.source = EndSource::kGpuctl;
    end.cause = EndCause::kCannotRun;
    end.reason = event.error;
    end.job_code = -1;
    return end;
  }
  end.cause = CauseOfExit(event.reason);
  if (event.phase == kSetupPhase && event.reason.empty()) {
    end.cause = EndCause::kSetup;
    end.reason = kSetupPhase;
  }
  // Of several processes, the one that ended first.
  if (end.reason.empty()) end.reason = event.detail;
  if (end.cause == EndCause::kLimit) {
    end.exit_code = kExitLimit;
    end.source = EndSource::kGpuctl;
  }
  return end;
}

int RestartsOf(const std::string& run_dir) {
  const absl::StatusOr<std::string> text = ReadFileToString(JoinPath(run_dir, "lifecycle.jsonl"));
  if (!text.ok()) return 0;
  int restarts = 0;
  bool taken = false;
  for (const LifecycleEvent& event : ParseLifecycle(*text).events) {
    if (event.type == Type::kStarted && taken) ++restarts;
    if (event.type == Type::kStarted) taken = false;
    if (event.type != Type::kExited && event.type != Type::kLost) continue;
    taken = event.reason == kAllocationEndsReason || event.reason == kNodeFailedReason;
  }
  return restarts;
}

int RetriesUsed(const std::vector<std::string>& run_dirs) {
  int used = static_cast<int>(run_dirs.size());
  for (const std::string& run_dir : run_dirs) used += RestartsOf(run_dir);
  return used;
}

RunStatus StatusOfEnded(const RunRow& row) {
  RunStatus status;
  status.over = true;
  status.end = *row.end;
  status.phase = PhaseOf(*row.end);
  status.started_ms = row.accepted_ms;
  status.state = row.end->state;
  return status;
}

RunStatus DeriveStatus(const RunRow& row, const Lifecycle& lifecycle) {
  RunStatus status;
  status.started_ms = FirstStartMs(lifecycle);
  const LifecycleEvent* last = LastStateEvent(lifecycle);
  if (last != nullptr) status.attempt = last->attempt;
  status.setup = SetupOf(lifecycle);
  if (row.end.has_value()) {
    status.over = true;
    status.end = *row.end;
    status.phase = PhaseOf(*row.end);
    status.state = row.end->state;
    return status;
  }
  for (const LifecycleEvent& event : lifecycle.events) {
    if (event.type == Type::kStarted) {
      status.gpu_ids = event.gpus.value_or(std::vector<std::string>());
    }
  }
  if (const LifecycleEvent* queued = QueuedEvent(lifecycle)) {
    status.state = gpuctl::v1::JOB_STATE_QUEUED;
    status.phase = RunPhase::kQueued;
    status.queue.emplace().since_ms = QueuedSinceMs(lifecycle);
    status.queue->needs_secrets = queued->reason == kSecretsReason;
    if (queued->reason == kSchedulerReason) status.queue->scheduler = kSlurm;
    return status;
  }
  if (last == nullptr) {
    status.state =
        row.accepted_ms > 0 ? gpuctl::v1::JOB_STATE_PENDING : gpuctl::v1::JOB_STATE_UNSPECIFIED;
    status.phase = row.accepted_ms > 0 ? RunPhase::kPending : RunPhase::kLaunching;
    return status;
  }
  switch (last->type) {
    case Type::kRetry:
      status.state = gpuctl::v1::JOB_STATE_RETRY_WAIT;
      status.phase = RunPhase::kRetrying;
      return status;
    case Type::kStarted:
      status.state = gpuctl::v1::JOB_STATE_RUNNING;
      status.phase = IsStopping(lifecycle)                               ? RunPhase::kStopping
                     : status.setup.has_value() && status.setup->running ? RunPhase::kSettingUp
                                                                         : RunPhase::kRunning;
      return status;
    default:
      status.over = IsOver(lifecycle);
      status.end = EndOf(*last);
      status.state =
          last->type == Type::kLost ? gpuctl::v1::JOB_STATE_LOST : gpuctl::v1::JOB_STATE_FINISHED;
      status.phase = PhaseOf(status.end);
      return status;
  }
}

void AddQueueState(const std::string& mirror_dir, RunStatus& status) {
  if (!status.queue.has_value()) return;
  std::optional<QueueState> told = ReadQueueState(mirror_dir);
  if (!told.has_value()) return;
  told->since_ms = status.queue->since_ms;
  // Of both, the line of the lifecycle is the newer one or as new.
  told->needs_secrets = status.queue->needs_secrets;
  told->scheduler = status.queue->scheduler;
  status.queue = std::move(told);
}

std::string DescribeEnd(const RunEnd& end) {
  if (absl::StartsWith(end.reason, kSlurmReason)) {
    return absl::StrCat("ended by ", end.reason,
                        end.job_code < 0 ? "" : absl::StrCat("; exited with code ", end.job_code));
  }
  if (end.state == gpuctl::v1::JOB_STATE_LOST) {
    return absl::StrCat("lost", end.reason.empty() ? "" : ": ", end.reason);
  }
  if (end.state == gpuctl::v1::JOB_STATE_UNSPECIFIED) {
    return absl::StrCat("never started: ", end.reason);
  }
  if (end.cause == EndCause::kCannotRun) return absl::StrCat("could not run: ", end.reason);
  std::string how = absl::StrCat("exited with code ", end.job_code);
  if (end.job_code > 128 && *SignalName(end.job_code - 128) != '\0') {
    how = absl::StrCat("ended by ", SignalName(end.job_code - 128), " (code ", end.job_code, ")");
  }
  if (end.cause == EndCause::kSetup) return absl::StrCat("its setup failed: ", how);
  if (end.cause == EndCause::kLimit) {
    return absl::StrCat("reached its ", LimitOf(end.reason), " limit; ", how);
  }
  if (absl::StartsWith(end.reason, kGangPrefix)) {
    return absl::StrCat(absl::StripPrefix(end.reason, kGangPrefix), "; ", how);
  }
  if (end.cause == EndCause::kUser) return absl::StrCat("stopped by you; ", how);
  if (end.cause == EndCause::kAlert) {
    return absl::StrCat("stopped because ", AlertOf(end.reason), "; ", how);
  }
  return end.reason.empty() ? how : absl::StrCat(how, " (", end.reason, ")");
}

std::string DescribeLingering(const LifecycleEvent& lingering, int64_t now_ms) {
  const int64_t left_ms = std::max<int64_t>(0, lingering.not_before_ms - now_ms);
  const std::string how = lingering.signal != 0 ? absl::StrCat("signal ", lingering.signal)
                                                : absl::StrCat("code ", lingering.exit_code);
  return absl::StrCat("its command has ended with ", how,
                      "; what it left running is told to end in ",
                      HumanDuration(absl::Milliseconds(left_ms)));
}

std::string DescribeSetup(const SetupState& setup, int64_t now_ms) {
  const std::string time = HumanDuration(absl::Milliseconds(
      std::max<int64_t>(0, (setup.running ? now_ms : setup.ended_ms) - setup.started_ms)));
  const std::string name =
      setup.environment.empty()
          ? ""
          : absl::StrCat("environment ", setup.environment.substr(0, kEnvironmentDigits), ", ");
  if (setup.running) return absl::StrCat("for ", time);
  if (setup.failed) return absl::StrCat(name, "failed after ", time);
  return absl::StrCat(name, setup.reused ? "there already" : absl::StrCat("made in ", time));
}

nlohmann::ordered_json RunToJson(const RunRow& row, const RunStatus& status) {
  nlohmann::ordered_json json;
  json["run_id"] = row.run_id;
  json["name"] = row.name;
  json["job_id"] = row.job_id;
  json["node_id"] =
      row.node_id.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(row.node_id);
  json["provider"] = row.target.provider;
  json["node"] = row.target.name;
  json["command"] = row.command;
  json["state"] = gpuctl::v1::JobState_Name(status.state);
  json["status"] = WordOf(status.phase);
  json["attempt"] = status.attempt;
  json["queue"] = QueueToJson(status.queue);
  json["gpu_ids"] = status.gpu_ids;
  json["setup"] = SetupToJson(status.setup);
  const auto time = [](int64_t ms) -> nlohmann::ordered_json {
    return ms > 0 ? nlohmann::ordered_json(FormatRfc3339(ms)) : nlohmann::ordered_json();
  };
  json["created"] = time(row.created_ms);
  json["started"] = time(status.started_ms);
  json["ended"] = status.over ? time(status.end.ended_ms) : nlohmann::ordered_json();
  json["last_heard"] = time(row.heard_ms);
  json["step"] = row.step >= 0 ? nlohmann::ordered_json(row.step) : nlohmann::ordered_json();
  json["total_steps"] =
      row.total_steps >= 0 ? nlohmann::ordered_json(row.total_steps) : nlohmann::ordered_json();
  json["loss"] = NumberToJson(row.loss);
  // Both codes: the job's own, and gpuctl's exit code for this run.
  json["job_exit_code"] = status.over && status.end.job_code >= 0
                              ? nlohmann::ordered_json(status.end.job_code)
                              : nlohmann::ordered_json();
  json["exit_code"] =
      status.over ? nlohmann::ordered_json(status.end.exit_code) : nlohmann::ordered_json();
  json["source"] = status.over ? nlohmann::ordered_json(SourceWord(status.end.source))
                               : nlohmann::ordered_json();
  json["reason"] = status.over && !status.end.reason.empty()
                       ? nlohmann::ordered_json(status.end.reason)
                       : nlohmann::ordered_json();
  json["resumed_from"] = row.resumed_from.empty() ? nlohmann::ordered_json()
                                                  : nlohmann::ordered_json(row.resumed_from);
  json["tags"] = row.tags;
  return json;
}

}  // namespace gpuctl
