#include "trainer/base/group_memory.h"

#include <gtest/gtest.h>

#include <string>

#include "trainer/base/files.h"
#include "trainer/tests/temp_dir.h"

namespace gpuctl::trainer {
namespace {

constexpr char kUnlimited[] = "9223372036854771712";

// Directories as the kernel shows them.
class GroupMemoryTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) {
    const std::string path = directory_.path() + "/" + name;
    MakeDirectories(path.substr(0, path.rfind('/')));
    WriteFileDurably(path, text);
  }
  // `path` is what the process is told of its group, `root` where the mount begins.
  void Second(const std::string& path, const std::string& root = "/") {
    Write("proc/cgroup", "0::" + path + "\n");
    Write("proc/mountinfo", "30 1 8:1 / / rw - ext4 /dev/sda rw\n41 31 0:38 " + root + " " +
                                Mount() + " rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  }
  void First(const std::string& path, const std::string& root = "/") {
    Write("proc/cgroup", "5:devices:/other\n4:hugetlb,memory:" + path + "\n0::/\n");
    Write("proc/mountinfo", "35 31 0:32 " + root + " " + Mount() +
                                " rw,relatime - cgroup cgroup rw,memory\n36 31 0:33 / " + Mount() +
                                "-devices rw - cgroup cgroup rw,devices\n");
  }
  void Group(const std::string& name, const std::string& limit, int64_t used,
             const std::string& stat = "") {
    Write("group" + name + "/memory.max", limit + "\n");
    Write("group" + name + "/memory.current", std::to_string(used) + "\n");
    Write("group" + name + "/memory.stat", stat);
  }
  void OldGroup(const std::string& name, const std::string& limit, int64_t used,
                const std::string& stat = "") {
    Write("group" + name + "/memory.limit_in_bytes", limit + "\n");
    Write("group" + name + "/memory.usage_in_bytes", std::to_string(used) + "\n");
    Write("group" + name + "/memory.stat", stat);
  }
  std::string Mount() const { return directory_.path() + "/group"; }
  std::optional<int64_t> Available() const {
    return AvailableInGroups(directory_.path() + "/proc");
  }

  TempDir directory_;
};

TEST_F(GroupMemoryTest, TheTightestGroupAboveTheProcessCounts) {
  Second("/user.slice/job");
  Group("/user.slice/job", "max", 10);
  Group("/user.slice", "1000", 300);
  EXPECT_EQ(Available(), 700) << "the root of all has no such files";
  Group("/user.slice/job", "500", 10);
  EXPECT_EQ(Available(), 490);
  Group("/user.slice", "200", 300);
  EXPECT_EQ(Available(), 0);
  // Not a neighbour's.
  Group("/user.slice/job2", "1", 1);
  Group("/user", "1", 1);
  EXPECT_EQ(Available(), 0);
  Group("/user.slice", "max", 300);
  EXPECT_EQ(Available(), 490);
}

TEST_F(GroupMemoryTest, AContainerSeesItsOwnGroupAtTheMount) {
  Second("/");
  EXPECT_EQ(Available(), std::nullopt);
  Group("", "1000", 400);
  EXPECT_EQ(Available(), 600);
  // Mounted from outside of the namespace, or shown from the group on.
  Second("/", "/../..");
  EXPECT_EQ(Available(), 600);
  Second("/docker/1a", "/docker/1a");
  EXPECT_EQ(Available(), 600);
  Second("/docker/1a/child", "/docker/1a");
  Group("/child", "100", 0);
  EXPECT_EQ(Available(), 100);
  Second("/docker/1abc", "/docker/1a");
  EXPECT_EQ(Available(), 600);
}

TEST_F(GroupMemoryTest, TheFirstVersionHasOtherNames) {
  First("/slurm/uid_1/job_2");
  OldGroup("/slurm/uid_1/job_2", "1000", 900,
           "cache 700\ntotal_inactive_file 500\ntotal_active_file 200\ntotal_mapped_file 50\n"
           "total_dirty 30\ntotal_writeback 20\ninactive_file 7\n");
  OldGroup("/slurm", kUnlimited, 900);
  OldGroup("", kUnlimited, 5000);
  EXPECT_EQ(Available(), 100 + 600);
}

TEST_F(GroupMemoryTest, FilesThatCanBeDroppedAreLeft) {
  Second("/");
  Group("", "1000", 990, "anon 90\nfile 900\ninactive_file 600\nactive_file 300\nfile_mapped 0\n");
  EXPECT_EQ(Available(), 910);
  // Programs run from them, or they must be written first.
  Group("", "1000", 990,
        "inactive_file 600\nactive_file 300\nfile_mapped 500\nfile_dirty 100\nfile_writeback 50\n");
  EXPECT_EQ(Available(), 10 + 250);
  Group("", "1000", 990, "inactive_file 10\nactive_file 0\nfile_mapped 500\n");
  EXPECT_EQ(Available(), 10);
}

TEST_F(GroupMemoryTest, WithoutGroupsThereIsNoLimit) {
  EXPECT_EQ(Available(), std::nullopt);
  Write("proc/cgroup", "no group\n::\n");
  Write("proc/mountinfo", "a b\n - cgroup2\n1 2 3:4 / /x rw - cgroup2\n");
  EXPECT_EQ(Available(), std::nullopt);
}

}  // namespace
}  // namespace gpuctl::trainer
