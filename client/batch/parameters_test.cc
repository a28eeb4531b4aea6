#include "client/batch/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Described(const std::vector<Parameters>& all) {
  std::vector<std::string> texts;
  for (const Parameters& one : all) texts.push_back(DescribeParameters(one));
  return texts;
}

ParameterAxis Axis(const char* text) { return *ParseAxis(text); }

TEST(Parameters, AGridHasEachCombinationOnceInOrder) {
  const auto grid = ExpandGrid({}, {Axis("lr=1e-4,2e-4"), Axis("rank=8,16")}, {});
  ASSERT_TRUE(grid.ok());
  EXPECT_THAT(Described(*grid), ElementsAre("lr=1e-4 rank=8", "lr=1e-4 rank=16", "lr=2e-4 rank=8",
                                            "lr=2e-4 rank=16"));
}

TEST(Parameters, WithoutAnyThereIsOneRun) {
  const auto grid = ExpandGrid({}, {}, {});
  ASSERT_TRUE(grid.ok());
  EXPECT_EQ(grid->size(), 1u);
}

TEST(Parameters, ABadAxisIsRefused) {
  for (const char* bad : {"lr", "=1", "1r=1", "lr=", "lr=1,,2", "lr=1,1", "l r=1", "lr=a\x1b[0m"}) {
    EXPECT_FALSE(ParseAxis(bad).ok()) << bad;
  }
  EXPECT_FALSE(ExpandGrid({}, {Axis("a=1"), Axis("a=2")}, {}).ok());
}

TEST(Parameters, ARangeIsWrittenOut) {
  EXPECT_THAT(Axis("i=0..3").values, ElementsAre("0", "1", "2", "3"));
  EXPECT_THAT(Axis("i=-1..1,7").values, ElementsAre("-1", "0", "1", "7"));
  EXPECT_THAT(Axis("i=5..5").values, ElementsAre("5"));
  EXPECT_THAT(Axis("i=9223372036854775806..9223372036854775807").values,
              ElementsAre("9223372036854775806", "9223372036854775807"));
  // None of these is a range of whole numbers.
  for (const char* value : {"../data", "1.5..2", "00..02", "a..b", "1..", "..2", "1e-4", "-1"}) {
    EXPECT_THAT(ParseAxis(absl::StrCat("i=", value))->values, ElementsAre(value));
  }
  for (const char* bad :
       {"i=3..1", "i=0..10000", "i=0..2,1", "i=-9223372036854775808..9223372036854775807"}) {
    EXPECT_FALSE(ParseAxis(bad).ok()) << bad;
  }
}

TEST(Parameters, ARangeOfAnotherToolIsRefusedWithOurs) {
  for (const char* bad : {"i=0-5", "i=0-5,7", "i=0-5%2"}) {
    EXPECT_THAT(std::string(ParseAxis(bad).status().message()), HasSubstr("0..5 stands for"))
        << bad;
  }
  // A month, buckets, a date.
  for (const char* good : {"i=2024-01", "i=1-3,4-6", "i=2024-05-01", "i=5-3", "i=a-b"}) {
    EXPECT_TRUE(ParseAxis(good).ok()) << good;
  }
}

TEST(Parameters, ADistributionOfAnotherToolIsRefused) {
  for (const char* bad : {"lr=log(1e-5,1e-3)", "lr=uniform(0,1)", "a=x,(y", "a=y)"}) {
    EXPECT_THAT(std::string(ParseAxis(bad).status().message()), HasSubstr("no distributions"))
        << bad;
  }
  EXPECT_THAT(Axis("a=resnet(50),f()").values, ElementsAre("resnet(50)", "f()"));
}

