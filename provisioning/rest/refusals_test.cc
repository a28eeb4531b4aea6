#include "provisioning/rest/refusals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "provisioning/market/provider.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using Code = absl::StatusCode;
using ::testing::HasSubstr;

constexpr Refusal kRows[] = {
    {404, "", "", Code::kNotFound, Code::kOk},
    {0, "stock/*", "", Code::kOk, Code::kAborted},
    {0, "funds", "", Code::kResourceExhausted, Code::kResourceExhausted},
    {409, "", "no GPUs left", Code::kUnavailable, Code::kAborted},
    {0, "", "money", Code::kResourceExhausted, Code::kResourceExhausted},
};

absl::Status Read(int http, const MarketError& error) {
  return StatusOfRefusal({http, {}, "body"}, error, kRows, /*creating=*/false);
}
absl::Status Create(int http, const MarketError& error) {
  return StatusOfRefusal({http, {}, "body"}, error, kRows, /*creating=*/true);
}

TEST(RefusalsTest, TheFirstRowThatHoldsDecides) {
  EXPECT_THAT(Create(400, {"stock/none", "no GPUs"}), StatusIs(Code::kAborted));
  EXPECT_THAT(Create(400, {"funds", "x"}),
              StatusIs(Code::kResourceExhausted, HasSubstr("(funds)")));
  EXPECT_THAT(Create(409, {"", "sorry: No gpus LEFT here"}), StatusIs(Code::kAborted));
  EXPECT_THAT(Read(409, {"", "no gpus left"}), StatusIs(Code::kUnavailable));
  EXPECT_THAT(Create(400, {"", "no gpus left"}), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Read(400, {"x", "more Money"}), StatusIs(Code::kResourceExhausted));
  EXPECT_THAT(Create(400, {"stock", ""}), StatusIs(Code::kInvalidArgument));
}

TEST(RefusalsTest, ARowWithoutAMeaningLeavesItToTheHttpStatus) {
  EXPECT_THAT(Read(403, {"stock/none", "money"}), StatusIs(Code::kPermissionDenied));
  EXPECT_THAT(Create(404, {"", "gone"}), StatusIs(Code::kInvalidArgument));
}

TEST(RefusalsTest, OnlyTheMarketsOwnWordsSayThatSomethingIsGone) {
  EXPECT_THAT(Read(404, {"", "no such instance"}), StatusIs(Code::kNotFound));
  EXPECT_THAT(Read(404, {}), StatusIs(Code::kUnknown, HasSubstr("HTTP 404: body")));
}

TEST(RefusalsTest, WhatMayHaveBeenMadeIsUnknownWhateverTheWords) {
  EXPECT_THAT(Create(500, {"funds", "money"}), StatusIs(Code::kUnknown));
  EXPECT_THAT(Read(503, {"funds", "money"}), StatusIs(Code::kUnavailable));
  EXPECT_THAT(Create(200, {"", "odd"}), StatusIs(Code::kUnknown));
}

TEST(RefusalsTest, TooManyRequestsIsBusy) {
  EXPECT_TRUE(IsBusy(Create(429, {"funds", "money"})));
  EXPECT_TRUE(IsBusy(Read(429, {})));
}

}  // namespace
}  // namespace gpuctl
