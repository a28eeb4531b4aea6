// A job controlled by a test, which also says where it waits.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/files/files.h"
#include "common/files/sha256.h"
#include "common/job/checkpoint.h"

namespace {

constexpr char kHelp[] = R"(usage: fake_job [FLAGS]
A job for tests. It prints "step K/N" for each step and writes {"step":K,"loss":L} to the FIFO
$GPUCTL_METRICS where that is set.

  --steps N            steps, default 1
  --exit C             exit code at the end, default 0
  --crash-at S         abort() instead of doing step S
  --spam BYTES         first print this many bytes: lines of 64 bytes, "spam <offset>" padded by '.'
  --spam-step BYTES    the same in each step
  --ignore-sigterm     SIGTERM does nothing
  --on-term FILE       on SIGTERM write the last step's number to FILE (below $GPUCTL_CHECKPOINT_DIR
                       when relative) by temporary file and rename, then exit 143
  --checkpoint-every K publish a valid checkpoint step-<8 digits> below $GPUCTL_CHECKPOINT_DIR after
                       every K-th step
  --resume             begin after the step of the checkpoint $GPUCTL_RESUME_FROM, if that is set, and
                       print "resumed from S"
  --fork               leave a child behind that waits for a signal; prints "child PID"
  --daemon             the same in a session of its own, its parent gone, its descriptors closed
  --stderr             print every second step to stderr
  --pids               print "pid PID" first
  --once FILE          lock FILE, say "DOUBLE" in it when another fake_job holds it, and append "run"
  --barrier POINT=FIFO wait at POINT, which is one of: start, step:K (before step K), checkpoint:K
                       (inside the one after step K, half of it written), end, term (in the SIGTERM
                       handler of --on-term). May be repeated

A barrier opens FIFO for reading and reads to its end. Opening a FIFO waits for the other side, so a
test whose open for writing returns knows that the job has arrived; closing it lets the job go on.
)";

struct Flags {
  int64_t steps = 1;
  int exit_code = 0;
  int64_t crash_at = -1;
  int64_t spam = 0;
  int64_t spam_step = 0;
  int64_t checkpoint_every = 0;
  bool ignore_sigterm = false;
  bool resume = false;
  bool fork_child = false;
  bool daemon = false;
  bool use_stderr = false;
  bool pids = false;
  std::string on_term;
  std::string once;
  std::map<std::string, std::string> barriers;
};

// The state of the SIGTERM handler.
std::string* term_target = nullptr;
std::string* term_temporary = nullptr;
std::string* term_barrier = nullptr;
volatile sig_atomic_t last_step = 0;

void WaitAt(const std::string& fifo) {
  int fd = -1;
  do {
    fd = open(fifo.c_str(), O_RDONLY | O_CLOEXEC);
  } while (fd < 0 && errno == EINTR);
  char buffer[64];
  ssize_t got = 0;
  do {
    got = read(fd, buffer, sizeof(buffer));
  } while (got > 0 || (got < 0 && errno == EINTR));
  close(fd);
}

void Barrier(const Flags& flags, const std::string& point) {
  const auto fifo = flags.barriers.find(point);
  if (fifo != flags.barriers.end()) WaitAt(fifo->second);
}

void PrintAll(int fd, absl::string_view data) {
  while (!data.empty()) {
    const ssize_t written = write(fd, data.data(), data.size());
    if (written < 0 && errno != EINTR) _exit(74);
    if (written > 0) data.remove_prefix(static_cast<size_t>(written));
  }
}

