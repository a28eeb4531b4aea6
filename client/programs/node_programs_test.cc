#include "client/programs/node_programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/node_programs_dir.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class NodeProgramsTest : public ::testing::Test {
 protected:
  NodeProgramsTest() {
    places_.given = dir_.Sub("given");
    places_.bin_dir = dir_.Sub("prefix/bin");
    places_.fetched = dir_.Sub("cache/node/0.1.0");
  }
  NodePrograms Find() const { return NodePrograms::FindIn(places_); }
  std::string DirOf(NodePlatform platform) const {
    const NodePrograms found = Find();
    const PlatformPrograms* const programs = found.For(platform);
    return programs == nullptr ? "" : programs->dir;
  }
  void Put(const std::string& dir, NodePlatform platform) {
    WriteNodePrograms(dir_.Sub(dir), platform);
  }

  TempDir dir_;
  NodeProgramPlaces places_;
};

TEST_F(NodeProgramsTest, TheFirstFolderServesAPlatform) {
  // From the last to the first.
  Put("prefix/libexec/gpuctl", kArm);
  EXPECT_EQ(DirOf(kArm), dir_.Sub("prefix/libexec/gpuctl"));
  Put("prefix/bin", kArm);
  EXPECT_EQ(DirOf(kArm), dir_.Sub("prefix/bin"));
  // What is fetched may be older than a build, not than a release.
  Put("cache/node/0.1.0/linux-aarch64", kArm);
  EXPECT_EQ(DirOf(kArm), dir_.Sub("prefix/bin"));
  places_.manifest.emplace();
  EXPECT_EQ(DirOf(kArm), dir_.Sub("cache/node/0.1.0/linux-aarch64"));
  EXPECT_TRUE(Find().For(kArm)->fetched);
  places_.manifest.reset();
  for (const char* folder : {"prefix/libexec/gpuctl/node", "prefix/bin/node", "given"}) {
    Put(absl::StrCat(folder, "/linux-aarch64"), kArm);
    EXPECT_EQ(DirOf(kArm), dir_.Sub(absl::StrCat(folder, "/linux-aarch64")));
    EXPECT_FALSE(Find().For(kArm)->fetched);
  }
  EXPECT_THAT(Find().platforms(), ElementsAre(kArm));
  EXPECT_THAT(Find().refused(), IsEmpty());
}

TEST_F(NodeProgramsTest, EachPlatformIsLookedForByItself) {
  Put("prefix/bin", kX86);
  Put("prefix/libexec/gpuctl/node/linux-aarch64", kArm);
  dir_.Write("prefix/libexec/gpuctl/node/roots.pem", "roots of the release");
  dir_.Write("prefix/bin/roots.pem", "roots of the build");
  const NodePrograms found = Find();
  EXPECT_THAT(found.platforms(), ElementsAre(kX86, kArm));
  EXPECT_EQ(found.For(kX86)->agent, dir_.Sub("prefix/bin/gpuctl-agent"));
  EXPECT_EQ(found.For(kX86)->roots, dir_.Sub("prefix/bin/roots.pem"));
  EXPECT_EQ(found.For(kArm)->shim,
            dir_.Sub("prefix/libexec/gpuctl/node/linux-aarch64/gpuctl-shim"));
  EXPECT_EQ(found.For(kArm)->cuda_check,
            dir_.Sub("prefix/libexec/gpuctl/node/linux-aarch64/gpuctl-cuda-check"));
  EXPECT_EQ(found.For(kArm)->roots, dir_.Sub("prefix/libexec/gpuctl/node/roots.pem"));
}

