#include "client/base/shell_quote.h"

#include <gtest/gtest.h>

namespace gpuctl {
namespace {

TEST(ShellQuoteTest, SurvivesAShell) {
  EXPECT_EQ(ShellQuote("plain-1.txt"), "plain-1.txt");
  EXPECT_EQ(ShellQuote(""), "''");
  EXPECT_EQ(ShellQuote("it's"), "'it'\\''s'");
  EXPECT_EQ(ShellQuote("$(reboot)"), "'$(reboot)'");
}

}  // namespace
}  // namespace gpuctl
