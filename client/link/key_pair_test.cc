// The pair of keys that gpuctl makes for itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/link/ssh_session.h"
#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::UnorderedElementsAre;

TEST(EnsureKeyPairTest, TakesThePlaceOfWhatAKilledProcessLeft) {
  TempDir dir;
  dir.Write("client_key.tmp", "half of a private key");
  const absl::StatusOr<std::string> made = EnsureKeyPair(dir.Sub("client_key"), "test");
  ASSERT_OK(made);
  EXPECT_THAT(ListDirectory(dir.Sub("")).value(),
              UnorderedElementsAre("client_key", "client_key.pub", "client_key.lock"));
  EXPECT_EQ(EnsureKeyPair(dir.Sub("client_key"), "test").value(), *made);
}

}  // namespace
}  // namespace gpuctl
