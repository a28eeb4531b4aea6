#include "agent/restart/restart_kit.h"

#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/base/held_root.h"
#include "agent/hold/kept_layout.h"
#include "agent/hold/results_copy.h"
#include "agent/trees/take.h"
#include "common/base/ids.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/process/pipe.h"
#include "common/process/process.h"
#include "common/release/slurm_job.h"

namespace gpuctl {
namespace {

constexpr int64_t kMostLimits = 1 << 20;
constexpr size_t kMostAnswer = 4096;

// Runs a program. UNAVAILABLE with `what` when it fails.
absl::Status RunProgram(std::vector<std::string> argv, absl::string_view what) {
  SpawnOptions spawn;
  spawn.argv = std::move(argv);
  ASSIGN_OR_RETURN(const pid_t pid, Spawn(spawn));
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(what, ", status ", status));
}

// A client that hears nothing for 15 seconds takes the link for dead.
constexpr int kQuestionS = 10;
constexpr int kCommandS = 20;

// Runs one of Slurm's programs, for so many seconds at most. Returns what it printed, also when it
// failed: `code`.
absl::StatusOr<std::string> AskSlurm(const std::string& line, int within_s, int& code) {
  ASSIGN_OR_RETURN(FdPair out, MakePipe("ask Slurm"));
  SpawnOptions spawn;
  spawn.argv = {"/bin/sh", "-c",
                absl::StrCat("LC_ALL=C exec timeout -k 2 ", within_s, " ", line, " 2>&1")};
  spawn.stdout_fd = out.second.get();
  ASSIGN_OR_RETURN(const pid_t pid, Spawn(spawn));
  out.second.reset();
  std::string said(kMostAnswer, '\0');
  size_t size = 0;
  for (;;) {
    const ssize_t got = read(out.first.get(), said.data() + size, said.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    size += static_cast<size_t>(got);
  }
  said.resize(size);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return std::string(absl::StripAsciiWhitespace(said));
}

absl::Status RunScontrol(const std::string& job, bool again) {
  const std::string wish = absl::StrCat("Requeue=", again ? 1 : 0);
  return RunProgram(
      {"/bin/sh", "-c",
       absl::StrCat("LC_ALL=C exec timeout -k 2 20 scontrol update JobId=", job, " ", wish)},
      absl::StrCat("scontrol does not take ", wish));
}

// Copies the running time that a job was given since its start.
absl::Status KeepTimeLimit(const JobPaths& job, const JobPaths& copy) {
  const std::string limit = ReadFileToString(job.time_limit, kMostAnswer).value_or("");
  // Its directory there appears with its streams.
  if (limit.empty() || !IsDirectory(copy.dir) ||
      ReadFileToString(copy.time_limit, kMostAnswer).value_or("") == limit) {
    return absl::OkStatus();
  }
  return WriteFileAtomic(copy.time_limit, limit);
}

bool IsReplaced(const std::string& directory, const AllocationStart& own) {
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(directory);
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    const std::optional<AllocationStart> other = ParseAllocationStart(name);
    if (other.has_value() && other->job == own.job && other->restart > own.restart) return true;
  }
  return false;
}

}  // namespace

bool MayStartAgain(const gpuctl::v1::JobSpec& spec) {
  return WantsRestart(spec.retry(), 1) && spec.secret_names().empty() && !spec.has_gang();
}

bool MayStartAgain(const gpuctl::v1::JobSpec& spec, const Lifecycle& lifecycle) {
  if (!MayStartAgain(spec) || IsOver(lifecycle)) return false;
  const LifecycleEvent* last = LastStateEvent(lifecycle);
  // One that waits has been granted its next attempt already.
  const bool runs = last != nullptr && last->type == LifecycleEvent::Type::kStarted;
  return !runs || WantsRestart(spec.retry(), last->attempt);
}

bool MayGoOn(const RootPaths& copy, const gpuctl::v1::JobSpec& spec, const Lifecycle& lifecycle) {
  const std::optional<AllocationStart> start = ParseAllocationStart(BaseName(copy.root));
  const bool staged = start.has_value() && start->restart == kStaged;
  return staged ? LastStateEvent(lifecycle) == nullptr : MayStartAgain(spec, lifecycle);
}

