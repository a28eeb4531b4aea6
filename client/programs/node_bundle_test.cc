#include "client/programs/node_bundle.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "client/base/exit_codes.h"
#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/node_programs_dir.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class NodeBundleTest : public ::testing::Test {
 protected:
  // Writes a release's folder into `name`, with files that are `time_s` old.
  PlatformPrograms Release(const std::string& name, int64_t time_s) {
    const std::string folder = dir_.Sub(name);
    WriteNodePrograms(JoinPath(folder, "linux-aarch64"), kArm);
    dir_.Write(name + "/roots.pem", "roots");
    WriteNodeManifest(folder, {kArm}, 1790000000);
    for (const char* program : kNodeProgramNames) {
      const timespec times[2] = {{time_s, 0}, {time_s, 0}};
      const std::string path = JoinPath(JoinPath(folder, "linux-aarch64"), program);
      EXPECT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    }
    NodeProgramPlaces places;
    places.given = folder;
    return *NodePrograms::FindIn(places).For(kArm);
  }
  std::string cache() const { return dir_.Sub("hashes"); }

  TempDir dir_;
};

TEST_F(NodeBundleTest, TwoClientsOfOneReleaseMakeOneBundle) {
  const auto first = DescribeBundle(Release("one", 1800000000), cache());
  const auto second = DescribeBundle(Release("two", 1810000000), cache());
  ASSERT_OK(first);
  ASSERT_OK(second);
  EXPECT_EQ(first->digest, second->digest);
  EXPECT_EQ(first->version, 1790000000);
  EXPECT_EQ(second->version, 1790000000);
  EXPECT_EQ(first->platform, kArm);
}

TEST_F(NodeBundleTest, WithoutAManifestTheTimeOfTheFilesCounts) {
  PlatformPrograms own = Release("own", 1800000000);
  own.manifest.reset();
  EXPECT_EQ(DescribeBundle(own, cache()).value().version, 1800000000);
}

TEST_F(NodeBundleTest, FilesThatAreNotTheManifestsAreOnesOwnUnlessTheyWereFetched) {
  PlatformPrograms changed = Release("changed", 1700000000);
  ASSERT_OK(WriteFileAtomic(changed.shim, ProgramText(kArm, "another build")));
  ASSERT_EQ(chmod(changed.shim.c_str(), 0755), 0);
  const auto own = DescribeBundle(changed, cache());
  ASSERT_OK(own);
  EXPECT_GT(own->version, 1790000000);
  const auto differs =
      AllOf(HasSubstr("linux-aarch64 in " + changed.dir + " is not what this gpuctl was made with"),
            HasSubstr("gpuctl-shim: sha256 "));
  EXPECT_THAT(CheckPrograms(changed), StatusIs(absl::StatusCode::kFailedPrecondition, differs));
  changed.fetched = true;
  const auto refused = DescribeBundle(changed, cache());
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kFailedPrecondition, differs));
  EXPECT_THAT(HintOf(refused.status()), HasSubstr("gpuctl node fetch linux-aarch64"));
}

TEST_F(NodeBundleTest, AFetchedCudaCheckIsCompared) {
  PlatformPrograms programs = Release("cuda", 1800000000);
  EXPECT_EQ(CudaCheckOf(programs).value(), programs.cuda_check);
  EXPECT_OK(CheckPrograms(programs));
  ASSERT_OK(WriteFileAtomic(programs.cuda_check, ProgramText(kArm, "another build")));
  EXPECT_EQ(CudaCheckOf(programs).value(), programs.cuda_check);
  programs.fetched = true;
  EXPECT_THAT(CudaCheckOf(programs),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("gpuctl-cuda-check")));
  programs.cuda_check.clear();
  EXPECT_EQ(CudaCheckOf(programs).value(), "");
}

}  // namespace
}  // namespace gpuctl
