#include "agent/shim/attempt.h"

#include <sys/resource.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/base/fifo.h"
#include "agent/base/gpu_grant.h"
#include "agent/base/guard_start.h"
#include "agent/base/held_root.h"
#include "agent/base/job_cgroup.h"
#include "agent/base/nvidia_smi.h"
#include "agent/base/platform.h"
#include "agent/base/processes.h"
#include "agent/base/say.h"
#include "agent/envs/env_store.h"
#include "agent/ranks/launcher.h"
#include "agent/shim/secret_block.h"
#include "agent/shim/setup.h"
#include "agent/shim/supervisor.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/job/checkpoint.h"
#include "common/job/job_layout.h"
#include "common/process/process.h"
#include "common/release/release_route.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kLockPatience = absl::Seconds(2);
constexpr absl::Duration kLockInterval = absl::Milliseconds(10);
constexpr absl::Duration kSweepPatience = absl::Seconds(30);
constexpr int kFifoBytes = 1 << 20;

// Takes the lock and retries for a while: a probe holds it for an instant, an ending shim a little
// longer.
absl::StatusOr<UniqueFd> LockPatiently(const std::string& path, Clock& clock) {
  const absl::Duration end = clock.SinceBoot() + kLockPatience;
  while (true) {
    absl::StatusOr<UniqueFd> lock = TryLock(path);
    if (lock.ok() || !absl::IsUnavailable(lock.status()) || clock.SinceBoot() >= end) return lock;
    clock.SleepFor(kLockInterval);
  }
}

// Returns from which checkpoint an attempt after the first goes on; "" where gpuctl does not know.
std::string GoesOnFrom(const gpuctl::v1::JobSpec& spec, int attempt, const JobPaths& paths,
                       const Environment& environment) {
  if (attempt == 1) return "";
  const auto from = environment.find("GPUCTL_RESUME_FROM");
  if (from != environment.end()) {
    return absl::StrCat("goes on from checkpoint ", BaseName(from->second));
  }
  const absl::StatusOr<std::vector<CheckpointDir>> left = ListCheckpoints(paths.checkpoints);
  if (!spec.has_gang() || !left.ok() || left->empty()) return "";
  return "begins anew: no checkpoint is whole on all machines";
}

absl::StatusOr<AttemptFiles> OpenFiles(const JobPaths& paths, const gpuctl::v1::JobSpec& spec,
                                       Journal journal) {
  for (const std::string& directory : {paths.work, paths.checkpoints}) {
    RETURN_IF_ERROR(MakeDirectories(directory, 0755));
  }
  ASSIGN_OR_RETURN(StreamWriter output, StreamWriter::Open(paths.output, OutputShape(spec)));
  ASSIGN_OR_RETURN(StreamWriter metrics, StreamWriter::Open(paths.metrics, PlainShape()));
  RETURN_IF_ERROR(metrics.TerminateLine());
  ASSIGN_OR_RETURN(UniqueFd metrics_fifo, OpenFifo(paths.metrics_fifo));
  ASSIGN_OR_RETURN(UniqueFd control_fifo, OpenFifo(paths.control));
  GrowPipe(metrics_fifo.get(), kFifoBytes);
  return AttemptFiles{std::move(journal),      std::move(output),       std::move(metrics),
                      std::move(metrics_fifo), std::move(control_fifo), paths.stop};
}

std::string ResumeFrom(const JobPaths& paths) {
  const absl::StatusOr<CheckpointDir> newest = NewestVerifiedCheckpoint(paths.checkpoints);
  if (newest.ok()) return newest->path;
  if (!absl::IsNotFound(newest.status())) Say(newest.status().message());
  return "";
}

// Forbids core files of the shim, which holds secrets for a moment. Returns the old limit, which
// the child gets back.
rlimit ForbidOwnCore() {
  rlimit old{};
  getrlimit(RLIMIT_CORE, &old);
  rlimit none = old;
  none.rlim_cur = 0;
  setrlimit(RLIMIT_CORE, &none);
  return old;
}

// Looks after the guard. Returns the end of the job when its allocation has no holder any more:
// first a stop, and at the next look a kill.
std::optional<ControlCommand> TendHolder(const RootPaths& root, HolderWatch& holder, bool& told) {
  if (!holder.held()) TendGuard(root, DirName(SelfPath("")));
  if (!holder.IsHolderGone()) return std::nullopt;
  const bool again = std::exchange(told, true);
  return ControlCommand{again ? ControlCommand::Type::kStopNow : ControlCommand::Type::kStop,
                        kAllocationEndsReason};
}

// Returns the GPUs that the attempt gets; nothing when it sees all.
absl::StatusOr<std::optional<std::vector<std::string>>> GpusOf(const JobPaths& paths,
                                                               const gpuctl::v1::JobSpec& spec,
                                                               int attempt) {
  if (!spec.has_gpus()) return std::nullopt;
  if (spec.gpus() == 0) return std::vector<std::string>();
  ASSIGN_OR_RETURN(GpuGrant grant, ReadGpuGrant(paths));
  if (grant.attempt != attempt || grant.gpus.size() != static_cast<size_t>(spec.gpus())) {
    return absl::FailedPreconditionError("the server gave it no GPUs");
  }
  return std::move(grant.gpus);
}

