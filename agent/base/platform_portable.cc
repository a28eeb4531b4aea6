#include <unistd.h>

#include <cerrno>

#include "agent/base/platform.h"

namespace gpuctl {

ssize_t SplicePipe(int, int, int64_t, size_t) {
  errno = ENOSYS;
  return -1;
}

void GrowPipe(int, int) {}
bool ReserveBlocks(int, int64_t, int64_t) { return false; }
bool BecomeSubreaper() { return false; }

void ResignSubreaper() {}
void ForbidDumps() {}
void AllowDumps() {}
bool DieWithParent(pid_t parent) { return getppid() == parent; }
int ShieldFromOom() { return 0; }
void SetOomScore(int) {}
std::string InitEnvironment() { return ""; }

void CloseFrom(int first) {
  for (int fd = first; fd < 1024; ++fd) close(fd);
}

}  // namespace gpuctl
