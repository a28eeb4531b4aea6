#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "agent/base/node_root.h"

namespace gpuctl {
namespace {

std::string Mounts(const std::string& type) {
  return absl::StrCat("22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n",
                      "41 22 0:52 / /home/a\\040b rw shared:2 master:1 - ", type,
                      " server:/x rw\n");
}

TEST(NetworkFileSystemTest, IsKnownByTheTypeOfItsMount) {
  for (const char* type : {"nfs4", "gpfs", "beegfs", "wekafs", "panfs", "fuse.sshfs", "fuse",
                           "fuse.gcsfuse", "lustre", "ceph"}) {
    EXPECT_EQ(NetworkTypeInMounts(Mounts(type), 0, 52), type);
    EXPECT_EQ(NetworkTypeInMounts(Mounts(type), 8, 1), "");
    EXPECT_EQ(NetworkTypeInMounts(Mounts(type), 0, 5), std::nullopt);
  }
  for (const char* type :
       {"ext4", "xfs", "btrfs", "zfs", "overlay", "tmpfs", "fuseblk", "fuse.fuse-overlayfs", ""}) {
    EXPECT_EQ(NetworkTypeInMounts(Mounts(type), 0, 52), "") << type;
  }
  EXPECT_EQ(NetworkTypeInMounts("", 0, 52), std::nullopt);
  EXPECT_EQ(NetworkTypeInMounts("1 2 0:52\n", 0, 52), "");
}

TEST(NetworkFileSystemTest, IsNotALocalOne) {
  EXPECT_EQ(NetworkFileSystem("/proc"), "");
  EXPECT_EQ(NetworkFileSystem("/nothing/there"), "");
}

}  // namespace
}  // namespace gpuctl
