#include "trainer/ranks/ranks.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "trainer/base/error.h"

namespace gpuctl::trainer {
namespace {

Ranks RanksOf(const std::map<std::string, std::string>& variables) {
  return ReadRanks([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  });
}

const std::map<std::string, std::string> kSecond = {
    {"WORLD_SIZE", "4"}, {"RANK", "1"}, {"MASTER_ADDR", "10.0.0.7"}, {"MASTER_PORT", "29500"}};

TEST(Ranks, OneProcessNeedsNoVariables) {
  EXPECT_EQ(RanksOf({}).size, 1);
  EXPECT_EQ(RanksOf({{"WORLD_SIZE", "1"}, {"RANK", "7"}}).size, 1);
}

TEST(Ranks, TheVariablesSayWhichOneItIs) {
  std::map<std::string, std::string> variables = kSecond;
  EXPECT_EQ(RanksOf(variables).rank, 1);
  EXPECT_EQ(RanksOf(variables).port, 29500);
  EXPECT_EQ(RanksOf(variables).local_size, 1);
  variables["MASTER_ADDR"] = "127.0.0.1";
  EXPECT_EQ(RanksOf(variables).local_size, 4);
  EXPECT_EQ(RanksOf(variables).local_rank, 1);
  variables["LOCAL_WORLD_SIZE"] = "2";
  variables["LOCAL_RANK"] = "0";
  EXPECT_EQ(RanksOf(variables).local_size, 2);
  EXPECT_EQ(RanksOf(variables).local_rank, 0);
}

TEST(Ranks, WhatCannotBeIsRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> wrong = {{"WORLD_SIZE", "0"},
                                                                  {"WORLD_SIZE", "-1"},
                                                                  {"WORLD_SIZE", "two"},
                                                                  {"RANK", "4"},
                                                                  {"RANK", ""},
                                                                  {"MASTER_PORT", "0"},
                                                                  {"MASTER_PORT", "65536"},
                                                                  {"MASTER_ADDR", ""},
                                                                  {"LOCAL_RANK", "1"},
                                                                  {"LOCAL_WORLD_SIZE", "5"},
                                                                  {"RANK", "99999999999999999999"}};
  for (const auto& [name, value] : wrong) {
    std::map<std::string, std::string> variables = kSecond;
    variables[name] = value;
    try {
      RanksOf(variables);
      ADD_FAILURE() << name << "=" << value;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kBadConfig);
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  }
}

TEST(Ranks, EqualSharesDifferByOne) {
  EXPECT_EQ(EqualRows(12, 3), (std::vector<int64_t>{4, 4, 4}));
  EXPECT_EQ(EqualRows(11, 3), (std::vector<int64_t>{3, 4, 4}));
  EXPECT_EQ(EqualRows(2, 2), (std::vector<int64_t>{1, 1}));
}

TEST(Ranks, RowsAreDividedBySpeed) {
  EXPECT_EQ(DivideRows(12, {1, 1, 1}), (std::vector<int64_t>{4, 4, 4}));
  EXPECT_EQ(DivideRows(12, {3, 1}), (std::vector<int64_t>{9, 3}));
  // None is left out, however slow.
  EXPECT_EQ(DivideRows(4, {1e6, 1e-6, 1}), (std::vector<int64_t>{2, 1, 1}));
  EXPECT_EQ(DivideRows(3, {5, 1, 1}), (std::vector<int64_t>{1, 1, 1}));
  for (int64_t rows = 5; rows < 3000; rows += 37) {
    const std::vector<double> speeds = {0.3, 7, 1.5, 1e-4, 2};
    const std::vector<int64_t> shares = DivideRows(rows, speeds);
    EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), int64_t{0}), rows);
    // No row that moves to another rank would make the slowest share shorter.
    double slowest = 0;
    for (size_t i = 0; i < shares.size(); ++i) {
      EXPECT_GE(shares[i], 1);
      if (shares[i] > 1) slowest = std::max(slowest, static_cast<double>(shares[i]) / speeds[i]);
    }
    for (size_t i = 0; i < shares.size(); ++i) {
      EXPECT_GE(static_cast<double>(shares[i] + 1) / speeds[i], slowest * (1 - 1e-9));
    }
  }
}

}  // namespace
}  // namespace gpuctl::trainer
