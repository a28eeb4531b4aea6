// gpuctl-shim --ranks … runs a job's command several times, see agent/ranks/launcher.h.
//
// gpuctl-shim JOB_DIR ATTEMPT: owns one attempt of one job. Secrets come on stdin (secret_block.h),
// exit codes are in attempt.h, everything else is in the job's directory.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <string>

#include "absl/strings/numbers.h"
#include "agent/base/platform.h"
#include "agent/base/say.h"
#include "agent/ranks/launcher.h"
#include "agent/shim/attempt.h"
#include "common/base/clock.h"
#include "common/base/program_version.h"
#include "common/job/job_layout.h"

namespace {

constexpr off_t kMostStderrBytes = 1 << 20;

// Makes sure that descriptors 0, 1 and 2 exist, and closes inherited ones above.
void PrepareDescriptors() {
  int fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO) fd = open("/dev/null", O_RDWR);
  gpuctl::CloseFrom(STDERR_FILENO + 1);
}

// Sends our messages to the job's directory, whoever started us.
void RedirectStderr(const gpuctl::JobPaths& paths) {
  const int fd = open(paths.shim_stderr.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return;
  struct stat info {};
  if (fstat(fd, &info) == 0 && info.st_size > kMostStderrBytes && ftruncate(fd, 0) != 0) {
    gpuctl::Say("shim.stderr is large and cannot be cut");
  }
  dup2(fd, STDOUT_FILENO);
  dup2(fd, STDERR_FILENO);
  close(fd);
}

int Main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--version") {
    printf("%s\n", gpuctl::ProgramVersion("gpuctl-shim").c_str());
    return 0;
  }
  if (argc > 1 && std::string(argv[1]) == gpuctl::kLauncherWord) {
    return gpuctl::RunLauncher({argv + 2, argv + argc});
  }
  int attempt = 0;
  if (argc != 3 || !absl::SimpleAtoi(argv[2], &attempt) || attempt < 1) {
    fprintf(stderr, "usage: gpuctl-shim JOB_DIR ATTEMPT < SECRETS\n");
    return gpuctl::kShimUsage;
  }
  umask(077);
  PrepareDescriptors();
  gpuctl::ForbidDumps();
  char job_dir[PATH_MAX];
  if (realpath(argv[1], job_dir) == nullptr) {
    gpuctl::Say("the job directory does not exist");
    return gpuctl::kShimNotStarted;
  }
  RedirectStderr(gpuctl::JobPaths(job_dir));
  return gpuctl::RunAttempt(job_dir, attempt, STDIN_FILENO, gpuctl::Clock::Real());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Main(argc, argv);
  } catch (...) {
    gpuctl::Say("unexpected exception");
    return gpuctl::kShimBug;
  }
}
