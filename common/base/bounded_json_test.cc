#include "common/base/bounded_json.h"

#include <gtest/gtest.h>

#include <string>

namespace gpuctl {
namespace {

TEST(BoundedJsonTest, OrdinaryTextIsParsed) {
  EXPECT_EQ(ParseBoundedJson(R"({"a":[1,{"b":"[[[\"{{"}]})")["a"][1]["b"], "[[[\"{{");
  EXPECT_EQ(ParseBoundedOrderedJson(R"({"b":1,"a":2})").begin().key(), "b");
  EXPECT_TRUE(ParseBoundedJson("{").is_discarded());
  EXPECT_TRUE(ParseBoundedJson("").is_discarded());
}

TEST(BoundedJsonTest, TextThatIsTooLongOrTooDeepIsNotParsed) {
  const JsonLimits limits = {.bytes = 64, .depth = 4};
  EXPECT_FALSE(ParseBoundedJson("[[[[]]]]", limits).is_discarded());
  EXPECT_TRUE(ParseBoundedJson("[[[[[]]]]]", limits).is_discarded());
  EXPECT_FALSE(ParseBoundedJson("\"" + std::string(62, 'x') + "\"", limits).is_discarded());
  EXPECT_TRUE(ParseBoundedJson("\"" + std::string(63, 'x') + "\"", limits).is_discarded());
  EXPECT_TRUE(ParseBoundedJson(std::string(100'000, '[')).is_discarded());
  EXPECT_TRUE(ParseBoundedOrderedJson(std::string(100'000, '{')).is_discarded());
}

}  // namespace
}  // namespace gpuctl
