// The pair of keys that gpuctl makes for itself.
#include "client/link/key_pair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::UnorderedElementsAre;

TEST(EnsureKeyPairTest, RemovesWhatAKilledProcessLeftOfThePair) {
  TempDir dir;
  dir.Write("client_key.tmp-0123456789ab", "a private key");
  dir.Write("client_key.pub.tmp-0123", "half");
  dir.Write("client_key2.tmp-0123", "another's");
  const absl::StatusOr<std::string> made = EnsureKeyPair(dir.Sub("client_key"), "test");
  ASSERT_OK(made);
  EXPECT_THAT(ListDirectory(dir.Sub("")).value(),
              UnorderedElementsAre("client_key", "client_key.pub", "client_key.lock",
                                   "client_key2.tmp-0123"));
  EXPECT_EQ(EnsureKeyPair(dir.Sub("client_key"), "test").value(), *made);
}

}  // namespace
}  // namespace gpuctl
