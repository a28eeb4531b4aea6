#include "agent/hold/keep_results.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "agent/base/node_root.h"
#include "agent/hold/kept_layout.h"
#include "agent/hold/results_copy.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/process/pipe.h"
#include "common/process/process.h"
#include "common/release/release_route.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kTokenWithin = absl::Seconds(30);
constexpr absl::Duration kLookForTokenEvery = absl::Milliseconds(250);
constexpr int kStreamsEveryMs = 200;
constexpr absl::Duration kSyncEvery = absl::Seconds(1);
constexpr absl::Duration kCheckpointsEvery = absl::Seconds(10);
constexpr absl::Duration kAlsoEvery = absl::Seconds(2);
constexpr absl::Duration kFilesTick = absl::Milliseconds(250);
constexpr absl::Duration kTellEvery = absl::Minutes(1);
constexpr absl::Duration kStartEvery = absl::Seconds(5);
constexpr absl::Duration kFinishWithin = absl::Minutes(1);

// True when the holder has said something, or is gone. Waits for so many milliseconds.
bool IsTold(int within_ms) {
  pollfd waited{STDIN_FILENO, POLLIN, 0};
  return poll(&waited, 1, within_ms) > 0;
}

std::string Variable(const char* name) {
  const char* value = getenv(name);
  return value != nullptr ? value : "";
}

// Logs errors, each kind of work at most once a minute.
class Complaints {
 public:
  explicit Complaints(Clock& clock) : clock_(clock) {}
  void Take(const absl::Status& status) {
    if (status.ok() || clock_.SinceBoot() < next_) return;
    next_ = clock_.SinceBoot() + kTellEvery;
    Log(LogLevel::kWarning, absl::StrCat("keep-results: ", status.message()));
  }

 private:
  Clock& clock_;
  absl::Duration next_ = -absl::InfiniteDuration();
};

// Copies checkpoints and files until `ending`, and then once more. An allocation for one run alone
// is released when all of that is copied.
void CopyFilesUntil(const std::atomic<bool>& ending, FilesCopy& files, const RootPaths& from,
                    Clock& clock) {
  const bool one_run = !Variable(kHoldOneRunVariable).empty();
  const std::string released = JoinPath(from.root, kReleasedFile);
  Complaints complaints(clock);
  absl::Duration next = -absl::InfiniteDuration();
  while (!ending) {
    if (files.IsDue() || clock.SinceBoot() >= next) {
      complaints.Take(files.Pass(/*last=*/false));
      next = clock.SinceBoot() + kCheckpointsEvery;
      const bool released_now = one_run && files.HasAll() && !PathExists(released);
      if (released_now) complaints.Take(WriteFileAtomic(released, ""));
    }
    clock.SleepFor(kFilesTick);
  }
}

// Does `also` until `ending`, or until the allocation was started again elsewhere: `replaced`.
void AlsoUntil(const std::atomic<bool>& ending, std::atomic<bool>& replaced,
               const std::function<absl::Status()>& also, Clock& clock) {
  Complaints complaints(clock);
  absl::Duration next = -absl::InfiniteDuration();
  while (!ending && !replaced) {
    if (clock.SinceBoot() >= next) {
      const absl::Status done = also();
      replaced = absl::IsAborted(done);
      complaints.Take(done);
      next = clock.SinceBoot() + kAlsoEvery;
    }
    clock.SleepFor(kFilesTick);
  }
}

// Begins the copy of a later start with the files of the one before. Until that is done, and the
// streams are there too, the earlier copy counts. Returns true when nothing is to be waited for.
absl::StatusOr<bool> BeginCopy(const std::string& directory, const RootPaths& to) {
  if (PathExists(to.node_id)) return true;
  const std::optional<AllocationStart> own = ParseAllocationStart(BaseName(to.root));
  if (!own.has_value()) return true;
  const absl::StatusOr<std::string> earlier = EarlierCopy(directory, *own);
  if (absl::IsNotFound(earlier.status())) return true;
  RETURN_IF_ERROR(earlier.status());
  RETURN_IF_ERROR(RemoveTree(to.root));
  RETURN_IF_ERROR(TakeFilesOf(RootPaths(*earlier), to));
  return false;
}

