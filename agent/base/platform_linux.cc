#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "agent/base/platform.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr char kOomScoreFile[] = "/proc/self/oom_score_adj";
constexpr int kOomNever = -1000;
// The job's OOM score adjustment: far above an ordinary process, below one that asked to die first.
constexpr int kOomPreferred = 500;

bool WriteOomScore(int score) {
  const UniqueFd fd(open(kOomScoreFile, O_WRONLY | O_CLOEXEC));
  const std::string text = absl::StrCat(score);
  return fd.valid() && write(fd.get(), text.data(), text.size()) > 0;
}

}  // namespace

ssize_t SplicePipe(int pipe_fd, int file_fd, int64_t position, size_t max_bytes) {
  loff_t offset = position;
  ssize_t moved = 0;
  do {
    moved =
        splice(pipe_fd, nullptr, file_fd, &offset, max_bytes, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
  } while (moved < 0 && errno == EINTR);
  return moved;
}

void GrowPipe(int fd, int bytes) { fcntl(fd, F_SETPIPE_SZ, bytes); }

bool ReserveBlocks(int fd, int64_t from, int64_t bytes) {
  int result = 0;
  do {
    result = fallocate(fd, FALLOC_FL_KEEP_SIZE, from, bytes);
  } while (result < 0 && errno == EINTR);
  return result == 0;
}

bool BecomeSubreaper() { return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0; }

void ResignSubreaper() { prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0); }

void ForbidDumps() { prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); }

void AllowDumps() { prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); }

bool DieWithParent(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  return getppid() == parent;
}

int ShieldFromOom() {
  int old_score = 0;
  if (const auto text = ReadFileToString(kOomScoreFile); text.ok()) {
    if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(*text), &old_score)) old_score = 0;
  }
  if (WriteOomScore(kOomNever)) return old_score;
  return std::max(old_score, kOomPreferred);
}

void SetOomScore(int score) { WriteOomScore(score); }

std::string InitEnvironment() {
  const char* stand_in = getenv("GPUCTL_PID1_ENVIRON");
  auto block =
      ReadFileToString(stand_in != nullptr && *stand_in != '\0' ? stand_in : "/proc/1/environ");
  return block.ok() ? *std::move(block) : "";
}

void CloseFrom(int first) {
#if defined(SYS_close_range)
  if (syscall(SYS_close_range, static_cast<unsigned>(first), ~0U, 0U) == 0) return;
#endif
  const auto open_fds = ListDirectory("/proc/self/fd");
  int fd = 0;
  if (open_fds.ok()) {
    for (const std::string& name : *open_fds) {
      if (absl::SimpleAtoi(name, &fd) && fd >= first) close(fd);
    }
    return;
  }
  for (fd = first; fd < 1024; ++fd) close(fd);
}

}  // namespace gpuctl
