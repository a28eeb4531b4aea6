#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/paths.h"
#include "client/self_test/parts.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/copy_file.h"
#include "common/files/exchange_paths.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/process/pipe.h"
#include "common/process/process.h"

namespace gpuctl {
namespace {

constexpr char kElsewhere[] =
    "put the state directory on a local disk: export GPUCTL_STATE_DIR=/a/local/directory";
// The socket of the agent has this name, and both ends use it without its directory: then the limit
// of a socket's path (104 bytes on macOS, 108 on Linux) counts for nothing.
constexpr char kSocket[] = "agent.sock";

// Passes three bytes from one descriptor to the other.
absl::Status Pass(const UniqueFd& from, const UniqueFd& to, absl::string_view what) {
  RETURN_IF_ERROR(WriteAll(from.get(), "abc", what));
  char got[4] = {};
  size_t count = 0;
  while (count < 3) {
    const ssize_t more = read(to.get(), got + count, 3 - count);
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) break;
    count += static_cast<size_t>(more);
  }
  if (count == 3 && std::memcmp(got, "abc", 3) == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(what, ": what was written was not read"));
}

absl::Status UseSockets(const std::string& dir) {
  if (chdir(dir.c_str()) != 0) return ErrnoStatus(errno, absl::StrCat("enter ", dir));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, kSocket);
  const auto* const any = reinterpret_cast<const sockaddr*>(&address);
  const UniqueFd listener(socket(AF_UNIX, SOCK_STREAM, 0)), caller(socket(AF_UNIX, SOCK_STREAM, 0));
  if (!listener.valid() || !caller.valid()) return ErrnoStatus(errno, "make a unix socket");
  if (bind(listener.get(), any, sizeof(address)) != 0 || listen(listener.get(), 1) != 0) {
    return ErrnoStatus(errno, absl::StrCat("listen on ", JoinPath(dir, kSocket)));
  }
  if (connect(caller.get(), any, sizeof(address)) != 0) {
    return ErrnoStatus(errno, absl::StrCat("connect to ", JoinPath(dir, kSocket)));
  }
  const UniqueFd called(accept(listener.get(), nullptr, nullptr));
  if (!called.valid()) return ErrnoStatus(errno, "accept a connection");
  RETURN_IF_ERROR(Pass(caller, called, "a unix socket"));
  RETURN_IF_ERROR(Pass(called, caller, "a unix socket"));
  ASSIGN_OR_RETURN(const FdPair pair, MakeSocketPair("make a socket pair"));
  RETURN_IF_ERROR(Pass(pair.first, pair.second, "a socket pair"));
  return Pass(pair.second, pair.first, "a socket pair");
}

// Uses a FIFO as the guard and the shim do: the reader holds it open for writing, too.
absl::Status UseFifo(const std::string& dir) {
  const std::string path = JoinPath(dir, "control");
  if (mkfifo(path.c_str(), 0600) != 0) return ErrnoStatus(errno, absl::StrCat("make ", path));
  if (UniqueFd(file_ops::Open(path, O_WRONLY | O_NONBLOCK)).valid() || errno != ENXIO) {
    return absl::DataLossError("a FIFO that nobody reads can be opened to write");
  }
  const UniqueFd reader(file_ops::Open(path, O_RDWR | O_NONBLOCK));
  if (!reader.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path));
  const UniqueFd writer(file_ops::Open(path, O_WRONLY | O_NONBLOCK));
  if (!writer.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path, " to write"));
  return Pass(writer, reader, "a FIFO");
}

absl::Status WantHeld(const std::string& path, bool held) {
  ASSIGN_OR_RETURN(const bool locked, IsLocked(path));
  const absl::StatusOr<UniqueFd> taken = TryLock(path);
  if (locked != held || absl::IsUnavailable(taken.status()) != held) {
    return absl::DataLossError(held ? "a lock that another process holds can be taken"
                                    : "the lock of a process that was killed is still held");
  }
  return held ? absl::OkStatus() : taken.status();
}

// Two processes and a lock: held, then free because its holder was killed.
absl::Status UseLock(const std::string& dir) {
  const std::string path = JoinPath(dir, "held");
  ASSIGN_OR_RETURN(FdPair said, MakePipe("make a pipe"));
  ASSIGN_OR_RETURN(const FdPair life, MakePipe("make a pipe"));
  SpawnOptions options;
  options.argv = {ExecutablePath(), "doctor",          "--self-test-part",
                  "hold-lock",      "--self-test-dir", dir};
  options.stdin_fd = life.first.get();
  options.stdout_fd = said.second.get();
  ASSIGN_OR_RETURN(const pid_t pid, Spawn(options));
  said.second.reset();
  char first = 0;
  const absl::Status held = read(said.first.get(), &first, 1) == 1
                                ? WantHeld(path, true)
                                : absl::DataLossError("another process could take no lock");
  kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  RETURN_IF_ERROR(held);
  return WantHeld(path, false);
}

