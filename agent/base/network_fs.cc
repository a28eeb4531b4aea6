#include <string>

#include "agent/base/node_root.h"

#include <sys/stat.h>

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/files/files.h"
#if defined(__linux__)
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#else
#include <sys/mount.h>
#include <sys/param.h>
#endif

namespace gpuctl {
namespace {

bool IsNetworkType(absl::string_view type) {
  if (type == "fuse.fuse-overlayfs") return false;  // the root of containers without privileges
  if (type == "fuse" || absl::StartsWith(type, "fuse.")) return true;
  for (const absl::string_view known :
       {"9p",        "afs",   "beegfs", "ceph", "cifs",  "coda",  "fhgfs", "gfs2",
        "glusterfs", "gpfs",  "lustre", "mmfs", "ncpfs", "nfs",   "nfs4",  "ocfs2",
        "orangefs",  "panfs", "pvfs2",  "smb3", "smbfs", "wekafs"}) {
    if (type == known) return true;
  }
  return false;
}

}  // namespace

std::optional<std::string> NetworkTypeInMounts(absl::string_view mountinfo, unsigned major,
                                               unsigned minor) {
  const std::string device = absl::StrCat(major, ":", minor);
  for (const absl::string_view line : absl::StrSplit(mountinfo, '\n')) {
    // 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
    const std::pair<absl::string_view, absl::string_view> halves =
        absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    const std::vector<absl::string_view> fields = absl::StrSplit(halves.first, ' ');
    if (fields.size() < 3 || fields[2] != device) continue;
    const absl::string_view type = halves.second.substr(0, halves.second.find(' '));
    return IsNetworkType(type) ? std::string(type) : "";
  }
  return std::nullopt;
}

std::string NetworkFileSystem(const std::string& path) {
  struct statfs info {};
  if (statfs(path.c_str(), &info) != 0) return "";
#if defined(__linux__)
  struct stat file {};
  const absl::StatusOr<std::string> mounts = ReadFileToString("/proc/self/mountinfo");
  if (mounts.ok() && stat(path.c_str(), &file) == 0) {
    const std::optional<std::string> type =
        NetworkTypeInMounts(*mounts, major(file.st_dev), minor(file.st_dev));
    if (type.has_value()) return *type;
  }
  // Magic numbers of statfs(2), for mounts that are not visible here.
  switch (static_cast<unsigned>(info.f_type)) {
    case 0x6969:
      return "nfs";
    case 0xff534d42:
      return "cifs";
    case 0xfe534d42:
      return "smb2";
    case 0x517b:
      return "smb";
    case 0x00c36400:
      return "ceph";
    case 0x5346414f:
      return "afs";
    case 0x0bd00bd0:
      return "lustre";
    case 0x01021997:
      return "9p";
    case 0x47504653:
      return "gpfs";
    case 0x19830326:
      return "beegfs";
    case 0xaad7aaea:
      return "panfs";
    case 0x65735546:
      return "fuse";
    default:
      return "";
  }
#else
  return (info.f_flags & MNT_LOCAL) != 0 ? "" : info.f_fstypename;
#endif
}

}  // namespace gpuctl
