#include "agent/limits/contact.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "nlohmann/json.hpp"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/files/files.h"
#include "common/process/process.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kLookEvery = absl::Seconds(1);
// A probe holds the lock for an instant; a contact lasts.
constexpr int kProbes = 4;
constexpr absl::Duration kBetweenProbes = absl::Milliseconds(10);

void StampContact(const RootPaths& paths, Clock& clock) {
  // Without limits nobody needs this record.
  if (!PathExists(paths.limits)) return;
  (void)WriteFileAtomic(paths.contact, StampToJson(StampNow(BootId(), clock)).dump() + "\n");
}

// Returns fields 4 and 22 of /proc/PID/stat: the parent and the start time. "" when there is no
// such process, or it has ended and waits to be reaped.
std::string Parentage(pid_t pid) {
  const absl::StatusOr<std::string> stat = ReadFileToString(absl::StrCat("/proc/", pid, "/stat"));
  if (!stat.ok()) return "";
  // The name is in parentheses and may contain anything.
  const size_t name_end = stat->rfind(')');
  if (name_end == std::string::npos) return "";
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(*stat).substr(name_end + 1), ' ', absl::SkipEmpty());
  if (fields.size() < 20 || fields[0] == "Z") return "";
  return absl::StrCat(fields[1], " ", fields[19]);
}

// True while a Contact holds the lock. The probe is exclusive, so another process that probes at
// the same time looks like a contact: it is gone a moment later.
bool IsContactHeld(const RootPaths& paths) {
  for (int probe = 1;; ++probe) {
    const UniqueFd fd(file_ops::Open(paths.contact_lock, O_RDWR));
    if (!fd.valid() || flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return false;
    if (probe == kProbes) return true;
    Clock::Real().SleepFor(kBetweenProbes);
  }
}

}  // namespace

Contact::Contact(const RootPaths& paths, Clock& clock) : paths_(paths), clock_(clock) {
  lock_.reset(file_ops::Open(paths_.contact_lock, O_RDWR | O_CREAT, 0600));
  // This waits only for a probe.
  if (lock_.valid()) flock(lock_.get(), LOCK_SH);
  Note();
}

Contact::~Contact() { Note(); }

void Contact::Note() {
  if (lock_.valid()) futimens(lock_.get(), nullptr);
  StampContact(paths_, clock_);
}

int64_t ContactMark(const RootPaths& paths) {
  struct stat info {};
  if (stat(paths.contact_lock.c_str(), &info) != 0) return 0;
#if defined(__APPLE__)
  const timespec& changed = info.st_mtimespec;
#else
  const timespec& changed = info.st_mtim;
#endif
  return static_cast<int64_t>(changed.tv_sec) * 1'000'000'000 + changed.tv_nsec;
}

bool InContact(const RootPaths& paths) {
  if (IsContactHeld(paths)) return true;
  const char* proc = getenv("GPUCTL_PROC");
  return HasTerminalSession(proc != nullptr && *proc != '\0' ? proc : "/proc");
}

bool HasTerminalSession(const std::string& proc_dir) {
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(proc_dir);
  if (!names.ok()) return false;
  for (const std::string& name : *names) {
    int64_t pid = 0;
    if (!absl::SimpleAtoi(name, &pid)) continue;
    const std::string title =
        ReadFileToString(JoinPath(proc_dir, name + "/cmdline"), 1 << 20).value_or("");
    // "sshd: root@pts/0"; "sshd-session: …" since OpenSSH 9.8.
    if ((absl::StartsWith(title, "sshd: ") || absl::StartsWith(title, "sshd-session: ")) &&
        absl::StrContains(title, "@pts/")) {
      return true;
    }
  }
  return false;
}

std::optional<TimeStamp> LastContact(const RootPaths& paths) {
  const absl::StatusOr<std::string> text = ReadFileToString(paths.contact, 4096);
  if (!text.ok()) return std::nullopt;
  return StampFromJson(nlohmann::json::parse(*text, nullptr, false));
}

int RunContact(const std::string& root, pid_t pid) {
  if (!IsDirectory(root)) return 1;
  const std::string begin = Parentage(pid);
  if (begin.empty()) return 1;
  Clock& clock = Clock::Real();
  const Contact contact(RootPaths(root), clock);
  while (Parentage(pid) == begin) clock.SleepFor(kLookEvery);
  return 0;
}

}  // namespace gpuctl
