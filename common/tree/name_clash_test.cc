#include "common/tree/name_clash.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "common/base/unique_fd.h"
#include "common/files/sha256.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;

Manifest Of(const std::vector<std::string>& paths) {
  Manifest manifest;
  for (const std::string& path : paths) {
    FileEntry entry;
    entry.set_path(path);
    entry.set_kind(FileEntry::KIND_FILE);
    entry.set_sha256(Sha256Of(""));
    manifest.Append(entry);
  }
  return manifest;
}

TEST(NameClash, NamesBothSides) {
  EXPECT_THAT(CheckNameClashes(Of({"dir/README", "dir/Readme.md", "dir/readme"})),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       ::testing::AllOf(::testing::HasSubstr("dir/README"),
                                        ::testing::HasSubstr("dir/readme "))));
}

TEST(NameClash, OtherNamesAreFine) {
  EXPECT_THAT(CheckNameClashes(Of({"A/x", "B/x", "a", "b", "b1"})), IsOk());
  EXPECT_THAT(CheckNameClashes(Manifest()), IsOk());
}

TEST(NameClash, TheProbeLeavesNothing) {
  TempDir dir;
  const UniqueFd fd(open(dir.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
#if defined(__linux__)
  EXPECT_FALSE(FoldsCase(fd.get()));
#else
  (void)FoldsCase(fd.get());
#endif
  EXPECT_TRUE(dir.Names().empty());
}

}  // namespace
}  // namespace gpuctl
