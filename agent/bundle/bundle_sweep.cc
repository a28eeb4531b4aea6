#include "agent/bundle/bundle_sweep.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/bundle/bundle.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kPinned = absl::Hours(24);
// The prefix of unfinished deliveries, from client/programs/bundle_delivery.cc.
constexpr char kPartial[] = ".partial-";
constexpr char kDoomed[] = ".partial-swept-";

// What all processes that can be ours run.
struct Running {
  std::set<std::string> dirs;  // of their programs
  std::vector<std::string> command_lines;

  // True for a directory of bin/ that a process runs from or names in its command line. Where
  // programs are emulated, the program of each process is the emulator, and only the command line
  // names ours. It has the directory's name of the process's start, also after a rename.
  bool Uses(const std::string& dir) const {
    const std::string part = absl::StrCat("/", BaseName(dir), "/");
    return dirs.count(dir) > 0 ||
           absl::c_any_of(command_lines, [&](absl::string_view command_line) {
             return absl::StrContains(command_line, part);
           });
  }
};

// Returns the beginning of a process's command line, with the name of its program. Returns "" for a
// process that ended, for a zombie, and for a thread of the kernel.
absl::StatusOr<std::string> ReadCommandLine(const std::string& process) {
  const std::string path = JoinPath(process, "cmdline");
  const UniqueFd fd(file_ops::Open(path, O_RDONLY));
  char words[8192];
  const ssize_t length = fd.valid() ? read(fd.get(), words, sizeof(words)) : -1;
  if (length >= 0) return std::string(words, static_cast<size_t>(length));
  if (errno == ENOENT || errno == ESRCH) return "";
  return ErrnoStatus(errno, absl::StrCat("read ", path));
}

// Returns the same. In the middle of exec a process has a program and no words yet; they come soon,
// by the kernel's time, whatever clock the sweep has.
absl::StatusOr<std::string> CommandLine(const std::string& process, bool has_program) {
  constexpr int kMostLooks = 100;
  for (int looks = 1;; ++looks) {
    ASSIGN_OR_RETURN(std::string words, ReadCommandLine(process));
    if (!words.empty() || !has_program || looks == kMostLooks) return words;
    Clock::Real().SleepFor(absl::Milliseconds(1));
  }
}

absl::StatusOr<Running> ListRunning() {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory("/proc"));
  Running running;
  for (const std::string& name : names) {
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    const std::string process = JoinPath("/proc", name);
    char program[PATH_MAX];
    // That of a shim that holds secrets cannot be read.
    const ssize_t length = readlink(JoinPath(process, "exe").c_str(), program, sizeof(program));
    if (length > 0) {
      running.dirs.insert(DirName(absl::string_view(program, static_cast<size_t>(length))));
    }
    ASSIGN_OR_RETURN(std::string command_line, CommandLine(process, length > 0));
    if (!command_line.empty()) running.command_lines.push_back(std::move(command_line));
  }
  // Our own process is always visible. Without it this is not a list of processes.
  if (running.dirs.empty()) return absl::UnavailableError("list processes: there are none");
  return running;
}

bool WasUsedLately(const std::string& path, Clock& clock) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return true;
  return clock.Now() - absl::FromTimeT(info.st_mtime) < kPinned;
}

bool IsDigest(const std::string& name) {
  return name.size() == 32 && name.find_first_not_of("0123456789abcdef") == name.npos;
}

}  // namespace

void NoteBundleUse(const std::string& bundle_dir) {
  // Only a sweep needs this time, so an error is ignored.
  (void)utimensat(AT_FDCWD, bundle_dir.c_str(), nullptr, 0);
}

absl::StatusOr<std::vector<std::string>> SweepBundles(const RootPaths& paths, Clock& clock) {
  std::vector<std::string> removed;
  char resolved[PATH_MAX];
  if (realpath(paths.bin.c_str(), resolved) == nullptr) return removed;
  const std::string bin = resolved;
  const absl::StatusOr<UniqueFd> lock = TryLock(JoinPath(bin, kBundleLock));
  // Somebody is adopting a bundle; a later sweep will do the work.
  if (absl::IsUnavailable(lock.status())) return removed;
  RETURN_IF_ERROR(lock.status());
  const std::string current = CurrentBundle(paths);
  // Without it the newest bundle is unknown.
  if (current.empty()) return removed;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(bin));
  std::string before;
  for (const std::string& name : names) {
    const std::string path = JoinPath(bin, name);
    if (!IsDigest(name) || path == current) continue;
    if (before.empty() || IsNewerBundle(path, before)) before = path;
  }
  ASSIGN_OR_RETURN(const Running running, ListRunning());
  for (const std::string& name : names) {
    const std::string path = JoinPath(bin, name);
    const bool partial = absl::StartsWith(name, kPartial);
    if ((!IsDigest(name) && !partial) || path == current || path == before || running.Uses(path) ||
        WasUsedLately(path, clock)) {
      continue;
    }
    // Rename it first. Nothing more can start from it, and a second look finds processes started
    // since the first.
    const std::string doomed = partial ? path : JoinPath(bin, absl::StrCat(kDoomed, RandomHex(6)));
    if (!partial && file_ops::Rename(path, doomed) != 0) {
      return ErrnoStatus(errno, absl::StrCat("sweep bundles: rename ", path));
    }
    const absl::StatusOr<Running> now = ListRunning();
    if (!now.ok() || now->Uses(doomed) || now->Uses(path)) {
      if (!partial) (void)file_ops::Rename(doomed, path);
      continue;
    }
    RETURN_IF_ERROR(RemoveTree(doomed));
    removed.push_back(name);
  }
  return removed;
}

}  // namespace gpuctl
