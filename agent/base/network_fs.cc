#include <string>

#include "agent/base/node_root.h"

#if defined(__linux__)
#include <sys/vfs.h>
#else
#include <sys/mount.h>
#include <sys/param.h>
#endif

namespace gpuctl {

std::string NetworkFileSystem(const std::string& path) {
  struct statfs info {};
  if (statfs(path.c_str(), &info) != 0) return "";
#if defined(__linux__)
  // Magic numbers of statfs(2).
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
    default:
      return "";
  }
#else
  return (info.f_flags & MNT_LOCAL) != 0 ? "" : info.f_fstypename;
#endif
}

}  // namespace gpuctl