TEST(Parameters, ASampleIsDifferentPointsAndTheSameForTheSameSeed) {
  const std::vector<ParameterAxis> axes = {Axis("a=1,2,3,4,5,6,7,8,9"), Axis("b=1,2,3,4,5,6,7,8,9"),
                                           Axis("c=1,2,3,4,5,6,7,8,9")};
  const auto first = ExpandGrid({}, axes, {40, 7}), again = ExpandGrid({}, axes, {40, 7}),
             other = ExpandGrid({}, axes, {40, 8});
  ASSERT_TRUE(first.ok() && again.ok() && other.ok());
  EXPECT_EQ(*first, *again);
  EXPECT_NE(*first, *other);
  const std::vector<std::string> texts = Described(*first);
  EXPECT_EQ(std::set<std::string>(texts.begin(), texts.end()).size(), 40u);
  // Written down, so that a new version draws what an old one drew.
  EXPECT_EQ(texts[0], Described(*again)[0]);
  EXPECT_FALSE(ExpandGrid({}, {Axis("a=1,2")}, {3, 0}).ok());
}

TEST(Parameters, AHugeGridIsRefusedUnlessItIsSampled) {
  std::vector<ParameterAxis> axes;
  for (int i = 0; i < 100; ++i) axes.push_back(Axis(absl::StrCat("p", i, "=1,2,3").c_str()));
  const auto all = ExpandGrid({}, axes, {});
  ASSERT_FALSE(all.ok());
  EXPECT_THAT(std::string(all.status().message()), HasSubstr("--sample"));
  const auto some = ExpandGrid({}, axes, {5, 1});
  EXPECT_TRUE(some.ok() && some->size() == 5);
}

TEST(Parameters, CsvHasQuotesAndOtherSystemsLineEnds) {
  const auto rows =
      ParseParameterCsv("\xef\xbb\xbflr,text\r\n1e-4,\"a, \"\"b\"\"\"\r\n\r\n 2e-4 ,plain");
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(Described(*rows), ElementsAre("lr=1e-4 text=a, \"b\"", "lr=2e-4 text=plain"));
  const auto crossed = ExpandGrid(*rows, {Axis("seed=1,2")}, {});
  ASSERT_TRUE(crossed.ok());
  EXPECT_EQ(crossed->size(), 4u);
  EXPECT_EQ(DescribeParameters((*crossed)[1]), "lr=1e-4 text=a, \"b\" seed=2");
}

TEST(Parameters, BadCsvNamesTheLine) {
  const auto message = [](const char* text) {
    const auto rows = ParseParameterCsv(text);
    return rows.ok() ? "accepted" : std::string(rows.status().message());
  };
  EXPECT_THAT(message(""), HasSubstr("empty"));
  EXPECT_THAT(message("\n\n"), HasSubstr("empty"));
  EXPECT_THAT(message("lr\n"), HasSubstr("no line of values"));
  EXPECT_THAT(message("lr,rank\n1,2\n3\n"), HasSubstr("line 3"));
  EXPECT_THAT(message("lr,rank\n1,\n"), HasSubstr("line 2"));
  EXPECT_THAT(message("lr\n\"open\n"), HasSubstr("line 2"));
  EXPECT_THAT(message("lr\n\"a\"b\n"), HasSubstr("line 2"));
  EXPECT_THAT(message("l r\n1\n"), HasSubstr("line 1"));
}

TEST(Parameters, VariablesAreDistinctAndReplaceNothingThatProgramsNeed) {
  EXPECT_EQ(VariableOf("optimizer.lr-max"), "OPTIMIZER_LR_MAX");
  EXPECT_TRUE(CheckParameterNames({{"lr", "1"}, {"rank", "2"}}).ok());
  for (const char* bad : {"path", "Home", "gpuctl_run_id", "ld_preload"}) {
    EXPECT_FALSE(CheckParameterNames({{bad, "1"}}).ok()) << bad;
  }
  EXPECT_FALSE(CheckParameterNames({{"a.b", "1"}, {"a-b", "2"}}).ok());
}

}  // namespace
}  // namespace gpuctl
