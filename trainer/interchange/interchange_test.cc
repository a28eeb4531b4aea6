#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/json_at.h"
#include "trainer/interchange/documents.h"
#include "trainer/interchange/numbers.h"
#include "trainer/interchange/pieces.h"

namespace gpuctl::trainer {
namespace {

// The value of binary16 by its definition.
double HalfByDefinition(uint16_t half) {
  const int exponent = (half >> 10) & 31, fraction = half & 1023;
  const double size =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return half & 0x8000 ? -size : size;
}

TEST(NumbersTest, EachHalfHasItsValueAndComesBack) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const auto word = static_cast<uint16_t>(half);
    const float value = HalfToFloat(word);
    if ((half & 0x7c00) != 0x7c00) {
      ASSERT_EQ(value, HalfByDefinition(word)) << half;
      ASSERT_EQ(std::signbit(value), (half & 0x8000) != 0);
      ASSERT_EQ(FloatToHalf(value), half);
    } else if ((half & 0x3ff) == 0) {
      ASSERT_TRUE(std::isinf(value));
      ASSERT_EQ(FloatToHalf(value), half);
    } else {
      ASSERT_TRUE(std::isnan(value));
      ASSERT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value))));
    }
  }
}

TEST(NumbersTest, HalvesRoundToTheNearestAndTiesToEven) {
  for (uint32_t half = 0; half < 0x7bff; ++half) {
    const double low = HalfByDefinition(static_cast<uint16_t>(half));
    const double high = HalfByDefinition(static_cast<uint16_t>(half + 1));
    const auto middle = static_cast<float>((low + high) / 2);  // exact
    ASSERT_EQ(FloatToHalf(middle), half % 2 == 0 ? half : half + 1) << half;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 0.0f)), half);
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 1e6f)), half + 1);
  }
  EXPECT_EQ(FloatToHalf(65519.99f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
}

TEST(NumbersTest, BfloatsRoundToTheNearestAndTiesToEven) {
  for (uint32_t upper = 0; upper < 0x7f7f; ++upper) {
    const float low = BfloatToFloat(static_cast<uint16_t>(upper));
    const float high = BfloatToFloat(static_cast<uint16_t>(upper + 1));
    const auto middle = static_cast<float>((static_cast<double>(low) + high) / 2);
    ASSERT_EQ(FloatToBfloat(low), upper);
    ASSERT_EQ(FloatToBfloat(middle), upper % 2 == 0 ? upper : upper + 1) << upper;
    ASSERT_EQ(FloatToBfloat(-middle), (upper % 2 == 0 ? upper : upper + 1) | 0x8000) << upper;
  }
  EXPECT_TRUE(std::isnan(BfloatToFloat(FloatToBfloat(std::nanf("")))));
}

TEST(NumbersTest, WhatDoesNotFitIsTold) {
  const float large[] = {70000.0f, 1.0f};
  const float infinite[] = {INFINITY, 1.0f};
  uint16_t words[2];
  EXPECT_FALSE(FromFloats(NumberType::kF16, large, 2, words));
  EXPECT_TRUE(FromFloats(NumberType::kF16, infinite, 2, words));
  EXPECT_TRUE(FromFloats(NumberType::kBf16, large, 2, words));
  std::vector<float> block(kQ8Values, 1.0f);
  uint8_t bytes[kQ8Bytes];
  EXPECT_TRUE(FromFloats(NumberType::kQ8_0, block.data(), kQ8Values, bytes));
  block[7] = NAN;
  EXPECT_FALSE(FromFloats(NumberType::kQ8_0, block.data(), kQ8Values, bytes));
  block[7] = 1e9f;
  EXPECT_FALSE(FromFloats(NumberType::kQ8_0, block.data(), kQ8Values, bytes));
}

TEST(NumbersTest, Q8IsWithinHalfAStep) {
  std::vector<float> values(kQ8Values);
  for (size_t i = 0; i < kQ8Values; ++i) values[i] = std::sin(static_cast<float>(i * i)) * 3;
  uint8_t bytes[kQ8Bytes];
  ASSERT_TRUE(FromFloats(NumberType::kQ8_0, values.data(), kQ8Values, bytes));
  uint16_t half;
  std::memcpy(&half, bytes, 2);
  const float scale = HalfToFloat(half);
  for (size_t i = 0; i < kQ8Values; ++i) {
    const float back = scale * static_cast<float>(static_cast<int8_t>(bytes[2 + i]));
    EXPECT_NEAR(back, values[i], 0.51f * scale + 127 * scale * 0x1p-11f);
  }
}

TEST(PiecesTest, AllRowsComeInOrder) {
  for (const int64_t rows : {0, 1, 7, 1000}) {
    std::string all;
    const auto make = [](int64_t first, int64_t count, Piece* piece) {
      piece->bytes.clear();
      for (int64_t row = first; row < first + count; ++row) {
        piece->bytes += std::to_string(row) + ",";
      }
      piece->read = piece->bytes;
    };
    ForPieces(rows, kPieceTarget / 3, make, [&](const Piece& piece) {
      EXPECT_EQ(piece.read, piece.bytes);
      all += piece.bytes;
    });
    std::string expected;
    for (int64_t row = 0; row < rows; ++row) expected += std::to_string(row) + ",";
    EXPECT_EQ(all, expected);
  }
}

TEST(PiecesTest, TheFirstFailureComesBack) {
  const auto make = [](int64_t first, int64_t, Piece*) {
    if (first >= 50) throw DataError("row " + std::to_string(first / 50));
  };
  const auto write = [](const Piece&) {};
  EXPECT_THROW(ForPieces(1000, kPieceTarget, make, write), Error);
  const auto full = [](const Piece&) { throw IoError("write", "x", ENOSPC); };
  EXPECT_THROW(ForPieces(40, kPieceTarget, make, full), Error);
}

std::string WhyRefused(const std::string& text) {
  try {
    ParseDocument(text, "x.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadData);
    return error.what();
  }
  return "";
}

TEST(DocumentsTest, HostileDocumentsAreRefused) {
  EXPECT_EQ(WhyRefused(R"({"a": {"b": [1, {"c": 2}]}, "b": {"a": 1}})"), "");
  EXPECT_EQ(WhyRefused(R"({"a": {"b": 1, "b": 2}})"), "read x.json: \"b\" is there twice");
  EXPECT_EQ(WhyRefused("[1]"), "read x.json: not a JSON object");
  EXPECT_EQ(WhyRefused("{\"a\": \"\xff\"}"), "read x.json: not valid JSON: see line 1, column 8");
  EXPECT_EQ(WhyRefused(""), "read x.json: not valid JSON: see line 1, column 1");
  EXPECT_EQ(WhyRefused("{\n  \"a\": 1,\n  \"b\" 2}"),
            "read x.json: not valid JSON: see line 3, column 7");
  const std::string deep(100000, '[');
  EXPECT_EQ(WhyRefused("{\"a\": " + deep + std::string(100000, ']') + "}"),
            "read x.json: nested too deeply");
}

TEST(DocumentsTest, PartsNameTheirPlace) {
  const nlohmann::json json = ParseDocument(R"({"a": [{"b": -1, "d": null}]})", "x");
  const JsonAt part = JsonAt(json, "", "read x").At("a").At(size_t{0});
  const auto why = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(why([&] { part.At("b").Number(5); }),
            "read x: a[0].b: must be a whole number from 0 to 5");
  EXPECT_EQ(why([&] { part.At("d"); }), "read x: a[0]: \"d\" is missing");
  EXPECT_EQ(why([&] { part.At("b").At("x"); }), "read x: a[0].b: must be an object");
  EXPECT_EQ(why([&] { part.At(size_t{0}); }), "read x: a[0]: must be a list");
}

}  // namespace
}  // namespace gpuctl::trainer