TEST_F(NodeProgramsTest, ProgramsOfAnotherMachineAreRefusedByName) {
  Put("given/linux-aarch64", kX86);
  EXPECT_EQ(Find().For(kArm), nullptr);
  EXPECT_EQ(Find().For(kX86), nullptr);
  const std::string agent = dir_.Sub("given/linux-aarch64/gpuctl-agent");
  EXPECT_THAT(Find().refused(), ElementsAre(absl::StrCat(agent,
                                                         " is a program for linux-x86_64, not for "
                                                         "linux-aarch64")));
  EXPECT_THAT(std::string(Find().Missing(kArm).message()), HasSubstr(agent));
  // A later folder serves the platform.
  Put("cache/node/0.1.0/linux-aarch64", kArm);
  EXPECT_EQ(DirOf(kArm), dir_.Sub("cache/node/0.1.0/linux-aarch64"));
  // One wrong program among right ones is enough.
  Put("given/linux-aarch64", kArm);
  EXPECT_EQ(DirOf(kArm), dir_.Sub("given/linux-aarch64"));
  WriteProgram(dir_.Sub("given/linux-aarch64/gpuctl-cuda-check"), kX86);
  EXPECT_EQ(DirOf(kArm), dir_.Sub("cache/node/0.1.0/linux-aarch64"));
}

TEST_F(NodeProgramsTest, AgentAndShimAreNeededAndTheRestIsNot) {
  Put("given/linux-x86_64", kX86);
  ASSERT_EQ(unlink(dir_.Sub("given/linux-x86_64/gpuctl-cuda-check").c_str()), 0);
  ASSERT_NE(Find().For(kX86), nullptr);
  EXPECT_EQ(Find().For(kX86)->cuda_check, "");
  EXPECT_EQ(Find().For(kX86)->roots, "");
  ASSERT_EQ(unlink(dir_.Sub("given/linux-x86_64/gpuctl-shim").c_str()), 0);
  EXPECT_EQ(Find().For(kX86), nullptr);
  dir_.Write("prefix/bin/gpuctl-agent", "#!/bin/sh\n", 0755);
  EXPECT_THAT(Find().refused(), ElementsAre(HasSubstr("prefix/bin/gpuctl-agent")));
}

TEST_F(NodeProgramsTest, TheManifestOfTheBuildGoesFirst) {
  Put("given/linux-aarch64", kArm);
  EXPECT_FALSE(Find().For(kArm)->manifest.has_value());
  WriteNodeManifest(dir_.Sub("given"), {kArm}, 1790000000);
  ASSERT_TRUE(Find().For(kArm)->manifest.has_value());
  EXPECT_EQ(Find().For(kArm)->manifest->commit_time_s, 1790000000);
  places_.manifest = Find().For(kArm)->manifest;
  places_.manifest->commit_time_s = 1800000000;
  EXPECT_EQ(Find().For(kArm)->manifest->commit_time_s, 1800000000);
  // A manifest without the platform says nothing about it.
  places_.manifest->platforms.clear();
  EXPECT_FALSE(Find().For(kArm)->manifest.has_value());
}

TEST_F(NodeProgramsTest, WhatIsMissingIsToldWithItsCommand) {
  unsetenv("GPUCTL_NODE_URL");
  absl::Status missing = Find().Missing(kArm);
  EXPECT_EQ(missing.message(), "it is Linux aarch64, and there are no node programs");
  Put("prefix/bin", kX86);
  missing = Find().Missing(kArm);
  EXPECT_EQ(missing.message(),
            "it is Linux aarch64, and there are node programs for linux-x86_64 only");
  EXPECT_EQ(ExitCodeOf(missing), kExitUsage);
  EXPECT_THAT(HintOf(missing), AllOf(HasSubstr("gpuctl node fetch linux-aarch64 --from ARCHIVE"),
                                     HasSubstr("deploy/node-programs linux-aarch64")));
  setenv("GPUCTL_NODE_URL", "https://example.com/", 1);
  EXPECT_EQ(HintOf(Find().Missing(kArm)), "gpuctl node fetch linux-aarch64");
  EXPECT_THAT(HintOf(Find().Missing(NodePlatform::kMacArm64)), HasSubstr("GPUCTL_NODE_DIR"));
  unsetenv("GPUCTL_NODE_URL");
}

}  // namespace
}  // namespace gpuctl
