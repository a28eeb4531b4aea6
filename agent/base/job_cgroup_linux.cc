#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/base/job_cgroup.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

std::string GroupName(absl::string_view job_id) { return absl::StrCat("gpuctl-", job_id); }

bool WriteControl(const std::string& path, absl::string_view value) {
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return fd.valid() &&
         write(fd.get(), value.data(), value.size()) == static_cast<ssize_t>(value.size());
}

// Returns our own group's directory; empty when there is no cgroup v2.
std::string OwnGroup() {
  const auto membership = ReadFileToString("/proc/self/cgroup");
  const auto mounts = ReadFileToString("/proc/self/mountinfo");
  if (!membership.ok() || !mounts.ok()) return "";
  absl::string_view own;
  for (absl::string_view line : absl::StrSplit(*membership, '\n')) {
    if (absl::ConsumePrefix(&line, "0::")) own = line;
  }
  if (own.empty()) return "";
  for (const absl::string_view line : absl::StrSplit(*mounts, '\n')) {
    if (!absl::StrContains(line, " - cgroup2 ")) continue;
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
    constexpr size_t kRoot = 3, kMountPoint = 4;
    // A container without its own namespace sees a part of the hierarchy: the mount shows only the
    // groups below its root, and the membership path begins with that root.
    if (fields[kRoot] != "/" && !absl::ConsumePrefix(&own, fields[kRoot])) return "";
    return JoinPath(fields[kMountPoint], absl::StripPrefix(own, "/"));
  }
  return "";
}

// Returns the group that the note names; empty when there is none. The name must be the job's own,
// because the job can write the note, too.
std::string NotedGroup(const JobPaths& paths, absl::string_view job_id) {
  const auto note = ReadFileToString(paths.cgroup_note, 4096);
  if (!note.ok()) return "";
  std::string group(absl::StripAsciiWhitespace(*note));
  return BaseName(group) == GroupName(job_id) ? group : "";
}

}  // namespace

bool EnterJobCgroup(const JobPaths& paths, absl::string_view job_id, pid_t pid) {
  const std::string own = OwnGroup();
  if (own.empty() || access(own.c_str(), W_OK) != 0) return false;
  const std::string group = JoinPath(own, GroupName(job_id));
  // The note comes first, because an unnoted group could not be removed. It needs no sync: groups
  // do not outlive a boot.
  const UniqueFd note(
      open(paths.cgroup_note.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!note.valid() || !WriteAll(note.get(), group, paths.cgroup_note).ok()) return false;
  mkdir(group.c_str(), 0755);
  if (WriteControl(JoinPath(group, "cgroup.procs"), absl::StrCat(pid))) return true;
  RemoveJobCgroup(paths, job_id);
  return false;
}

void KillJobCgroup(const JobPaths& paths, absl::string_view job_id) {
  const std::string group = NotedGroup(paths, job_id);
  if (!group.empty()) WriteControl(JoinPath(group, "cgroup.kill"), "1");
}

bool JobCgroupHasProcesses(const JobPaths& paths, absl::string_view job_id) {
  const std::string group = NotedGroup(paths, job_id);
  if (group.empty()) return false;
  const auto events = ReadFileToString(JoinPath(group, "cgroup.events"));
  return events.ok() && absl::StrContains(*events, "populated 1");
}

void RemoveJobCgroup(const JobPaths& paths, absl::string_view job_id) {
  const std::string group = NotedGroup(paths, job_id);
  if (group.empty()) return;
  rmdir(group.c_str());
  unlink(paths.cgroup_note.c_str());
}

}  // namespace gpuctl