// ABORTED when the allocation was started again elsewhere.
absl::Status Keep(const RootPaths& from, const std::string& directory, const KeepAlso& also,
                  Clock& clock) {
  const RootPaths to(JoinPath(directory, BaseName(from.root)));
  ASSIGN_OR_RETURN(const bool counts, BeginCopy(directory, to));
  // Of an earlier keeper.
  (void)RemoveTree(JoinPath(to.root, kKeptTmp));
  RETURN_IF_ERROR(MakeDirectories(JoinPath(to.root, kKeptTmp)));
  for (const std::string& folder : {to.jobs, to.tombstones}) {
    RETURN_IF_ERROR(MakeDirectories(folder));
  }
  unlink(JoinPath(to.root, kKeptEndFile).c_str());
  ASSIGN_OR_RETURN(const std::string node_id, NodeId(from));
  StreamsCopy streams(from, to);
  if (!counts) RETURN_IF_ERROR(streams.Pass(/*sync=*/true));
  // From here on the copy takes the place of an earlier one.
  RETURN_IF_ERROR(WriteFileAtomic(to.node_id, absl::StrCat(node_id, "\n")));
  FilesCopy files(from, to, clock);
  std::atomic<bool> ending = false;
  std::atomic<bool> replaced = false;
  std::thread thread([&] { CopyFilesUntil(ending, files, from, clock); });
  std::thread beside([&] {
    AlsoUntil(
        ending, replaced, [&] { return also(from, directory); }, clock);
  });
  Complaints complaints(clock);
  absl::Duration next_sync = -absl::InfiniteDuration();
  while (!replaced && !IsTold(kStreamsEveryMs)) {
    const bool sync = clock.SinceBoot() >= next_sync;
    if (sync) next_sync = clock.SinceBoot() + kSyncEvery;
    complaints.Take(streams.Pass(sync));
  }
  ending = true;
  if (replaced) {
    thread.join();
    beside.join();
    return absl::AbortedError("Slurm has started the allocation again elsewhere");
  }
  char word = 0;
  const bool last = read(STDIN_FILENO, &word, 1) == 1 && word == kKeepNoMore;
  const absl::Status streamed = streams.Pass(/*sync=*/true);
  thread.join();
  beside.join();
  const absl::Status filed = files.Pass(last);
  for (const absl::Status& status : {streamed, filed}) {
    if (!status.ok()) Log(LogLevel::kError, absl::StrCat("keep-results: ", status.message()));
  }
  if (!last) return absl::OkStatus();
  const bool whole = streamed.ok() && filed.ok();
  return WriteFileAtomic(JoinPath(to.root, kKeptEndFile),
                         absl::StrCat("{\"whole\":", whole ? "true" : "false", "}\n"));
}

}  // namespace

absl::Status FindToken(const std::string& directory, const std::string& token,
                       absl::Duration patience, const std::function<bool()>& stop, Clock& clock) {
  const absl::Duration end = clock.SinceBoot() + patience;
  for (;;) {
    // Makes a network file system look at the directory again.
    (void)ListDirectory(directory);
    const absl::StatusOr<std::string> found =
        ReadFileToString(JoinPath(directory, kResultsTokenFile), 4096);
    if (found.ok() && !token.empty() && absl::StripAsciiWhitespace(*found) == token) {
      return absl::OkStatus();
    }
    if (clock.SinceBoot() >= end || stop()) {
      return absl::NotFoundError(
          absl::StrCat(directory, " is not the one of the login node: results are not kept there"));
    }
    clock.SleepFor(kLookForTokenEvery);
  }
}

int RunKeepResults(const std::string& root, const std::string& directory, const KeepAlso& also) {
  const RootPaths paths(root);
  LogToFile(paths.log);
  Clock& clock = Clock::Real();
  const absl::StatusOr<UniqueFd> lock = TryLock(JoinPath(root, "results.lock"));
  if (!lock.ok()) return 1;
  for (const int number : {SIGPIPE, SIGTERM, SIGINT, SIGHUP}) signal(number, SIG_IGN);
  absl::Status status = FindToken(
      directory, Variable(kResultsTokenVariable), kTokenWithin, [] { return IsTold(0); }, clock);
  if (status.ok()) status = CheckOwnDirectory(directory);
  if (absl::IsNotFound(status) || absl::IsPermissionDenied(status)) {
    Log(LogLevel::kInfo, absl::StrCat("keep-results: ", status.message()));
    return kExitNotShared;
  }
  if (status.ok()) {
    NoteSeenByNode(directory);
    status = Keep(paths, directory, also, clock);
  }
  if (status.ok()) return 0;
  Log(LogLevel::kError, absl::StrCat("keep-results: ", status.message()));
  return absl::IsAborted(status) ? kExitReplaced : 1;
}

ResultsKeeperProcess::ResultsKeeperProcess(const RootPaths& paths, Clock& clock)
    : paths_(paths), clock_(clock), directory_(Variable(kResultsVariable)) {}

void ResultsKeeperProcess::Tend(const std::string& program) {
  if (directory_.empty() || given_up_ || pid_ > 0 || clock_.SinceBoot() < next_start_) return;
  next_start_ = clock_.SinceBoot() + kStartEvery;
  UniqueFd log(file_ops::Open(paths_.log, O_WRONLY | O_CREAT | O_APPEND, 0600));
  SpawnOptions spawn;
  spawn.argv = {program, "keep-results", "--root", paths_.root, "--to", directory_};
  spawn.stderr_fd = log.get();
  spawn.new_session = true;
  absl::StatusOr<FdPair> pipe = MakePipe("make the keeper's pipe");
  if (!pipe.ok()) return;
  spawn.stdin_fd = pipe->first.get();
  const absl::StatusOr<pid_t> pid = Spawn(spawn);
  if (!pid.ok()) return;
  pid_ = *pid;
  control_ = std::move(pipe->second);
}

void ResultsKeeperProcess::Ended(pid_t pid, int status) {
  if (pid != pid_) return;
  pid_ = -1;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  replaced_ = replaced_ || code == kExitReplaced;
  given_up_ = code == kExitNotShared || replaced_;
}

void ResultsKeeperProcess::Leave() { control_.reset(); }

bool ResultsKeeperProcess::Finish() {
  if (pid_ <= 0) return true;
  const absl::Duration now = clock_.SinceBoot();
  if (asked_ == absl::InfiniteDuration()) {
    asked_ = now;
    (void)WriteAll(control_.get(), absl::string_view(&kKeepNoMore, 1), "to the keeper of results");
  }
  return now - asked_ >= kFinishWithin;
}

}  // namespace gpuctl
