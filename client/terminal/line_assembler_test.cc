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
