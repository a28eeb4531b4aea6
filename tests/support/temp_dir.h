#ifndef GPUCTL_TESTS_SUPPORT_TEMP_DIR_H_
#define GPUCTL_TESTS_SUPPORT_TEMP_DIR_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/files/files.h"

namespace gpuctl {

// A private directory for one test, removed at the end.
class TempDir {
 public:
  TempDir() : path_(MakeTempDirectory("gpuctl-test-").value()) {}
  ~TempDir() { EXPECT_TRUE(RemoveTree(path_).ok()); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string Sub(absl::string_view name) const { return JoinPath(path_, name); }
  // Writes a file below the directory and makes its parent directories.
  std::string Write(absl::string_view name, absl::string_view contents, mode_t mode = 0644) const {
    const std::string path = Sub(name);
    EXPECT_TRUE(MakeDirectories(DirName(path), 0755).ok());
    EXPECT_TRUE(WriteFileAtomic(path, contents, mode).ok());
    return path;
  }
  std::vector<std::string> Names(absl::string_view name = "") const {
    return ListDirectory(name.empty() ? path_ : Sub(name)).value_or(std::vector<std::string>());
  }

 private:
  std::string path_;
};

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_TEMP_DIR_H_
