#include "common/packing/whole_frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zstd.h>

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
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += static_cast<char>(i * 7919 >> 5);
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

}  // namespace
}  // namespace gpuctl
