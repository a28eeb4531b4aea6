#include "common/process/process.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <mach-o/dyld.h>
#include <sys/sysctl.h>

#include <algorithm>
#include <cstring>
#endif

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "common/process/pipe.h"

extern char** environ;

namespace gpuctl {
namespace {

// The two attribute objects of posix_spawn, released together.
class SpawnSettings {
 public:
  SpawnSettings() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  // Gives the child `source` as its descriptor `target`. `source` < 0 means /dev/null or, in a bare
  // root without devices, a pipe whose other end is closed.
  void MapDescriptor(int source, int target) {
    if (source < 0) {
      const int flags = target == 0 ? O_RDONLY : O_WRONLY;
      nothing_[target].reset(file_ops::Open("/dev/null", flags));
      if (!nothing_[target].valid()) {
        absl::StatusOr<FdPair> pipe = MakePipe("start a program");
        if (pipe.ok()) nothing_[target] = std::move(target == 0 ? pipe->first : pipe->second);
      }
      source = nothing_[target].get();
    }
    // dup2 clears close-on-exec, also when source == target.
    posix_spawn_file_actions_adddup2(&actions_, source, target);
  }

  void SetSignalsAndSession(bool new_session) {
    sigset_t all;
    sigset_t none;
    sigfillset(&all);
    sigdelset(&all, SIGKILL);
    sigdelset(&all, SIGSTOP);
    sigemptyset(&none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    int flags = POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK;
    if (new_session) flags |= POSIX_SPAWN_SETSID;
    posix_spawnattr_setflags(&attributes_, static_cast<short>(flags));
  }

  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;

 private:
  UniqueFd nothing_[3];  // open until the child has started
};

}  // namespace

absl::StatusOr<pid_t> Spawn(const SpawnOptions& options) {
  SpawnSettings settings;
  settings.MapDescriptor(options.stdin_fd, 0);
  settings.MapDescriptor(options.stdout_fd, 1);
  settings.MapDescriptor(options.stderr_fd, 2);
  settings.SetSignalsAndSession(options.new_session);

  std::vector<char*> argv;
  for (const std::string& argument : options.argv) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  std::vector<char*> env;
  for (const std::string& entry : options.env) env.push_back(const_cast<char*>(entry.c_str()));
  for (char** entry = environ; options.own_env && entry != nullptr && *entry != nullptr; ++entry) {
    env.push_back(*entry);
  }
  env.push_back(nullptr);

  pid_t pid = 0;
  const int error = posix_spawn(&pid, argv[0], &settings.actions_, &settings.attributes_,
                                argv.data(), env.data());
  if (error != 0) return ErrnoStatus(error, absl::StrCat("start ", options.argv[0]));
  return pid;
}

#if defined(__APPLE__)
std::string BootId() {
  char id[64];
  size_t bytes = sizeof(id);
  if (sysctlbyname("kern.bootsessionuuid", id, &bytes, nullptr, 0) != 0) return "unknown";
  return std::string(id, strnlen(id, std::min(bytes, sizeof(id))));
}
#else
std::string BootId() {
  absl::StatusOr<std::string> id = ReadFileToString("/proc/sys/kernel/random/boot_id", 4096);
  if (!id.ok()) return "unknown";
  return std::string(absl::StripAsciiWhitespace(*id));
}
#endif

std::string SelfPath(const char* argv0) {
#if defined(__linux__)
  char linked[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", linked, sizeof(linked));
  if (size > 0) return std::string(linked, static_cast<size_t>(size));
#elif defined(__APPLE__)
  char loaded[PATH_MAX];
  uint32_t size = sizeof(loaded);
  char real[PATH_MAX];
  if (_NSGetExecutablePath(loaded, &size) == 0 && realpath(loaded, real) != nullptr) return real;
#endif
  char resolved[PATH_MAX];
  return realpath(argv0, resolved) != nullptr ? resolved : argv0;
}

}  // namespace gpuctl