void OnTerm(int) {
  if (!term_barrier->empty()) WaitAt(*term_barrier);
  const int fd = open(term_temporary->c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  PrintAll(fd, absl::StrCat(static_cast<int>(last_step)));
  close(fd);
  rename(term_temporary->c_str(), term_target->c_str());
  _exit(143);
}

void Spam(int64_t bytes) {
  std::string block;
  for (int64_t offset = 0; offset < bytes; offset += 64) {
    std::string line = absl::StrCat("spam ", offset, " ");
    line.resize(63, '.');
    absl::StrAppend(&block, line, "\n");
    if (block.size() >= (1 << 18) || offset + 64 >= bytes) {
      const int64_t surplus = std::max<int64_t>(0, offset + 64 - bytes);
      PrintAll(STDOUT_FILENO,
               absl::string_view(block).substr(0, block.size() - static_cast<size_t>(surplus)));
      block.clear();
    }
  }
}

void LeaveChildBehind(bool daemon) {
  int ready[2];
  if (pipe(ready) != 0) _exit(71);
  const pid_t pid = fork();
  if (pid == 0) {
    if (daemon) {
      setsid();
      if (fork() != 0) _exit(0);
    }
    const pid_t self = getpid();
    PrintAll(ready[1], {reinterpret_cast<const char*>(&self), sizeof(self)});
    if (daemon) {
      for (int fd = 0; fd < 64; ++fd) close(fd);
    }
    while (true) pause();
  }
  pid_t left = 0;
  if (read(ready[0], &left, sizeof(left)) != sizeof(left)) _exit(71);
  PrintAll(STDOUT_FILENO, absl::StrCat("child ", left, "\n"));
}

std::string CheckpointRoot() {
  const char* dir = getenv("GPUCTL_CHECKPOINT_DIR");
  return dir == nullptr ? "." : dir;
}

void PublishCheckpoint(const Flags& flags, int64_t step) {
  const std::string name = absl::StrFormat("step-%08d", step);
  const std::string temporary = gpuctl::JoinPath(CheckpointRoot(), absl::StrCat(".tmp-", name));
  const std::string state = absl::StrCat("state after step ", step, "\n");
  const std::string manifest = absl::StrCat(
      "{\"format\":1,\"step\":", step, ",\"files\":[{\"path\":\"state\",\"size\":", state.size(),
      ",\"sha256\":\"", gpuctl::Sha256HexOf(state), "\"}]}");
  const std::string target = gpuctl::JoinPath(CheckpointRoot(), name);
  gpuctl::RemoveTree(temporary).IgnoreError();
  absl::Status status = gpuctl::MakeDirectories(temporary, 0755);
  status.Update(gpuctl::WriteFileAtomic(gpuctl::JoinPath(temporary, "state"), state));
  Barrier(flags, absl::StrCat("checkpoint:", step));
  status.Update(gpuctl::WriteFileAtomic(gpuctl::JoinPath(temporary, "manifest.json"), manifest));
  if (!status.ok() || (rename(temporary.c_str(), target.c_str()) != 0 && errno != ENOTEMPTY)) {
    PrintAll(STDERR_FILENO, absl::StrCat("checkpoint: ", status.ToString(), "\n"));
    _exit(73);
  }
}

int64_t ResumeStep() {
  const char* path = getenv("GPUCTL_RESUME_FROM");
  if (path == nullptr) return 0;
  const auto json = gpuctl::ReadFileToString(gpuctl::JoinPath(path, "manifest.json"));
  const auto manifest = json.ok() ? gpuctl::ParseCheckpointManifest(*json)
                                  : absl::StatusOr<gpuctl::CheckpointManifest>(json.status());
  if (!manifest.ok()) _exit(72);
  PrintAll(STDOUT_FILENO, absl::StrCat("resumed from ", manifest->step, "\n"));
  return manifest->step;
}

bool ParseFlags(int argc, char** argv, Flags& flags) {
  const std::map<absl::string_view, bool*> switches = {{"--ignore-sigterm", &flags.ignore_sigterm},
                                                       {"--resume", &flags.resume},
                                                       {"--fork", &flags.fork_child},
                                                       {"--daemon", &flags.daemon},
                                                       {"--stderr", &flags.use_stderr},
                                                       {"--pids", &flags.pids}};
  const std::map<absl::string_view, int64_t*> numbers = {
      {"--steps", &flags.steps},
      {"--crash-at", &flags.crash_at},
      {"--spam", &flags.spam},
      {"--spam-step", &flags.spam_step},
      {"--checkpoint-every", &flags.checkpoint_every}};
  for (int i = 1; i < argc; ++i) {
    const absl::string_view flag = argv[i];
    if (const auto found = switches.find(flag); found != switches.end()) {
      *found->second = true;
      continue;
    }
    if (++i == argc) return false;
    const absl::string_view value = argv[i];
    if (const auto found = numbers.find(flag); found != numbers.end()) {
      if (!absl::SimpleAtoi(value, found->second)) return false;
    } else if (flag == "--exit") {
      if (!absl::SimpleAtoi(value, &flags.exit_code)) return false;
    } else if (flag == "--on-term") {
      flags.on_term = std::string(value);
    } else if (flag == "--once") {
      flags.once = std::string(value);
    } else if (flag == "--barrier") {
      const std::vector<std::string> parts = absl::StrSplit(value, absl::MaxSplits('=', 1));
      if (parts.size() != 2) return false;
      flags.barriers[parts[0]] = parts[1];
    } else {
      return false;
    }
  }
  return true;
}

// Claims the job with a lock that lasts as long as this process. Two processes of one job at once
// would be the worst error of supervision.
void ClaimOnce(const std::string& file) {
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) _exit(74);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) PrintAll(fd, "DOUBLE\n");
  PrintAll(fd, "run\n");
}