absl::Status KeepPrograms(const std::string& bundle_dir, const RootPaths& again) {
  const std::string target = JoinPath(again.bin, BaseName(bundle_dir));
  if (!PathExists(target)) {
    const std::string partial = JoinPath(again.bin, absl::StrCat(".", RandomHex(8)));
    absl::Status copied = CopyDirectory(bundle_dir, partial);
    // The file system may forbid to run what lies there.
    if (copied.ok()) {
      copied = RunProgram({JoinPath(partial, "gpuctl-agent"), "api-level"},
                          absl::StrCat("nothing can be run in ", again.bin));
    }
    if (copied.ok() && rename(partial.c_str(), target.c_str()) != 0) {
      copied = ErrnoStatus(errno, absl::StrCat("rename ", partial));
    }
    if (!copied.ok()) {
      (void)RemoveTree(partial);
      return copied;
    }
  }
  char there[4096];
  const ssize_t length = readlink(again.bin_current.c_str(), there, sizeof(there));
  const std::string name = BaseName(bundle_dir);
  if (length > 0 && absl::string_view(there, static_cast<size_t>(length)) == name) {
    return absl::OkStatus();
  }
  const std::string link = JoinPath(again.bin, absl::StrCat(".", RandomHex(8)));
  if (symlink(name.c_str(), link.c_str()) != 0 ||
      rename(link.c_str(), again.bin_current.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("make ", again.bin_current));
  }
  return SyncDirectory(again.bin);
}

std::vector<std::string> JobsOfRoot(const RootPaths& paths) {
  std::vector<std::string> jobs;
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(paths.jobs);
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    if (IsValidId(name) && PathExists(paths.Job(name).spec)) jobs.push_back(name);
  }
  return jobs;
}

std::vector<std::string> TreesOf(const gpuctl::v1::JobSpec& spec) {
  std::vector<std::string> digests;
  if (!spec.manifest_digest().empty()) digests.push_back(spec.manifest_digest());
  for (const gpuctl::v1::DataTree& data : spec.data()) digests.push_back(data.manifest_digest());
  return digests;
}

absl::StatusOr<std::string> StateInSlurm(const std::string& job) {
  int code = 0;
  ASSIGN_OR_RETURN(const std::string said,
                   AskSlurm(absl::StrCat("squeue -h -r -o %T -j ", job), kQuestionS, code));
  if (code == 0) return said;
  if (absl::StrContains(said, "Invalid job id")) return std::string();
  return absl::UnavailableError(
      absl::StrCat("Slurm does not say whether it has started job ", job, ": ", said));
}

namespace {

// Cancels a job that waits in the queue, and none that runs by now.
absl::Status CancelIfItWaits(const std::string& job) {
  int code = 0;
  if (!ParseSlurmJob(job)->is_task()) {
    return AskSlurm(absl::StrCat("scancel --state=PENDING ", job), kCommandS, code).status();
  }
  // With a state, scancel takes a task that still stands with others in one line of the queue for
  // all of them. One on hold does not begin, and has a line of its own.
  RETURN_IF_ERROR(AskSlurm(absl::StrCat("scontrol hold ", job), kCommandS, code).status());
  ASSIGN_OR_RETURN(const std::string state, StateInSlurm(job));
  const bool waits = state == "PENDING";
  const std::string verb = waits ? "scancel " : "scontrol release ";
  return AskSlurm(absl::StrCat(verb, job), kCommandS, code).status();
}

}  // namespace