// Returns what the job's child executes: the command, or the launcher of several processes.
// `fd_at`: see ChildOptions::launcher_fd_at.
std::vector<std::string> ProgramOf(const gpuctl::v1::JobSpec& spec, size_t& fd_at) {
  std::vector<std::string> argv;
  if (spec.processes() != 0) {
    LauncherOptions launcher;
    launcher.processes = spec.processes();
    launcher.grace = GraceOf(spec);
    launcher.nvidia_smi = FindNvidiaSmi();
    argv = LauncherArguments(launcher, fd_at);
  }
  argv.insert(argv.end(), spec.argv().begin(), spec.argv().end());
  return argv;
}

absl::Status Supervise(const JobPaths& paths, const gpuctl::v1::JobSpec& spec, int attempt,
                       AttemptFiles files, const UniqueFd& lock, SecretBlock& secrets,
                       const rlimit& core_limit, bool adopts_orphans, Clock& clock) {
  const RootPaths root(DirName(DirName(paths.dir)));
  HolderWatch holder(root, clock);
  bool told = false;
  ChildOptions options;
  options.argv = ProgramOf(spec, options.launcher_fd_at);
  options.environment =
      JobEnvironment(BaseEnvironment(root), spec, attempt, paths, ResumeFrom(paths), files.gpus);
  files.goes_on = GoesOnFrom(spec, attempt, paths, options.environment);
  options.secrets = &secrets;
  options.work_dir = paths.work;
  options.lock_fd = lock.get();
  options.core_limit = core_limit;
  options.oom_score = ShieldFromOom();
  SetupOptions setup{spec, paths, attempt, options.environment, &secrets};
  UniqueFd environment_in_use;
  if (!spec.setup().empty()) {
    options.prepare = [&setup](int news, int go) { return RunSetup(setup, news, go); };
    files.use_environment = [&](const std::string& name) {
      absl::StatusOr<UniqueFd> used = UseEnv(EnvPaths(root, BaseName(name)));
      if (used.ok()) environment_in_use = *std::move(used);
    };
  }
  RETURN_IF_ERROR(Supervisor::CatchSignals());
  ASSIGN_OR_RETURN(Child child, Child::Hold(std::move(options)));
  secrets.Wipe();
  EnterJobCgroup(paths, spec.job_id(), child.pid());
  Supervisor supervisor(spec, attempt, std::move(files), std::move(child), adopts_orphans, clock);
  const absl::Status started = supervisor.Start();
  if (started.ok()) supervisor.Run([&] { return TendHolder(root, holder, told); });
  RemoveJobCgroup(paths, spec.job_id());
  return started;
}

int Fail(const absl::Status& status, ShimExit code) {
  Say(status.message());
  return code;
}

}  // namespace

absl::Status CheckAttempt(const Lifecycle& past, int attempt) {
  const LifecycleEvent* last = LastStateEvent(past);
  const bool wanted = last == nullptr
                          ? attempt == 1
                          : last->type == LifecycleEvent::Type::kRetry && last->attempt == attempt;
  if (wanted) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("start attempt ", attempt, ": lifecycle does not ask for it"));
}

int RunAttempt(const std::string& job_dir, int attempt, int secrets_fd, Clock& clock) {
  const rlimit core_limit = ForbidOwnCore();
  absl::StatusOr<SecretBlock> secrets = SecretBlock::Read(secrets_fd);
  if (!secrets.ok()) return Fail(secrets.status(), kShimNoSecrets);
  const JobPaths paths(job_dir);
  const absl::StatusOr<UniqueFd> lock = LockPatiently(paths.lock, clock);
  if (!lock.ok()) {
    return Fail(lock.status(),
                absl::IsUnavailable(lock.status()) ? kShimLockHeld : kShimNotStarted);
  }
  const absl::StatusOr<StoredSpec> stored = ReadStoredSpec(paths);
  if (!stored.ok()) return Fail(stored.status(), kShimNotStarted);
  absl::StatusOr<Journal> journal = Journal::Open(paths.lifecycle);
  if (!journal.ok()) return Fail(journal.status(), kShimNotStarted);
  if (absl::Status status = CheckAttempt(journal->past(), attempt); !status.ok()) {
    return Fail(status, kShimRefused);
  }
  if (PathExists(paths.stop)) {
    return Fail(absl::CancelledError("it was told to stop before it began"), kShimRefused);
  }
  if (!journal->reserved()) Say("no room could be reserved for lifecycle lines");
  const bool adopts_orphans = BecomeSubreaper();
  if (attempt > 1) {
    if (absl::Status status = SweepJob(paths, stored->spec.job_id(), kSweepPatience, clock);
        !status.ok()) {
      return Fail(status, kShimNotStarted);
    }
  }
  // Under the lock: the server takes a grant back only while it has the lock itself.
  absl::StatusOr<std::optional<std::vector<std::string>>> gpus =
      GpusOf(paths, stored->spec, attempt);
  if (!gpus.ok()) return Fail(gpus.status(), kShimNotStarted);
  absl::StatusOr<AttemptFiles> files = OpenFiles(paths, stored->spec, *std::move(journal));
  if (!files.ok()) return Fail(files.status(), kShimNotStarted);
  files->gpus = *std::move(gpus);
  const absl::Status status = Supervise(paths, stored->spec, attempt, *std::move(files), *lock,
                                        *secrets, core_limit, adopts_orphans, clock);
  return status.ok() ? kShimDone : Fail(status, kShimNotStarted);
}

}  // namespace gpuctl
