#include "agent/bundle/bundle.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

class BundleTest : public ::testing::Test {
 protected:
  BundleTest() : paths_(dir_.path()) {}

  // Makes a bundle as delivery does; a level of 0 is not written.
  std::string Deliver(const std::string& name, int64_t version, int32_t level) {
    const std::string bundle = JoinPath(paths_.bin, name);
    EXPECT_OK(MakeDirectories(bundle));
    EXPECT_OK(WriteFileAtomic(JoinPath(bundle, "version"), absl::StrCat(version, "\n")));
    if (level > 0) {
      EXPECT_OK(WriteFileAtomic(JoinPath(bundle, "api_level"), absl::StrCat(level, "\n")));
    }
    return bundle;
  }

  bool Adopt(const std::string& bundle) { return AdoptBundle(paths_, bundle).value(); }

  TempDir dir_;
  RootPaths paths_;
};

TEST_F(BundleTest, WhatWasBuiltLaterDisplacesWhatSpeaksTheSame) {
  const std::string first = Deliver("first", 100, 2);
  const std::string later = Deliver("later", 101, 2);
  const std::string same_time = Deliver("same", 101, 2);
  EXPECT_TRUE(Adopt(first));
  EXPECT_FALSE(Adopt(first));
  EXPECT_TRUE(Adopt(later));
  EXPECT_FALSE(Adopt(first));
  EXPECT_FALSE(Adopt(same_time));
  EXPECT_EQ(CurrentBundle(paths_), later);
}

TEST_F(BundleTest, AHigherLevelDisplacesALaterBuild) {
  const std::string later = Deliver("later", 200, 2);
  const std::string higher = Deliver("higher", 100, 3);
  EXPECT_TRUE(Adopt(later));
  EXPECT_TRUE(Adopt(higher));
  EXPECT_FALSE(Adopt(later));
  EXPECT_EQ(CurrentBundle(paths_), higher);
}

TEST_F(BundleTest, ABundleThatDoesNotSayItsLevelIsOfTheFirst) {
  const std::string unsaid = Deliver("unsaid", 200, 0);
  const std::string nonsense = Deliver("nonsense", 300, 0);
  ASSERT_OK(WriteFileAtomic(JoinPath(nonsense, "api_level"), "many\n"));
  EXPECT_EQ(BundleApiLevel(unsaid), 1);
  EXPECT_EQ(BundleApiLevel(nonsense), 1);
  EXPECT_TRUE(IsNewerBundle(Deliver("two", 1, 2), nonsense));
  EXPECT_TRUE(IsNewerBundle(nonsense, unsaid));
}

TEST_F(BundleTest, ABundleThatIsGoneIsNotAdopted) {
  const std::string there = Deliver("there", 100, 1);
  EXPECT_TRUE(Adopt(there));
  EXPECT_FALSE(AdoptBundle(paths_, JoinPath(paths_.bin, "gone")).ok());
  EXPECT_EQ(CurrentBundle(paths_), there);
}

}  // namespace
}  // namespace gpuctl
