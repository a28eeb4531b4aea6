#include "common/files/relative_path.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gpuctl {
namespace {

TEST(SafeRelativePath, Table) {
  for (const char* good :
       {"a", "a/b", ".hidden", "..a", "a..", "a/...", "-", " ", "a\nb", "\xff"}) {
    EXPECT_TRUE(IsSafeRelativePath(good)) << good;
  }
  for (const char* bad :
       {"", "/", "/a", "a/", "a//b", ".", "..", "a/.", "a/..", "../a", "a/../b"}) {
    EXPECT_FALSE(IsSafeRelativePath(bad)) << bad;
  }
  EXPECT_FALSE(IsSafeRelativePath(absl::string_view("a\0b", 3)));
}

TEST(PathLess, IsTheOrderOfAWalk) {
  const std::vector<std::string> sorted = {"a",   "a/b", "a/b/c", "a/b-", "a-b",
                                           "a.b", "aa",  "b",     "\x80", "\xff"};
  for (size_t i = 0; i < sorted.size(); ++i) {
    for (size_t j = 0; j < sorted.size(); ++j) {
      EXPECT_EQ(PathLess(sorted[i], sorted[j]), i < j) << sorted[i] << " " << sorted[j];
    }
  }
}

}  // namespace
}  // namespace gpuctl
