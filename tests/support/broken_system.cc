// A system that does not keep its word, for LD_PRELOAD: $GPUCTL_TEST_BROKEN names the calls, with
// commas between them.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

bool IsBroken(const char* call) {
  const char* broken = getenv("GPUCTL_TEST_BROKEN");
  return broken != nullptr && strstr(broken, call) != nullptr;
}

int Refuse() {
  errno = EPERM;
  return -1;
}

template <typename Function>
Function Real(const char* call) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, call));
}

}  // namespace

extern "C" {

// Gives everybody the lock.
int flock(int fd, int how) noexcept {
  if (IsBroken("flock")) return 0;
  return Real<int (*)(int, int)>("flock")(fd, how);
}

int mkfifo(const char* path, mode_t mode) noexcept {
  if (IsBroken("mkfifo")) return Refuse();
  return Real<int (*)(const char*, mode_t)>("mkfifo")(path, mode);
}

int bind(int fd, const sockaddr* address, socklen_t size) noexcept {
  if (IsBroken("bind")) return Refuse();
  return Real<int (*)(int, const sockaddr*, socklen_t)>("bind")(fd, address, size);
}

int link(const char* from, const char* to) noexcept {
  if (IsBroken("link")) return Refuse();
  return Real<int (*)(const char*, const char*)>("link")(from, to);
}

// Says that it copied.
ssize_t copy_file_range(int from, off64_t* from_at, int to, off64_t* to_at, size_t size,
                        unsigned flags) {
  if (IsBroken("copy_file_range"))
    return ftruncate(to, static_cast<off_t>(size)) == 0 ? static_cast<ssize_t>(size) : -1;
  return Real<ssize_t (*)(int, off64_t*, int, off64_t*, size_t, unsigned)>("copy_file_range")(
      from, from_at, to, to_at, size, flags);
}

int unlinkat(int dir, const char* path, int flags) noexcept {
  if (IsBroken("rmdir") && flags == AT_REMOVEDIR) return Refuse();
  return Real<int (*)(int, const char*, int)>("unlinkat")(dir, path, flags);
}

}  // extern "C"
