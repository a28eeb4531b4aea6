#include "trainer/unicode/pattern.h"

#include <gtest/gtest.h>

#include <vector>

#include "trainer/tests/expect_error.h"
#include "trainer/unicode/oniguruma.h"
#include "trainer/unicode/utf8.h"

namespace gpuctl::trainer {
namespace {

std::vector<std::string> Matches(const Pattern& pattern, const std::string& text) {
  PatternScratch scratch;
  std::vector<std::string> found;
  Match match;
  for (MatchIterator matches(pattern, text, scratch); matches.Next(&match);) {
    found.push_back(text.substr(match.begin, match.end - match.begin));
  }
  return found;
}

std::vector<std::string> Matches(const std::string& expression, const std::string& text) {
  return Matches(Pattern::FromOniguruma(expression), text);
}

using Texts = std::vector<std::string>;

TEST(PatternTest, LiteralsAndExpressionsGiveTheSameMatches) {
  EXPECT_EQ(Matches(Pattern::FromLiteral("ab"), "abxababa"), (Texts{"ab", "ab", "ab"}));
  EXPECT_EQ(Matches("ab", "abxababa"), (Texts{"ab", "ab", "ab"}));
  // An empty match counts at each place where no match ends.
  EXPECT_EQ(Matches(Pattern::FromLiteral(""), "aé"), (Texts{"", "", ""}));
  EXPECT_EQ(Matches("", "aé"), (Texts{"", "", ""}));
  EXPECT_EQ(Matches("b*", "abba"), (Texts{"", "bb", ""}));
}

TEST(PatternTest, SpaceIsNotTheMongolianVowelSeparator) {
  const std::string separator = "\xe1\xa0\x8e";
  EXPECT_EQ(Matches("\\s", separator), Texts{});
  EXPECT_EQ(Matches("\\S", separator), Texts{separator});
  EXPECT_EQ(Matches("[\\s]", separator), Texts{});
  EXPECT_EQ(Matches("[^\\s]", separator), Texts{separator});
  EXPECT_EQ(Matches("[\\S]", separator + " "), Texts{separator});
  EXPECT_EQ(Matches("[^\\S\n]", separator + "a \n\t"), (Texts{" ", "\t"}));
  EXPECT_EQ(Matches("[^\\Sx]+", "x \t"), Texts{" \t"});
}

TEST(PatternTest, IntervalsAreNeitherPossessiveNorLazyWhereOnigurumasAreNot) {
  EXPECT_EQ(Matches("a{1,2}+", "aaaaa"), Texts{"aaaaa"});
  EXPECT_EQ(Matches("a{2}?", "aaa"), (Texts{"aa", ""}));
  EXPECT_EQ(Matches("a{1,2}?", "aa"), (Texts{"a", "a"}));
  EXPECT_EQ(Matches("a{,2}b", "aab{,2}"), Texts{"aab"});
  EXPECT_EQ(Matches("a{x}", "a{x}"), Texts{"a{x}"});
  EXPECT_EQ(Matches("a++a", "aaa"), Texts{});
  EXPECT_EQ(Matches("(?:ab)+*c", "ababc"), Texts{"ababc"});
  EXPECT_ERROR(Pattern::FromOniguruma("a{3,2}"), ExitCode::kBadData, "repeats");
  EXPECT_ERROR(Pattern::FromOniguruma("+a"), ExitCode::kBadData, "nothing to repeat");
}

TEST(PatternTest, CaseIsIgnoredInItsGroupOnly) {
  EXPECT_EQ(Matches("(?i:'s|'re)|x", "'S'Re'\xc5\xbfX"), (Texts{"'S", "'Re", "'\xc5\xbf"}));
  EXPECT_EQ(Matches("(?i)a|b", "AB"), (Texts{"A", "B"}));
  EXPECT_ERROR(Pattern::FromOniguruma("a(?i)b|c"), ExitCode::kBadData, "only at its beginning");
  EXPECT_ERROR(Pattern::FromOniguruma("(?i:Mass)"), ExitCode::kBadData, "\"ss\"");
  EXPECT_ERROR(Pattern::FromOniguruma("(?i:\xc3\x9f)"), ExitCode::kBadData, "ASCII");
}

TEST(PatternTest, ClassesWithinClassesAreJoined) {
  EXPECT_EQ(Matches("[^(\\s|[.,!])]", "(a|.b]!"), (Texts{"a", "b", "]"}));
  EXPECT_EQ(Matches("[a[^b-z]]", "abA"), (Texts{"a", "A"}));
  EXPECT_EQ(Matches("[]a-]+", "-a]b"), Texts{"-a]"});
  EXPECT_EQ(Matches("[\\w-.]+", "a-.b,"), Texts{"a-.b"});
  EXPECT_ERROR(Pattern::FromOniguruma("[a&&b]"), ExitCode::kBadData, "&&");
  EXPECT_ERROR(Pattern::FromOniguruma("[b-a]"), ExitCode::kBadData, "empty");
  EXPECT_ERROR(Pattern::FromOniguruma("[ab"), ExitCode::kBadData, "no end");
  EXPECT_ERROR(Pattern::FromOniguruma("[]"), ExitCode::kBadData, "");
}

TEST(PatternTest, CategoriesAreThoseOfUnicode16) {
  const std::string garay = "\xf0\x90\xb5\x90";  // U+10D50, since Unicode 16
  EXPECT_EQ(Matches("\\p{L}", garay), Texts{garay});
  EXPECT_EQ(Matches("[^\\s\\p{L}]", garay), Texts{});
  EXPECT_EQ(Matches("\\P{Lu}", garay), Texts{});
  EXPECT_EQ(Matches("\\p{^Lu}", garay), Texts{});
  EXPECT_EQ(Matches("[\\P{Lu}]", garay + "a"), Texts{"a"});
  // PCRE2's \p{Han} has the ideographic full stop, the script has not.
  EXPECT_EQ(Matches("\\p{Han}", "中。"), Texts{"中"});
  EXPECT_EQ(Matches("\\h+", "12xAF"), (Texts{"12", "AF"}));
  EXPECT_EQ(Matches("\\bb\\b", "ab b"), Texts{"b"});
}

TEST(PatternTest, WhatIsNotSupportedIsNamed) {
  for (const char* const expression :
       {"\\1", "\\k<a>", "\\R", "\\X", "\\K", "\\G", "\\y", "\\p{Cn}", "\\p{Greek}", "\\p{Foo}",
        "[[:alpha:]]", "(?<name>a)", "(?m:a)", "(?x)a", "(*VERB)", "(?R)", "\\xff", "\\"}) {
    EXPECT_ERROR(Pattern::FromOniguruma(expression), ExitCode::kBadData, "regular expression");
  }
  for (const char* const expression : {"(", ")", "(?:", "(a", "a)", "\\x{110000}", "\\x{d800}"}) {
    EXPECT_ERROR(Pattern::FromOniguruma(expression), ExitCode::kBadData, "regular expression");
  }
  EXPECT_ERROR(Pattern::FromOniguruma(std::string(5000, '(')), ExitCode::kBadData, "deeply");
  EXPECT_ERROR(Pattern::FromOniguruma(std::string(5000, '[')), ExitCode::kBadData, "deeply");
  EXPECT_ERROR(Pattern::FromOniguruma(std::string(50000, 'a')), ExitCode::kBadData, "too long");
  EXPECT_ERROR(Pattern::FromOniguruma("(?:(?:a{999}){999}){999}"), ExitCode::kBadData, "too large");
}

TEST(PatternTest, ATextThatTakesTooManyStepsIsAnErrorAndNoResult) {
  const Pattern pattern = Pattern::FromOniguruma("(?:a+)+$");
  EXPECT_ERROR(Matches(pattern, std::string(64, 'a') + "b"), ExitCode::kBadData, "gave up");
}

// The limit of steps holds for one place; these take few steps at each of very many.
TEST(PatternTest, ATextThatTakesTooLongIsAnErrorAndNoResult) {
  const std::string letters(4'000'000, 'a');
  for (const char* expression : {"a*[bc]", "a(?!.*b)"}) {
    const Pattern pattern = Pattern::FromOniguruma(expression);
    PatternScratch scratch(/*most_seconds=*/0.2);
    Match match;
    const auto all = [&] {
      for (MatchIterator matches(pattern, letters, scratch); matches.Next(&match);) {
      }
    };
    EXPECT_ERROR(all(), ExitCode::kBadData, "too long");
  }
}

TEST(PatternTest, FarMatchesAreFound) {
  for (const size_t far : {63, 64, 65, 127, 128, 1000, 300'000}) {
    std::string text;
    while (text.size() < far) text += "\xc3\xa9";
    EXPECT_EQ(Matches("(?<=\xc3\xa9)x+|y", text + "xxy"), (Texts{"xx", "y"})) << far;
    EXPECT_EQ(Matches("\xc3\xa9x", text + "x"), Texts{"\xc3\xa9x"}) << far;
  }
}

TEST(PatternTest, LongTextsAreNoTrouble) {
  const std::string spaces(50'000, ' ');
  EXPECT_EQ(Matches("\\s+(?!\\S)|\\s+", spaces + "a").size(), 2u);
  const std::string letters(2'000'000, 'a');
  EXPECT_EQ(Matches("[^\\r\\n\\p{L}\\p{N}]?\\p{L}+", letters), Texts{letters});
}

}  // namespace
}  // namespace gpuctl::trainer