void HandleSignals(const Flags& flags) {
  if (flags.ignore_sigterm) signal(SIGTERM, SIG_IGN);
  if (flags.on_term.empty()) return;
  const std::string target =
      flags.on_term[0] == '/' ? flags.on_term : gpuctl::JoinPath(CheckpointRoot(), flags.on_term);
  term_target = new std::string(target);
  term_temporary = new std::string(target + ".tmp");
  const auto barrier = flags.barriers.find("term");
  term_barrier = new std::string(barrier == flags.barriers.end() ? "" : barrier->second);
  signal(SIGTERM, OnTerm);
}

void RunSteps(const Flags& flags) {
  const char* metrics_path = getenv("GPUCTL_METRICS");
  const int metrics = metrics_path == nullptr ? -1 : open(metrics_path, O_WRONLY | O_CLOEXEC);
  for (int64_t step = flags.resume ? ResumeStep() + 1 : 1; step <= flags.steps; ++step) {
    Barrier(flags, absl::StrCat("step:", step));
    if (step == flags.crash_at) abort();
    Spam(flags.spam_step);
    PrintAll(flags.use_stderr && step % 2 == 0 ? STDERR_FILENO : STDOUT_FILENO,
             absl::StrCat("step ", step, "/", flags.steps, "\n"));
    if (metrics >= 0) {
      PrintAll(metrics, absl::StrFormat("{\"step\":%d,\"loss\":%.6f}\n", step,
                                        1.0 / static_cast<double>(step)));
    }
    last_step = static_cast<sig_atomic_t>(step);
    if (flags.checkpoint_every > 0 && step % flags.checkpoint_every == 0)
      PublishCheckpoint(flags, step);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && absl::string_view(argv[1]) == "--help") {
    fputs(kHelp, stdout);
    return 0;
  }
  Flags flags;
  if (!ParseFlags(argc, argv, flags)) {
    fputs(kHelp, stderr);
    return 64;
  }
  HandleSignals(flags);
  if (!flags.once.empty()) ClaimOnce(flags.once);
  if (flags.pids) PrintAll(STDOUT_FILENO, absl::StrCat("pid ", getpid(), "\n"));
  Barrier(flags, "start");
  Spam(flags.spam);
  if (flags.fork_child) LeaveChildBehind(false);
  if (flags.daemon) LeaveChildBehind(true);
  RunSteps(flags);
  Barrier(flags, "end");
  return flags.exit_code;
}
