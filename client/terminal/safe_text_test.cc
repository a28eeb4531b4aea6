#include "client/terminal/safe_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace gpuctl {
namespace {

std::string Utf8(char32_t c) {
  const auto part = [c](int shift, unsigned mark, unsigned mask) {
    return static_cast<char>(mark | ((static_cast<unsigned>(c) >> shift) & mask));
  };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {part(6, 0xC0, 0x1F), part(0, 0x80, 0x3F)};
  if (c < 0x10000) return {part(12, 0xE0, 0x0F), part(6, 0x80, 0x3F), part(0, 0x80, 0x3F)};
  return {part(18, 0xF0, 0x07), part(12, 0x80, 0x3F), part(6, 0x80, 0x3F), part(0, 0x80, 0x3F)};
}

TEST(MakeSafeTest, KeepsWhatCanBeSeen) {
  for (const char* text : {"", "plain text", "größe", "世界", "Привет", "שלום", "مرحبا", "e\u0301",
                           "⠀⣿", "─━▁█", "a\\b", "€ § ß", "❤\uFE0F", "\uFFFD"}) {
    EXPECT_EQ(MakeSafe(text), text);
  }
}

TEST(MakeSafeTest, ShowsControls) {
  EXPECT_EQ(MakeSafe("a\nb\r\tc"), "a\\nb\\r\\tc");
  EXPECT_EQ(MakeSafe("\x1b[2Ja\x1b]0;t\x07"), "\\x1b[2Ja\\x1b]0;t\\x07");
  EXPECT_EQ(MakeSafe(absl::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(MakeSafe("\b\x7f"), "\\x08\\x7f");
  for (char32_t c = 0; c < 0x20; ++c)
    EXPECT_EQ(MakeSafe(Utf8(c)).front(), '\\') << static_cast<unsigned>(c);
}

TEST(MakeSafeTest, ShowsC1AsACharacterAndAsAByte) {
  EXPECT_EQ(MakeSafe("a\u009b2Jb"), "a\\u009b2Jb");
  EXPECT_EQ(MakeSafe("a\x9b"
                     "2Jb"),
            "a\\x9b2Jb");
  for (char32_t c = 0x80; c < 0xA0; ++c) {
    EXPECT_EQ(MakeSafe(Utf8(c)).substr(0, 4), "\\u00") << static_cast<unsigned>(c);
    EXPECT_EQ(MakeSafe(std::string(1, static_cast<char>(c))).substr(0, 2), "\\x")
        << static_cast<unsigned>(c);
  }
}

TEST(MakeSafeTest, ShowsWhatTurnsTheDirectionRound) {
  EXPECT_EQ(MakeSafe("exe.\u202Etxt"), "exe.\\u202etxt");
  for (const char32_t c : {0x200E, 0x200F, 0x061C, 0x202A, 0x202B, 0x202C, 0x202D, 0x202E, 0x2066,
                           0x2067, 0x2068, 0x2069}) {
    EXPECT_EQ(MakeSafe(Utf8(c)).substr(0, 2), "\\u") << static_cast<unsigned>(c);
  }
}

TEST(MakeSafeTest, ShowsSeparatorsOfLines) {
  EXPECT_EQ(MakeSafe("a\u2028gpuctl: forged\u2029b\u0085"),
            "a\\u2028gpuctl: forged\\u2029b\\u0085");
}

TEST(MakeSafeTest, ShowsWhatHides) {
  EXPECT_EQ(MakeSafe("a\u200Bb\uFEFF"), "a\\u200bb\\ufeff");
  EXPECT_EQ(MakeSafe("x\U000E0041\U000E007F"), "x\\U000e0041\\U000e007f");
  EXPECT_EQ(MakeSafe("a\u00ADb\u2060c\u3164"), "a\\u00adb\\u2060c\\u3164");
  EXPECT_EQ(MakeSafe("x\U000E0100"), "x\\U000e0100");
  EXPECT_EQ(MakeSafe("\uFFFE\U0001FFFF\uFDD0"), "\\ufffe\\U0001ffff\\ufdd0");
}

TEST(MakeSafeTest, KeepsJoinersOnlyBetweenTheCharactersThatTheyJoin) {
  const std::string persian = "می\u200Cخواهم";
  const std::string family = "👩\u200D👧";
  const std::string heart = "❤\uFE0F\u200D🔥";
  EXPECT_EQ(MakeSafe(persian), persian);
  EXPECT_EQ(MakeSafe(family), family);
  EXPECT_EQ(MakeSafe(heart), heart);
  EXPECT_EQ(MakeSafe("run\u200C1"), "run\\u200c1");
  EXPECT_EQ(MakeSafe("\u200Dа"), "\\u200dа");
  EXPECT_EQ(MakeSafe("а\u200D"), "а\\u200d");
  EXPECT_EQ(MakeSafe("а\u200D\u200Dб"), "а\\u200d\\u200dб");
}

TEST(MakeSafeTest, ShowsBytesThatAreNotUtf8) {
  EXPECT_EQ(MakeSafe("a\xff\xfe"), "a\\xff\\xfe");
  // Truncated, at the end and before another character.
  EXPECT_EQ(MakeSafe("\xe2\x82"), "\\xe2\\x82");
  EXPECT_EQ(MakeSafe("\xe2\x82z"), "\\xe2\\x82z");
  EXPECT_EQ(MakeSafe("\xf0\x9f\x98"), "\\xf0\\x9f\\x98");
  EXPECT_EQ(MakeSafe("\xc3"), "\\xc3");
  EXPECT_EQ(MakeSafe("\x80"), "\\x80");
  // Overlong: '/', ESC and NUL in more bytes than they need.
  EXPECT_EQ(MakeSafe("\xc0\xaf"), "\\xc0\\xaf");
  EXPECT_EQ(MakeSafe("\xc0\x9b"), "\\xc0\\x9b");
  EXPECT_EQ(MakeSafe("\xe0\x80\x9b"), "\\xe0\\x80\\x9b");
  EXPECT_EQ(MakeSafe("\xf0\x80\x80\x80"), "\\xf0\\x80\\x80\\x80");
  // Lone surrogates, a pair of them, and values above the last code point.
  EXPECT_EQ(MakeSafe("\xed\xa0\x80"), "\\xed\\xa0\\x80");
  EXPECT_EQ(MakeSafe("\xed\xa0\xbd\xed\xb8\x80"), "\\xed\\xa0\\xbd\\xed\\xb8\\x80");
  EXPECT_EQ(MakeSafe("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(MakeSafe("\xf8\x88\x80\x80\x80"), "\\xf8\\x88\\x80\\x80\\x80");
}

TEST(MakeSafeTest, LeavesNothingToATerminal) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    const std::string safe = MakeSafe(Utf8(c));
    absl::string_view rest = safe;
    while (!rest.empty()) {
      const CodePoint character = FirstCodePoint(rest);
      ASSERT_TRUE(character.well_formed);
      ASSERT_FALSE(IsControl(character.value) || IsHidden(character.value))
          << static_cast<unsigned>(c);
      rest.remove_prefix(character.bytes);
    }
    ASSERT_EQ(MakeSafe(safe), safe);
  }
}

TEST(MakeJsonSafeTest, EscapesAndKeepsTheValue) {
  const std::string hostile =
      "\x7f\u009b2J\u202Egpj\u2066\u2028\uFEFF\u200D\U000E0041 größe 世界 \"quoted\"\n\x1b";
  const nlohmann::ordered_json json = {{"name", hostile}, {"n", 1.5}, {hostile, nullptr}};
  const std::string plain = json.dump();
  const std::string safe = MakeJsonSafe(plain);
  EXPECT_EQ(nlohmann::ordered_json::parse(safe), json);
  EXPECT_EQ(MakeSafe(safe), safe);
  EXPECT_NE(MakeSafe(plain), plain);
  EXPECT_NE(safe.find("\\u007f\\u009b2J\\u202egpj\\u2066\\u2028\\ufeff\\u200d\\udb40\\udc41"),
            std::string::npos);
  EXPECT_NE(safe.find(" größe 世界 \\\"quoted\\\"\\n\\u001b"), std::string::npos);
}

TEST(MakeJsonSafeTest, LeavesHarmlessJsonAsItIs) {
  const std::string json = "{\"a\":[1,true,null],\"b\":\"größe 世界\"}";
  EXPECT_EQ(MakeJsonSafe(json), json);
}

}  // namespace
}  // namespace gpuctl
