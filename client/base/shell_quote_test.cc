#include "client/base/shell_quote.h"

#include <gtest/gtest.h>

#include <string>

namespace gpuctl {
namespace {

TEST(ShellQuoteTest, SurvivesAShell) {
  EXPECT_EQ(ShellQuote("plain-1.txt"), "plain-1.txt");
  EXPECT_EQ(ShellQuote(""), "''");
  EXPECT_EQ(ShellQuote("it's"), "'it'\\''s'");
  EXPECT_EQ(ShellQuote("$(reboot)"), "'$(reboot)'");
}

TEST(IsPlainWordTest, TakesNothingThatAShellOrAReaderCouldMisread) {
  for (const char* plain : {"amber-fox-3", "vast/1234", "ada@gpu.example:2222", "a=b,c+d%", "x"}) {
    EXPECT_TRUE(IsPlainWord(plain)) << plain;
    EXPECT_EQ(ShellQuote(plain), plain);
  }
  for (const char* other : {"", "-rf", "a b", "a;reboot", "$(x)", "`x`", "a\nb", "a'b", "a\"b", "~",
                            "*", "a|b", "größe", "a\\b", "a\x1b[31m", "#x", "a>b"}) {
    EXPECT_FALSE(IsPlainWord(other)) << other;
  }
  EXPECT_TRUE(IsPlainWord(std::string(200, 'a')));
  EXPECT_FALSE(IsPlainWord(std::string(201, 'a')));
}

}  // namespace
}  // namespace gpuctl
