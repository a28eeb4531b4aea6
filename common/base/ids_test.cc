#include "common/base/ids.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace gpuctl {
namespace {

TEST(RandomHex, HasTheLengthThatWasAskedFor) {
  // The system gives at most 256 bytes at once.
  for (const int bytes : {0, 1, 8, 255, 256, 257, 1000}) {
    const std::string hex = RandomHex(bytes);
    EXPECT_EQ(hex.size(), static_cast<size_t>(bytes) * 2);
    EXPECT_EQ(hex.find_first_not_of("0123456789abcdef"), std::string::npos) << hex;
  }
}

TEST(RandomHex, EachPartOfItIsRandom) {
  const std::string hex = RandomHex(1024);
  std::set<std::string> parts;
  for (size_t begin = 0; begin < hex.size(); begin += 16) parts.insert(hex.substr(begin, 16));
  EXPECT_EQ(parts.size(), hex.size() / 16);
  EXPECT_NE(RandomHex(8), RandomHex(8));
}

TEST(IsValidId, OfThoseThatAreMadeHere) {
  EXPECT_TRUE(IsValidId(NewRunId())) << NewRunId();
  EXPECT_TRUE(IsValidId(NewJobId())) << NewJobId();
  for (const char* id : {"", "-a", "a/b", "A", "a.b"}) EXPECT_FALSE(IsValidId(id)) << id;
}

}  // namespace
}  // namespace gpuctl
