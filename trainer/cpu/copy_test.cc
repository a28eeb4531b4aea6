#include "trainer/cpu/copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace gpuctl::trainer::cpu {
namespace {

// Also where nothing begins or ends at a line of the caches.
TEST(CopyPastCachesTest, CopiesWhatMemcpyDoes) {
  std::vector<char> from(1000);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 7 + 1);
  for (size_t begin = 0; begin < 130; begin += 3) {
    for (size_t at = 0; at < 70; ++at) {
      for (const size_t bytes : {0, 1, 15, 63, 64, 65, 128, 500, 777}) {
        std::vector<char> expected(1000, 'x'), to(1000, 'x');
        std::memcpy(expected.data() + at, from.data() + begin, bytes);
        CopyPastCaches(to.data() + at, from.data() + begin, bytes);
        ASSERT_EQ(to, expected) << begin << " " << at << " " << bytes;
      }
    }
  }
}

}  // namespace
}  // namespace gpuctl::trainer::cpu