absl::Status SettleInQueue(const RootPaths& copy, const std::string& directory) {
  const std::optional<AllocationStart> own = ParseAllocationStart(BaseName(copy.root));
  if (!own.has_value()) return absl::InvalidArgumentError("this is no allocation's copy");
  bool any = false;
  for (const std::string& job_id : JobsOfRoot(copy)) {
    const absl::StatusOr<StoredSpec> stored = ReadStoredSpec(copy.Job(job_id));
    const absl::StatusOr<Lifecycle> lifecycle = ReadLifecycle(copy.Job(job_id));
    // What cannot be read may go on.
    any =
        any || !stored.ok() || !lifecycle.ok() ||
        (MayGoOn(copy, stored->spec, *lifecycle) && !StoppedReason(directory, job_id).has_value());
  }
  if (!any) {
    RETURN_IF_ERROR(CancelIfItWaits(own->job));
  }
  ASSIGN_OR_RETURN(const std::string state, StateInSlurm(own->job));
  // One that still completes has not begun its next start.
  if (state.empty() || state == "PENDING" || state == "COMPLETING") return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("Slurm has just started job ", own->job, ": ", state));
}

RestartKit::RestartKit(std::string bundle_dir, TellSlurm tell)
    : bundle_dir_(std::move(bundle_dir)), tell_(tell ? std::move(tell) : RunScontrol) {}

absl::Status RestartKit::Keep(const RootPaths& from, const std::string& directory) {
  const std::optional<AllocationStart> own = ParseAllocationStart(BaseName(from.root));
  if (!own.has_value()) return absl::OkStatus();
  if (IsReplaced(directory, *own)) {
    return absl::AbortedError("Slurm has started the allocation again elsewhere");
  }
  const RootPaths again(JoinPath(directory, kKeptAgain));
  const RootPaths copy(JoinPath(directory, BaseName(from.root)));
  std::set<std::string> who;
  absl::Status failed;
  for (const std::string& job_id : JobsOfRoot(from)) {
    const absl::StatusOr<StoredSpec> stored = ReadStoredSpec(from.Job(job_id));
    const absl::StatusOr<Lifecycle> lifecycle = ReadLifecycle(from.Job(job_id));
    if (!stored.ok() || !lifecycle.ok() || !MayStartAgain(stored->spec, *lifecycle)) continue;
    absl::Status kept;
    for (const std::string& folder : {again.bin, again.trees}) {
      kept.Update(MakeDirectories(folder));
    }
    if (kept.ok()) kept = KeepPrograms(bundle_dir_, again);
    for (const std::string& digest : TreesOf(stored->spec)) {
      if (kept.ok()) kept = BringTree(from.trees, again.trees, digest);
    }
    if (kept.ok()) kept = KeepTimeLimit(from.Job(job_id), copy.Job(job_id));
    if (kept.ok()) who.insert(job_id);
    failed.Update(kept);
  }
  const std::string limits = ReadFileToString(from.limits, kMostLimits).value_or("");
  if (!who.empty() && !limits.empty() && limits != limits_) {
    RETURN_IF_ERROR(WriteFileAtomic(copy.limits, limits));
    limits_ = limits;
  }
  failed.Update(Tell(from, own->job, who));
  return failed;
}

absl::Status RestartKit::Tell(const RootPaths& from, const std::string& job,
                              const std::set<std::string>& who) {
  if (told_.has_value() && *told_ == who) return absl::OkStatus();
  // In its first start neither this keeper nor an earlier one has told Slurm anything.
  const bool first = ParseAllocationStart(BaseName(from.root))->restart == 0;
  if (!told_.has_value() && who.empty() && first && !IsWhoGoesOnNoted(from)) {
    return absl::OkStatus();
  }
  const bool was_on = told_.has_value() && !told_->empty();
  // A job must not wait for a start that Slurm does not make.
  if (who.empty()) RETURN_IF_ERROR(NoteWhoGoesOn(from, who));
  if (!was_on || who.empty()) RETURN_IF_ERROR(tell_(job, !who.empty()));
  RETURN_IF_ERROR(NoteWhoGoesOn(from, who));
  if (was_on != !who.empty()) {
    Log(LogLevel::kInfo, who.empty() ? "hold: Slurm does not start the allocation again"
                                     : "hold: Slurm may start the allocation again");
  }
  told_ = who;
  return absl::OkStatus();
}

}  // namespace gpuctl
