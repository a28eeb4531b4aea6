#include "client/terminal/line_assembler.h"

#include <gtest/gtest.h>

#include <vector>

namespace gpuctl {
namespace {

TEST(SanitizeLineTest, KeepsColoursAndText) {
  EXPECT_EQ(SanitizeLine("plain"), "plain");
  EXPECT_EQ(SanitizeLine("\x1b[31mred\x1b[0m"), "\x1b[31mred\x1b[0m\x1b[0m");
  EXPECT_EQ(SanitizeLine("a\tb"), "a       b");
  EXPECT_EQ(SanitizeLine("größe 世界"), "größe 世界");
}

TEST(SanitizeLineTest, DropsWhatMovesOrReprograms) {
  EXPECT_EQ(SanitizeLine("a\x1b[2Jb\x1b[10;10Hc"), "abc");
  EXPECT_EQ(SanitizeLine("a\x1b]52;c;ZXZpbA==\x07"
                         "b"),
            "ab");
  EXPECT_EQ(SanitizeLine("a\x1b]0;title\x1b\\b"), "ab");
  EXPECT_EQ(SanitizeLine("a\x1bPq\x1b\\b"), "ab");
  EXPECT_EQ(SanitizeLine("a\b\a\x7f\x01z"), "az");
  EXPECT_EQ(SanitizeLine("a\xc2\x9b"
                         "2Jb"),
            "a2Jb");  // C1 CSI
  EXPECT_EQ(SanitizeLine("a\xff\xfe"), "a\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(SanitizeLine("a\x1b["), "a");
  EXPECT_EQ(SanitizeLine("a\x1b"), "a");
  EXPECT_EQ(SanitizeLine("\x1b[?1;31m!"), "!");
}

TEST(SanitizeLineTest, ShowsWhatHides) {
  EXPECT_EQ(SanitizeLine("exe.\u202Etxt\u2066"), "exe.\\u202etxt\\u2066");
  EXPECT_EQ(SanitizeLine("\x1b[1ma\u2028gpuctl: forged\uFEFF"),
            "\x1b[1ma\\u2028gpuctl: forged\\ufeff\x1b[0m");
  EXPECT_EQ(SanitizeLine("👩\u200D👧\u200B\tb"), "👩\u200D👧\\u200b      b");
}

TEST(WidthTest, CountsColumns) {
  EXPECT_EQ(DisplayWidth("\x1b[31mred\x1b[0m"), 3);
  EXPECT_EQ(DisplayWidth("世界"), 4);
  EXPECT_EQ(DisplayWidth("e\xCC\x81"), 1);  // e and a combining accent
  EXPECT_EQ(TruncateToWidth("世界", 3), "世");
  EXPECT_EQ(TruncateToWidth("abcdef", 4), "abcd");
  EXPECT_EQ(TruncateToWidth("\x1b[31mabcdef", 4), "\x1b[31mabcd\x1b[0m");
}

// From EastAsianWidth.txt: wide and fullwidth are two columns; ambiguous, neutral, narrow and
// halfwidth are one.
TEST(WidthTest, EastAsianWidth) {
  for (const char* wide :
       {"一", "가", "あ", "ア", "Ａ", "　", "￥", "〈", "⺀", "𠀀", "\xE1\x84\x80"}) {
    EXPECT_EQ(DisplayWidth(wide), 2) << wide;
  }
  for (const char* one : {"a", "¢", "ｱ", "￨", "₩"}) EXPECT_EQ(DisplayWidth(one), 1) << one;
  for (const char* ambiguous : {"¡", "±", "Ω", "я", "…", "—", "─", "█", "①", "\xEF\xBF\xBD"}) {
    EXPECT_EQ(DisplayWidth(ambiguous), 1) << ambiguous;
  }
}

// Each code point counts alone, as in utf8proc and in a terminal that knows no joined emoji.
TEST(WidthTest, Emoji) {
  EXPECT_EQ(DisplayWidth("😀"), 2);
  EXPECT_EQ(DisplayWidth("⌚"), 2);
  EXPECT_EQ(DisplayWidth("\xE2\x80\x8D"), 0);               // zero-width joiner
  EXPECT_EQ(DisplayWidth("\xEF\xB8\x8F"), 0);               // variation selector 16
  EXPECT_EQ(DisplayWidth("❤\xEF\xB8\x8F"), 1);              // heart, as an emoji
  EXPECT_EQ(DisplayWidth("👩\xE2\x80\x8D💻"), 4);             // woman, joiner, laptop
  EXPECT_EQ(DisplayWidth("👍🏽"), 4);                   // with a skin colour
  EXPECT_EQ(DisplayWidth("🇩🇪"), 2);                         // two regional indicators
  EXPECT_EQ(DisplayWidth("1\xEF\xB8\x8F\xE2\x83\xA3"), 1);  // a keycap
}

TEST(WidthTest, Marks) {
  EXPECT_EQ(DisplayWidth("a\xCC\x80\xCC\x81"), 1);
  EXPECT_EQ(DisplayWidth("ก\xE0\xB8\xB1"), 1);     // Thai, above the letter
  EXPECT_EQ(DisplayWidth("\xD7\xA9\xD6\xB8"), 1);  // Hebrew, below it
  EXPECT_EQ(DisplayWidth("क\xE0\xA4\xBE"), 2);     // Devanagari, beside it
  EXPECT_EQ(DisplayWidth("क\xE0\xA5\x81"), 1);     // and below it
  EXPECT_EQ(DisplayWidth("\xE2\x80\x8B"), 0);      // zero-width space
  EXPECT_EQ(DisplayWidth("\xF3\xA0\x84\x80"), 0);  // variation selector 17
}

TEST(WidthTest, BytesThatAreNoTextAreOneEach) {
  EXPECT_EQ(DisplayWidth("a\xFF\xFE"), 3);
  EXPECT_EQ(DisplayWidth("\xE4\xB8"), 2);          // 一 without its end
  EXPECT_EQ(DisplayWidth("\xED\xA0\x80"), 3);      // a surrogate
  EXPECT_EQ(DisplayWidth("\xC0\x80"), 2);          // too long
  EXPECT_EQ(DisplayWidth("\xF4\x90\x80\x80"), 4);  // too large
  for (const char* text :
       {"a\xFF\xFE", "\xE4\xB8", "\xED\xA0\x80", "\xC0\x80", "\xF4\x90\x80\x80"}) {
    EXPECT_EQ(DisplayWidth(SanitizeLine(text)), DisplayWidth(text));
  }
}

TEST(WidthTest, TabsStopWhereTextIsWide) {
  EXPECT_EQ(SanitizeLine("世界\tx"), "世界    x");
  EXPECT_EQ(SanitizeLine("e\xCC\x81\tx"), "e\xCC\x81       x");
  EXPECT_EQ(SanitizeLine("\xFF\tx"), "\xEF\xBF\xBD       x");
}

// Characters as readers see them, from GraphemeBreakTest.txt and emoji-zwj-sequences.txt.
TEST(WidthTest, TruncationCutsNoCharacter) {
  const std::vector<std::string> characters = {"a",
                                               "e\xCC\x81",
                                               "世",
                                               "👩\xE2\x80\x8D👩\xE2\x80\x8D👧",
                                               "🇩🇪",
                                               "🇫🇷",
                                               "👍🏽",
                                               "❤\xEF\xB8\x8F",
                                               "क\xE0\xA4\xBE",
                                               "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8",
                                               "각",
                                               "\xFF",
                                               "1\xEF\xB8\x8F\xE2\x83\xA3",
                                               "☁\xCC\x88",
                                               "z"};
  std::string text;
  for (const std::string& character : characters) text += character;
  for (int width = 0; width <= DisplayWidth(text) + 1; ++width) {
    std::string expected;
    for (const std::string& character : characters) {
      if (DisplayWidth(expected + character) > width) break;
      expected += character;
    }
    EXPECT_EQ(TruncateToWidth(text, width), expected) << width;
  }
  EXPECT_EQ(TruncateToWidth("e\xCC\x81", 0), "");
  EXPECT_EQ(TruncateToWidth("👩\xE2\x80\x8D💻", 3), "");
  EXPECT_EQ(TruncateToWidth("\x1b[31m世\x1b[32m界", 3), "\x1b[31m世\x1b[32m\x1b[0m");
}

TEST(LineAssemblerTest, JoinsPieces) {
  LineAssembler assembler;
  std::vector<std::string> lines;
  const auto take = [&lines](absl::string_view line) { lines.emplace_back(line); };
  assembler.Add("one\ntw", take);
  assembler.Add("o\n\nthree", take);
  EXPECT_EQ(lines, (std::vector<std::string>{"one", "two", ""}));
  EXPECT_EQ(assembler.partial(), "three");
  EXPECT_EQ(assembler.TakePartial(), "three");
  EXPECT_EQ(assembler.partial(), "");
}

TEST(LineAssemblerTest, BoundsALineThatNeverEnds) {
  LineAssembler assembler;
  size_t bytes = 0;
  for (int i = 0; i < 100; ++i) {
    assembler.Add(std::string(4096, 'x'),
                  [&bytes](absl::string_view line) { bytes += line.size(); });
    EXPECT_LE(assembler.partial().size(), (64u << 10) + 4096);
  }
  EXPECT_EQ(bytes + assembler.partial().size(), 409'600u);
}

TEST(AfterCarriageReturnsTest, ShowsWhatATerminalWould) {
  EXPECT_EQ(AfterCarriageReturns("10%\r20%\r30%"), "30%");
  EXPECT_EQ(AfterCarriageReturns("10%\r20%\r"), "20%");
  EXPECT_EQ(AfterCarriageReturns("dos\r"), "dos");
  EXPECT_EQ(AfterCarriageReturns("plain"), "plain");
}

}  // namespace
}  // namespace gpuctl
