#include "trainer/unicode/utf8.h"

#include <gtest/gtest.h>

namespace gpuctl::trainer {
namespace {

// The examples of the Unicode standard, section 3.9, tables 3-8 to 3-11.
TEST(Utf8Test, EachLongestWrongPieceBecomesOneReplacement) {
  const std::string r = "\xef\xbf\xbd";
  EXPECT_EQ(RepairUtf8("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(RepairUtf8("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(RepairUtf8("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42"),
            r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(RepairUtf8("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41"), r + r + r + r + "A");
  EXPECT_EQ(RepairUtf8("whole \xe2\x82\xac"), "whole \xe2\x82\xac");
}

TEST(Utf8Test, ReadsWhatItWrites) {
  for (uint32_t point = 0; point <= 0x10ffff; ++point) {
    if (point >= 0xd800 && point < 0xe000) continue;
    std::string text;
    AppendCodePoint(point, &text);
    size_t at = 0;
    ASSERT_EQ(ReadCodePoint(text, &at), point);
    ASSERT_EQ(at, text.size());
    ASSERT_EQ(ValidUtf8Prefix(text), text.size()) << point;
    for (size_t part = 1; part < text.size(); ++part) {
      ASSERT_EQ(UnfinishedUtf8(text.substr(0, part)), part) << point;
    }
    ASSERT_EQ(UnfinishedUtf8(text), 0u);
  }
}

TEST(Utf8Test, WhatCannotBecomeACodePointIsNotUnfinished) {
  EXPECT_EQ(UnfinishedUtf8("a\x80"), 0u);
  EXPECT_EQ(UnfinishedUtf8("\xff"), 0u);
  EXPECT_EQ(UnfinishedUtf8("\xe0\x80"), 0u);
  EXPECT_EQ(UnfinishedUtf8("\xed\xa0"), 0u);
  EXPECT_EQ(UnfinishedUtf8(""), 0u);
}

}  // namespace
}  // namespace gpuctl::trainer
