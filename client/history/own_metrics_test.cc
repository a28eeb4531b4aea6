#include "client/history/own_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(OwnMetrics, NumbersThatGpuctlDoesNotKnowKeepTheirNames) {
  OwnMetrics own;
  own.Add(R"({"step": 1, "loss": 2.5, "accuracy": 0.25, "lr": 1e-4, "type": "step"})");
  own.Add(R"({"step": 2, "loss": 2.0, "eval": {"f1": 0.5, "of": "x"}, "note": "text"})");
  own.Add(R"({"accuracy": 0.75})");  // of the step before it
  EXPECT_THAT(own.names(), ElementsAre("accuracy", "eval/f1"));
  EXPECT_THAT(own.steps(), ElementsAre(Pair(1, ElementsAre(Pair(0, 0.25))),
                                       Pair(2, ElementsAre(Pair(0, 0.75), Pair(1, 0.5)))));
}

TEST(OwnMetrics, ANewAttemptTakesThePlaceOfWhatItRepeats) {
  OwnMetrics own;
  for (int step = 1; step <= 4; ++step) {
    own.Add(absl::StrCat(R"({"step":)", step, R"(,"acc":1,"gpuctl":{"attempt":1}})"));
  }
  own.Add(R"({"step":2,"acc":3,"gpuctl":{"attempt":2}})");
  EXPECT_THAT(own.steps(),
              ElementsAre(Pair(1, ElementsAre(Pair(0, 1))), Pair(2, ElementsAre(Pair(0, 3)))));
}

TEST(OwnMetrics, WhatIsNoNumberIsIgnoredAndNamesAreBounded) {
  OwnMetrics own;
  for (const char* line : {"", "[1]", "{", R"({"a": "1", "b": [1], "c": null, "gpuctl": {"x": 1}})",
                           R"({"text": "step 3 loss 1"})"}) {
    own.Add(line);
  }
  EXPECT_THAT(own.names(), IsEmpty());
  for (int i = 0; i < 200; ++i) own.Add(absl::StrCat(R"({"step":1,"m)", i, R"(":1})"));
  EXPECT_EQ(own.names().size(), OwnMetrics::kMostNames);
}

std::vector<std::pair<std::string, double>> Pairs(const std::vector<OwnNumber>& numbers) {
  std::vector<std::pair<std::string, double>> pairs;
  for (const OwnNumber& number : numbers) pairs.emplace_back(number.name, number.value);
  return pairs;
}

TEST(NewestOwn, TheLastValueOfEachNameTheNewestLineFirst) {
  NewestOwn own;
  own.Add(R"({"step": 1, "loss": 2.5, "accuracy": 0.25, "f1": 0.5})");
  own.Add(R"({"step": 2, "loss": 2.0, "gpuctl": {"time_ms": 7, "attempt": 1}})");
  EXPECT_EQ(own.lines(), 1);
  own.Add(R"({"step": 3, "eval": {"bleu": 31}})");
  own.Add(R"({"step": 4, "accuracy": 0.75})");
  EXPECT_THAT(Pairs(own.Newest()),
              ElementsAre(Pair("accuracy", 0.75), Pair("eval/bleu", 31), Pair("f1", 0.5)));
  EXPECT_THAT(Pairs(own.Newest(1)), ElementsAre(Pair("accuracy", 0.75)));
  EXPECT_EQ(own.lines(), 3);
}

TEST(NewestOwn, WhatIsOnlyCountedSaysLess) {
  NewestOwn own;
  own.Add(R"({"step": 1, "mfu": 0.4, "tokens": 9, "memory_bytes": 7, "margin": 2})");
  EXPECT_THAT(Pairs(own.NewestMeasured(2)), ElementsAre(Pair("margin", 2), Pair("mfu", 0.4)));
  EXPECT_THAT(Pairs(own.NewestMeasured(1)), ElementsAre(Pair("margin", 2)));
}

TEST(NewestOwn, CheckpointsTextsAndBrokenLinesAreNoNumbers) {
  NewestOwn own;
  for (const char* line :
       {"", "{\"", "{\"a", "[1]", R"({"a": "b: 1"})", R"({"type": "checkpoint", "seconds": 3})",
        R"({"type": "checkpoint_failed", "seconds": 3})", R"({"text": "\"a\": 1"})"}) {
    own.Add(line);
  }
  EXPECT_THAT(Pairs(own.Newest()), IsEmpty());
  for (int i = 0; i < 200; ++i) own.Add(absl::StrCat(R"({"m)", i, R"(":1})"));
  EXPECT_EQ(own.Newest().size(), OwnMetrics::kMostNames);
  // A name with an escape is one, too.
  own = NewestOwn();
  own.Add(R"({"\u0061cc": 1})");
  EXPECT_THAT(Pairs(own.Newest()), ElementsAre(Pair("acc", 1)));
}

}  // namespace
}  // namespace gpuctl
