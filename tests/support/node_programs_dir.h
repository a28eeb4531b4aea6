// Folders of programs for nodes: files with the headers of programs, and nothing that runs.
#ifndef GPUCTL_TESTS_SUPPORT_NODE_PROGRAMS_DIR_H_
#define GPUCTL_TESTS_SUPPORT_NODE_PROGRAMS_DIR_H_

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/programs/node_manifest.h"
#include "client/programs/node_platform.h"
#include "common/files/files.h"
#include "common/files/sha256.h"
#include "tests/support/matchers.h"

namespace gpuctl {

inline constexpr NodePlatform kX86 = NodePlatform::kLinuxX86_64;
inline constexpr NodePlatform kArm = NodePlatform::kLinuxAarch64;

// Returns the beginning of a program for `platform`, and `tail`.
inline std::string ProgramText(NodePlatform platform, const std::string& tail = "") {
  if (platform == NodePlatform::kMacArm64)
    return std::string("\xcf\xfa\xed\xfe\x0c\0\0\1", 8) + tail;
  std::string header = std::string("\177ELF\2\1\1", 7) + std::string(57, '\0');
  header[18] = platform == NodePlatform::kLinuxX86_64 ? '\x3e' : '\xb7';
  return header + tail;
}

inline void WriteProgram(const std::string& path, NodePlatform platform) {
  EXPECT_OK(MakeDirectories(DirName(path)));
  EXPECT_OK(WriteFileAtomic(path, ProgramText(platform, BaseName(path))));
  EXPECT_EQ(chmod(path.c_str(), 0755), 0);
}

// Writes the three programs of `platform` into `dir`.
inline void WriteNodePrograms(const std::string& dir, NodePlatform platform) {
  for (const char* name : kNodeProgramNames) WriteProgram(JoinPath(dir, name), platform);
}

// Writes `folder`/manifest.json for the programs in `folder`/<platform>.
inline void WriteNodeManifest(const std::string& folder, const std::vector<NodePlatform>& platforms,
                              int64_t commit_time_s) {
  nlohmann::json json = {{"version", "0.1.0"}, {"api_level", 2}, {"commit_time_s", commit_time_s}};
  for (const NodePlatform platform : platforms) {
    const std::string name(PlatformName(platform));
    nlohmann::json& entry = json["platforms"][name];
    entry["archive"] = "gpuctl-node-0.1.0-" + name + ".tar.zst";
    entry["sha256"] = std::string(64, '0');
    entry["size"] = 1;
    for (const char* program : kNodeProgramNames) {
      const std::string path = JoinPath(JoinPath(folder, name), program);
      entry["files"][program]["sha256"] = Sha256HexOfFile(path).value();
      entry["files"][program]["size"] = ReadFileToString(path).value().size();
    }
  }
  EXPECT_OK(WriteFileAtomic(JoinPath(folder, "manifest.json"), json.dump()));
}

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_NODE_PROGRAMS_DIR_H_
