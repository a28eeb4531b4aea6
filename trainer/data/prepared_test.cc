// Prepared data: reading it, and packing its rows into windows.

#include "trainer/data/prepared.h"

#include <gtest/gtest.h>

#include <map>

#include "trainer/base/files.h"
#include "trainer/data/packed_rows.h"
#include "trainer/data/prompts.h"
#include "trainer/data/training_data.h"
#include "trainer/tests/expect_error.h"
#include "trainer/tests/temp_dir.h"

namespace gpuctl::trainer {
namespace {

// Rows of the given sizes. An id tells its row and its place, and is not 0; the first half is not
// learned.
std::vector<std::vector<uint32_t>> RowsOfSizes(const std::vector<int64_t>& sizes) {
  std::vector<std::vector<uint32_t>> rows;
  for (size_t row = 0; row < sizes.size(); ++row) {
    rows.emplace_back();
    for (int64_t t = 0; t < sizes[row]; ++t) {
      const auto id = static_cast<uint32_t>(row * 100 + 100) + static_cast<uint32_t>(t);
      rows.back().push_back(2 * t >= sizes[row] ? id | kLearnedBit : id);
    }
  }
  return rows;
}

struct FilledWindow {
  explicit FilledWindow(int64_t context)
      : inputs(static_cast<size_t>(context)), targets(inputs.size()), starts(inputs.size()) {}
  WindowSlot slot() { return {inputs.data(), targets.data(), starts.data()}; }
  std::vector<int64_t> inputs, targets, starts;
  int64_t scored = 0;
};

std::vector<FilledWindow> FillAll(const PackedRows& packed, int64_t context) {
  std::vector<FilledWindow> windows;
  for (int64_t window = 0; window < packed.windows(); ++window) {
    windows.emplace_back(context);
    windows.back().scored = packed.Fill(window, 1000000, windows.back().slot());
  }
  return windows;
}

// Checks that each row is somewhere, once and whole, and that nothing else is there.
void ExpectEachRowOnce(const std::vector<std::vector<uint32_t>>& rows, int64_t context,
                       const std::vector<FilledWindow>& windows) {
  std::map<int64_t, int64_t> places;  // of each row
  int64_t scored = 0, learned = 0;
  for (const FilledWindow& window : windows) {
    for (int64_t t = 0; t < context; ++t) {
      const auto at = static_cast<size_t>(t);
      const int64_t begin = window.starts[at];
      ASSERT_LE(begin, t);
      ASSERT_EQ(window.starts[static_cast<size_t>(begin)], begin);
      if (window.inputs[at] == 0) {  // padding
        EXPECT_EQ(window.targets[at], kIgnore);
        continue;
      }
      const auto row = static_cast<size_t>(window.inputs[static_cast<size_t>(begin)] / 100 - 1);
      const auto place = static_cast<size_t>(t - begin);
      ASSERT_LT(place + 1, rows[row].size());
      EXPECT_EQ(window.inputs[at], rows[row][place] & ~kLearnedBit);
      const bool wanted = (rows[row][place + 1] & kLearnedBit) != 0;
      EXPECT_EQ(window.targets[at],
                wanted ? int64_t{rows[row][place + 1] & ~kLearnedBit} : kIgnore);
      ++places[static_cast<int64_t>(row)];
    }
    scored += window.scored;
    for (const int64_t target : window.targets) learned += target != kIgnore;
  }
  EXPECT_EQ(scored, learned);
  for (size_t row = 0; row < rows.size(); ++row) {
    EXPECT_EQ(places[static_cast<int64_t>(row)],
              std::min(context, static_cast<int64_t>(rows[row].size()) - 1))
        << "row " << row;
  }
}

TEST(PackedRowsTest, EachRowIsInOneWindowWhole) {
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < 60; ++i) sizes.push_back(2 + (i * 7) % 31);
  const auto words = RowsOfSizes(sizes);
  const TokenRows rows(words);
  for (const int64_t context : {31, 32, 64, 1000}) {
    const PackedRows packed(rows, context, /*pack=*/true, 1);
    ExpectEachRowOnce(words, context, FillAll(packed, context));
    EXPECT_EQ(packed.truncated_rows(), 0);
    // Sizes up to half of the window leave little room.
    if (context == 64) {
      EXPECT_GT(packed.filled() * 100, 95 * (packed.windows() - 1) * context);
    }
  }
}

TEST(PackedRowsTest, LongRowsLoseTheirEnd) {
  const auto words = RowsOfSizes({50, 10, 11, 3});
  const TokenRows rows(words);
  const PackedRows packed(rows, 10, /*pack=*/true, 1);
  EXPECT_EQ(packed.truncated_rows(), 1);
  EXPECT_EQ(packed.windows(), 4);  // 10, 10, 9 and 2 places
  ExpectEachRowOnce(words, 10, FillAll(packed, 10));
}

TEST(PackedRowsTest, WithoutPackingEachRowHasItsWindow) {
  const auto words = RowsOfSizes({5, 3, 4});
  const TokenRows rows(words);
  const PackedRows packed(rows, 16, /*pack=*/false, 1);
  ASSERT_EQ(packed.windows(), 3);
  const std::vector<FilledWindow> windows = FillAll(packed, 16);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(windows[i].inputs[0], static_cast<int64_t>(i) * 100 + 100);
  ExpectEachRowOnce(words, 16, windows);
}

TEST(PackedRowsTest, TheSeedMixesRowsOfOneLengthAndNothingElseChanges) {
  const auto words = RowsOfSizes(std::vector<int64_t>(40, 9));
  const TokenRows rows(words);
  const auto order = [&](uint64_t seed) {
    std::vector<int64_t> first;
    for (const FilledWindow& window : FillAll(PackedRows(rows, 24, true, seed), 24)) {
      first.push_back(window.inputs[0]);
    }
    return first;
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
  EXPECT_EQ(order(1).size(), 14u);  // three in each
}

TEST(PackedRowsTest, AnIdBeyondTheVocabularyIsBadData) {
  const TokenRows rows({{1, 5, 9 | kLearnedBit}});
  const PackedRows packed(rows, 8, true, 1);
  FilledWindow window(8);
  EXPECT_EQ(packed.Fill(0, 10, window.slot()), 1);
  EXPECT_ERROR(packed.Fill(0, 9, window.slot()), ExitCode::kBadData, "token 9");
}

class PreparedTest : public ::testing::Test {
 protected:
  void Write(const std::string& part, const std::vector<std::vector<uint32_t>>& rows) {
    std::string tokens, ends;
    uint64_t end = 0;
    for (const std::vector<uint32_t>& row : rows) {
      tokens.append(reinterpret_cast<const char*>(row.data()), row.size() * sizeof(uint32_t));
      end += row.size();
      ends.append(reinterpret_cast<const char*>(&end), sizeof(end));
    }
    WriteFileDurably(dir_.path() + "/" + part + kTokensSuffix, tokens);
    WriteFileDurably(dir_.path() + "/" + part + kEndsSuffix, ends);
    description_["parts"][part] = {{"rows", rows.size()}, {"tokens", end}};
  }
  void WriteDescription() {
    WriteFileDurably(dir_.path() + "/" + kDatasetFile, description_.dump());
  }
  void Expect(const std::string& words) {
    EXPECT_ERROR(OpenPrepared(dir_.path()), ExitCode::kBadData, words);
  }

  TempDir dir_;
  nlohmann::json description_ = {
      {"format", 1}, {"digest", "d"}, {"tokenizer_sha256", "t"}, {"id_end", 1000}};
};

TEST_F(PreparedTest, IsReadAsItWasWritten) {
  EXPECT_FALSE(IsPrepared(dir_.path()));
  Write(kTrainPart, RowsOfSizes({4, 2}));
  Write(kHeldOutPart, RowsOfSizes({3}));
  WriteDescription();
  EXPECT_TRUE(IsPrepared(dir_.path()));
  const PreparedData data = OpenPrepared(dir_.path());
  EXPECT_EQ(data.digest, "d");
  EXPECT_EQ(data.id_end, 1000);
  ASSERT_EQ(data.train.rows(), 2);
  EXPECT_EQ(data.train.tokens(), 6);
  EXPECT_EQ(data.train.Size(1), 2);
  EXPECT_EQ(data.train.Words(1)[1], 201 | kLearnedBit);
  EXPECT_EQ(data.held_out.rows(), 1);
}

TEST_F(PreparedTest, DamageIsNamed) {
  Write(kTrainPart, RowsOfSizes({4, 2}));
  WriteDescription();
  Expect("held_out.tokens: no such file");
  Write(kHeldOutPart, RowsOfSizes({3}));
  WriteDescription();
  const std::string tokens_path = dir_.path() + "/train.tokens";
  const std::string tokens = ReadWholeFile(tokens_path);
  WriteFileDurably(tokens_path, tokens.substr(0, tokens.size() - 2));
  Expect("train.tokens: is cut off");
  WriteFileDurably(tokens_path, tokens.substr(0, tokens.size() - 4));
  Expect("row 1 has no valid end");
  WriteFileDurably(tokens_path, tokens + "abcd");
  Expect("does not end with its last row");
  WriteFileDurably(tokens_path, tokens);
  WriteFileDurably(dir_.path() + "/train.ends", std::string(16, '\0'));
  Expect("row 0 has no valid end");
  Write(kTrainPart, RowsOfSizes({4}));  // whole, and not what the description says
  Expect("has other rows");
  description_["format"] = 3;
  WriteDescription();
  Expect("format 3");
  for (const char* key : {"format", "digest", "tokenizer_sha256", "id_end", "parts"}) {
    nlohmann::json good = description_;
    description_["format"] = 1;
    for (const nlohmann::json& wrong : {nlohmann::json(nullptr), nlohmann::json(-1),
                                        nlohmann::json::array(), nlohmann::json(1.5)}) {
      description_[key] = wrong;
      WriteDescription();
      Expect("dataset.json");
    }
    description_ = good;
  }
  WriteFileDurably(dir_.path() + "/" + kDatasetFile, "[1");
  Expect("not valid JSON");
}

TEST_F(PreparedTest, IsWhatARunTrainsOnWhenItFitsTheModel) {
  Write(kTrainPart, RowsOfSizes({4, 2}));
  Write(kHeldOutPart, RowsOfSizes({3}));
  WriteDescription();
  Config config;
  config.data.paths = {dir_.path()};
  config.model.vocab_size = 1000;
  config.model.context = 8;
  const auto data = OpenTrainingData(config, "t");
  EXPECT_TRUE(data->packed());
  EXPECT_EQ(data->windows_per_epoch(), 1);
  EXPECT_FALSE(data->bigram_entropy());
  EXPECT_ERROR(OpenTrainingData(config, "other"), ExitCode::kBadData, "another tokenizer");
  config.model.vocab_size = 999;
  EXPECT_ERROR(OpenTrainingData(config, ""), ExitCode::kBadData, "ids up to 999");
  config.data.paths.push_back(dir_.path());
  EXPECT_ERROR(OpenTrainingData(config, ""), ExitCode::kBadConfig, "beside other paths");
}

TEST(PromptsTest, EveryByteComesBackAndNamedPromptsAreFound) {
  const TempDir folder;
  EncodedPrompts written;
  written.chat = true;
  written.stop_ids = {7};
  written.prompts = {{"one", {1, 2}}, {"zw\u00f6lf\n", {3}}, {"three", {4}}};
  for (int byte = 0; byte < 256; ++byte) written.pieces.emplace_back(2, static_cast<char>(byte));
  WriteFileDurably(folder.path() + "/" + kPromptsFile, PromptsToJson(written));
  SampleConfig sample;
  sample.prompt = "three";
  sample.prompts = {"zw\u00f6lf\n"};
  const EncodedPrompts read = FindPrompts(sample, folder.path());
  EXPECT_TRUE(read.chat);
  EXPECT_EQ(read.stop_ids, written.stop_ids);
  EXPECT_EQ(read.pieces, written.pieces);
  ASSERT_EQ(read.prompts.size(), 2u);
  EXPECT_EQ(read.prompts[0].text, "three");
  EXPECT_EQ(read.prompts[1].ids, written.prompts[1].ids);
  EXPECT_EQ(read.TextOf({65, 300, -1, 195}), "AA\xc3\xc3");
  sample.prompts = {"two"};
  EXPECT_ERROR(FindPrompts(sample, folder.path()), ExitCode::kBadConfig, "\"two\"");
  EXPECT_ERROR(FindPrompts(sample, folder.path() + "/none"), ExitCode::kBadConfig, "three");
}

}  // namespace
}  // namespace gpuctl::trainer
