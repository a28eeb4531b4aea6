#include "common/packing/whole_frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zstd.h>

#include <random>
#include <string>

#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

std::string Pack(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

std::string LongText() {
  std::mt19937 random(7);
  std::string text;
  while (text.size() < 200'000) text += static_cast<char>(random() & 63);
  return text;
}

TEST(WholeFramesTest, ReturnsTheContentOfAllFrames) {
  EXPECT_EQ(UnpackZstd(Pack("a word"), 100).value(), "a word");
  EXPECT_EQ(UnpackZstd(Pack(""), 100).value(), "");
  EXPECT_EQ(UnpackZstd(Pack("one ") + Pack("two"), 100).value(), "one two");
  EXPECT_EQ(UnpackZstd(Pack(LongText()), 200'000).value(), LongText());
}

TEST(WholeFramesTest, GivesNoMoreThanAllowed) {
  EXPECT_THAT(UnpackZstd(Pack(LongText()), 199'999),
              StatusIs(absl::StatusCode::kResourceExhausted));
  // A bomb: little that becomes much.
  EXPECT_THAT(UnpackZstd(Pack(std::string(50 << 20, 'x')), 1 << 20),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(WholeFramesTest, RefusesWhatIsCutOrNothingOfIt) {
  const std::string packed = Pack(LongText());
  for (size_t size = 0; size < packed.size(); size += packed.size() / 50 + 1) {
    EXPECT_THAT(UnpackZstd(packed.substr(0, size), 1 << 20),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << size;
  }
  for (const std::string& text : {std::string("plain text"), packed + "rest"}) {
    EXPECT_THAT(UnpackZstd(text, 1 << 20), StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

TEST(WholeFramesTest, WhatTheBaseHasCostsNearlyNothing) {
  const std::string base = LongText();
  const std::string content = base.substr(70'000) + "something else" + base.substr(0, 70'000);
  const std::string packed = PackAgainst(content, base);
  EXPECT_LT(packed.size(), 2000u);
  EXPECT_GT(PackAgainst(content, "").size(), 10 * packed.size());
  EXPECT_EQ(UnpackAgainst(packed, base, content.size()).value(), content);
  EXPECT_EQ(UnpackAgainst(PackAgainst("", base), base, 100).value(), "");
  EXPECT_THAT(UnpackAgainst(packed, base, content.size() - 1),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_NE(UnpackAgainst(packed, std::string(base.rbegin(), base.rend()), 1 << 20).value_or(""),
            content);
  EXPECT_THAT(UnpackAgainst(packed.substr(0, packed.size() / 2), base, 1 << 20),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace gpuctl