// Replaces files and directories as gpuctl does, each in one step.
absl::Status ReplaceThings(const std::string& dir) {
  const std::string file = JoinPath(dir, "file"), other = JoinPath(dir, "other");
  for (const char* content : {"before", "after"}) {
    RETURN_IF_ERROR(WriteFileAtomic(file, content));
    ASSIGN_OR_RETURN(const std::string read_back, ReadFileToString(file));
    if (read_back != content) return absl::DataLossError("a file has not what was written");
  }
  if (link(file.c_str(), other.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("link ", other));
  }
  struct stat info = {};
  if (stat(file.c_str(), &info) != 0 || info.st_nlink != 2) {
    return absl::DataLossError("a hard link is not counted");
  }
  for (const char* name : {"old", "new"}) {
    RETURN_IF_ERROR(MakeDirectories(JoinPath(dir, name)));
    RETURN_IF_ERROR(WriteFileAtomic(JoinPath(dir, absl::StrCat(name, "/which")), name));
  }
  RETURN_IF_ERROR(ReplaceDirectory(JoinPath(dir, "new"), JoinPath(dir, "old")));
  ASSIGN_OR_RETURN(const std::string which, ReadFileToString(JoinPath(dir, "old/which")));
  if (which != "new") return absl::DataLossError("a directory was not replaced");
  return SyncDirectory(dir);
}

// Returns how this file system exchanges names, and tells them apart.
std::string AboutNames(const std::string& dir) {
  const bool exchanges = ExchangePaths(JoinPath(dir, "file"), JoinPath(dir, "other")).ok();
  return absl::StrCat(exchanges ? "two names are exchanged in one step"
                                : "two names cannot be exchanged in one step here, so a directory "
                                  "is replaced in two",
                      PathExists(JoinPath(dir, "FILE"))
                          ? "; names that differ only in case are one file here"
                          : "");
}

// Copies a file as gpuctl does. Returns how, for people.
absl::StatusOr<std::string> CopySomething(const std::string& dir) {
  const std::string from = JoinPath(dir, "from"), to = JoinPath(dir, "to");
  std::string content;
  for (int i = 0; i < 300; ++i) content += RandomHex(1000);
  RETURN_IF_ERROR(WriteFileAtomic(from, content));
  const UniqueFd source(file_ops::Open(from, O_RDONLY));
  const UniqueFd target(file_ops::Open(to, O_RDWR | O_CREAT | O_EXCL, 0600));
  if (!source.valid() || !target.valid()) return ErrnoStatus(errno, "open files to copy");
  ASSIGN_OR_RETURN(const int64_t copied, CopyFileContent(source.get(), target.get(), to));
  ASSIGN_OR_RETURN(const std::string arrived, ReadFileToString(to));
  if (arrived != content || copied != static_cast<int64_t>(content.size())) {
    return absl::DataLossError("a copy has not what the original has");
  }
  const UniqueFd clone(file_ops::Open(JoinPath(dir, "clone"), O_RDWR | O_CREAT | O_EXCL, 0600));
  if (!clone.valid() || !CloneFile(source.get(), clone.get())) {
    return std::string("files are copied byte by byte; this file system shares no blocks");
  }
  ASSIGN_OR_RETURN(const std::string cloned, ReadFileToString(JoinPath(dir, "clone")));
  if (cloned != content) return absl::DataLossError("a clone has not what the original has");
  return std::string("copies share the blocks of the original (reflink)");
}

}  // namespace

int HoldLock(const TestPlace& place) {
  const absl::StatusOr<UniqueFd> lock = TryLock(JoinPath(place.dir, "held"));
  if (!lock.ok()) return kExitFailed;
  Console().PrintLine("held");
  char nothing = 0;
  while (read(STDIN_FILENO, &nothing, 1) < 0 && errno == EINTR) {
  }
  return kExitOk;
}

void TestFiles(const TestPlace& place, Reporter& report) {
  const absl::StatusOr<ClientPaths> paths = ClientPaths::FromEnvironment();
  if (!paths.ok()) {
    return report.Fail("state directory", paths.status().message(), "export HOME");
  }
  const std::string dir = place.InStateDir(paths->state_dir);
  if (const absl::Status made = MakeDirectories(dir); !made.ok()) {
    return report.Fail("state directory", absl::StrCat(paths->state_dir, ": ", made.message()),
                       "make it writable, or set GPUCTL_STATE_DIR");
  }
  const auto add = [&](const char* name, const absl::Status& status, const std::string& found) {
    status.ok() ? report.Ok(name, found) : report.Fail(name, status.message(), kElsewhere);
  };
  const absl::Status replaced = ReplaceThings(dir);
  add("durable files", replaced,
      absl::StrCat(paths->state_dir, ": files and directories are replaced whole, and synced; ",
                   replaced.ok() ? AboutNames(dir) : ""));
  const absl::StatusOr<std::string> copied = CopySomething(dir);
  add("copies", copied.status(), copied.value_or(""));
  add("locks", UseLock(dir), "a lock keeps another process out, and ends with its holder");
  add("FIFO", UseFifo(dir), "a line passed; without a reader there is an error and no wait");
  add("sockets", UseSockets(dir),
      absl::StrCat("a unix socket and a socket pair passed bytes; a socket's path may have ",
                   sizeof(sockaddr_un{}.sun_path) - 1,
                   " bytes here, which counts for nothing: gpuctl uses its name alone"));
}

}  // namespace gpuctl
