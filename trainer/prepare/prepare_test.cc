#include "trainer/prepare/prepare.h"

#include <gtest/gtest.h>

#include <atomic>

#include "trainer/prepare/digest_set.h"
#include "trainer/prepare/row_source.h"
#include "trainer/prepare/test_model.h"
#include "trainer/tests/expect_error.h"
#include "trainer/tests/temp_dir.h"

namespace gpuctl::trainer {
namespace {

class PrepareTest : public testing::Test {
 protected:
  PrepareTest() {
    options_.model = dir_.path() + "/model";
    options_.out = dir_.path() + "/out";
    options_.context = 100;
    WriteTestModel(options_.model, kTestTemplate);
  }

  void Write(const std::string& name, const std::string& bytes) {
    WriteFileDurably(dir_.path() + "/" + name, bytes);
    options_.data.push_back(dir_.path() + "/" + name);
  }

  std::vector<std::string> Rows(const char* part) const {
    const TokenRows rows(options_.out, part);
    std::vector<std::string> shown;
    for (int64_t row = 0; row < rows.rows(); ++row) {
      shown.push_back(ShownWords(rows.Words(row), static_cast<size_t>(rows.Size(row))));
    }
    return shown;
  }

  TempDir dir_;
  PrepareOptions options_;
};

using Texts = std::vector<std::string>;
constexpr char kRows[] =
    "{\"text\": \"one\"}\n{\"text\": \"two\"}\n"
    "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, "
    "{\"role\": \"assistant\", \"content\": \"yes\"}]}\n{\"text\": \"one\"}\n";

TEST_F(PrepareTest, CountsWhatItWrites) {
  Write("a.jsonl", kRows);
  Write("b.txt", "three");
  WriteFileDurably(dir_.path() + "/h.jsonl", "{\"text\": \"one\"}\n{\"text\": \"h\"}\n");
  options_.held_out_file = dir_.path() + "/h.jsonl";
  const PrepareReport report = Prepare(options_).value();
  EXPECT_EQ(Rows(kTrainPart), (Texts{"<s>[one<e>]", "<s>[two<e>]", "u:q<e>\na:[yes<e>]\n",
                                     "<s>[one<e>]", "<s>[three<e>]"}));
  EXPECT_EQ(Rows(kHeldOutPart), (Texts{"<s>[one<e>]", "<s>[h<e>]"}));
  EXPECT_EQ(report.duplicates, 2);
  EXPECT_EQ(report.known_held_out, 1);
  EXPECT_EQ(report.chat_tokens, 12);
  EXPECT_EQ(report.chat_learned, 4);
  EXPECT_EQ(ReportJson(report)["kinds"].dump(),
            R"({"messages":1,"prompt":0,"conversations":0,"text":6,"chosen":0})");
  const std::string text = ReportText(report, 2);
  EXPECT_NE(text.find("7 (1 messages, 6 text)"), std::string::npos) << text;
  EXPECT_NE(text.find("33.3 % of those of conversations"), std::string::npos) << text;
  EXPECT_NE(text.find("HINT: 1 held-out rows are trained on, too"), std::string::npos) << text;
}

TEST_F(PrepareTest, TellsAHeldOutPartThatIsFarFromItsShare) {
  std::string rows;
  for (int i = 0; i < 40; ++i) rows += "{\"text\": \"row " + std::to_string(i) + "\"}\n";
  Write("a.jsonl", rows);
  options_.context = 10000;
  options_.held_out = 0.3;
  const std::string even = ReportText(Prepare(options_).value(), 1);
  EXPECT_EQ(even.find("HINT"), std::string::npos) << even;
  Write("long.txt", std::string(5000, 'x'));  // in one part or the other
  const std::string uneven = ReportText(Prepare(options_).value(), 1);
  EXPECT_NE(uneven.find(" of the tokens are held out, and "), std::string::npos) << uneven;
}

constexpr char kPairs[] =
    "{\"prompt\": \"p\", \"chosen\": \"a\", \"rejected\": \"b\"}\n"
    "{\"chosen\": [{\"role\": \"user\", \"content\": \"q\"}, "
    "{\"role\": \"assistant\", \"content\": \"yes\"}], "
    "\"rejected\": [{\"role\": \"user\", \"content\": \"q\"}, "
    "{\"role\": \"assistant\", \"content\": \"no\"}]}\n";

TEST_F(PrepareTest, PairsStayTogether) {
  Write("a.jsonl", kPairs);
  WriteFileDurably(dir_.path() + "/h.jsonl",
                   "{\"prompt\": \"r\", \"chosen\": \"c\", \"rejected\": \"d\"}\n");
  options_.held_out_file = dir_.path() + "/h.jsonl";
  const PrepareReport report = Prepare(options_).value();
  EXPECT_EQ(Rows(kTrainPart),
            (Texts{"<s>p[a<e>]", "<s>p[b<e>]", "u:q<e>\na:[yes<e>]\n", "u:q<e>\na:[no<e>]\n"}));
  EXPECT_EQ(Rows(kHeldOutPart), (Texts{"<s>r[c<e>]", "<s>r[d<e>]"}));
  EXPECT_EQ(report.samples.size(), 2u);
  const std::string text = ReportText(report, 2);
  EXPECT_NE(text.find("train       2 pairs, "), std::string::npos) << text;
  EXPECT_NE(text.find("3 (3 chosen)"), std::string::npos) << text;
  const PreparedData data = OpenPrepared(options_.out);
  EXPECT_TRUE(data.pairs);
  EXPECT_EQ(data.description["format"], kPairsFormat);
  // One row moves to the other part as a whole.
  options_.held_out_file.clear();
  for (const double share : {0.000001, 0.999999}) {
    options_.held_out = share;
    Prepare(options_);
    EXPECT_EQ(Rows(kTrainPart).size(), 2u);
    EXPECT_EQ(Rows(kHeldOutPart).size(), 2u);
    EXPECT_NE(OpenPrepared(options_.out).digest, data.digest);
  }
}

TEST_F(PrepareTest, PairsAndOtherRowsDoNotMix) {
  Write("a.jsonl", kPairs);
  Write("b.jsonl", "{\"text\": \"one\"}\n");
  Write("c.txt", "two");
  EXPECT_ERROR(Prepare(options_), ExitCode::kBadData, "b.jsonl:1: is no pair, and rows before");
  EXPECT_ERROR(Prepare(options_), ExitCode::kBadData, "c.txt:1: is no pair, and rows before");
  options_.skip_bad_rows = true;
  EXPECT_EQ(Prepare(options_).value().bad, 2);
  EXPECT_EQ(Rows(kTrainPart).size() + Rows(kHeldOutPart).size(), 4u);
  options_.data = {dir_.path() + "/b.jsonl", dir_.path() + "/a.jsonl"};
  options_.skip_bad_rows = false;
  EXPECT_ERROR(Prepare(options_), ExitCode::kBadData, "a.jsonl:2: is a pair, and rows before");
}

TEST_F(PrepareTest, ADocumentInPiecesIsOneSequence) {
  std::string document;
  for (int i = 0; document.size() < 2 * kDocumentPieceBytes; ++i) {
    document += "line " + std::to_string(i) + "\n";
  }
  Write("a.txt", document);
  Write("b.jsonl", "{\"text\": \"b\"}\n{\"text\": \"c\"}\n");
  for (const double share : {0.000001, 0.999999}) {
    options_.held_out = share;
    Prepare(options_);
    for (const char* part : {kTrainPart, kHeldOutPart}) {
      const TokenRows rows(options_.out, part);
      std::string read;
      for (int64_t row = 0; row < rows.rows(); ++row) {
        EXPECT_LE(rows.Size(row), 101);
        for (int64_t i = 0; i < rows.Size(row); ++i) {
          const uint32_t word = rows.Words(row)[i];
          EXPECT_EQ((word & kLearnedBit) != 0, i > 0);
          // The first token of a row is the last one of the row before.
          if (i == 0 && row > 0 && word != kTestBos) {
            EXPECT_EQ(read.back(), static_cast<char>(word));
          } else if (word != kTestBos && word != (kTestEos | kLearnedBit)) {
            read += static_cast<char>(word);
          }
        }
      }
      const bool here = read.find("line") != std::string::npos;
      EXPECT_EQ(read.find(document) != std::string::npos, here);
      EXPECT_TRUE(here || read.size() <= 2);
    }
  }
}

TEST_F(PrepareTest, BadRowsAreListedOrSkipped) {
  std::string rows;
  for (int i = 0; i < 12; ++i) rows += "{\"text\": " + std::to_string(i) + "}\n";
  Write("a.jsonl", rows + kRows);
  try {
    Prepare(options_);
    ADD_FAILURE();
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_EQ(error.code(), ExitCode::kBadData);
    EXPECT_NE(what.find("12 rows cannot be used"), std::string::npos) << what;
    EXPECT_NE(what.find("a.jsonl:10: "), std::string::npos) << what;
    EXPECT_EQ(what.find("a.jsonl:11: "), std::string::npos) << what;
  }
  EXPECT_EQ(ListDirectory(dir_.path()), (Texts{"a.jsonl", "model"}));
  options_.skip_bad_rows = true;
  EXPECT_EQ(Prepare(options_)->bad, 12);
}

TEST_F(PrepareTest, AFolderWithoutTemplateIsNotTheRowsFault) {
  WriteTestModel(options_.model, "");
  Write("a.jsonl", kRows);
  options_.skip_bad_rows = true;
  EXPECT_ERROR(Prepare(options_), ExitCode::kBadData, "has no chat template");
}

TEST_F(PrepareTest, StopLeavesNothing) {
  Write("a.jsonl", kRows);
  std::atomic<int> asked{0};
  for (int after = 0; after < 6; ++after) {
    asked = 0;
    options_.stop = [&] { return asked++ >= after; };
    EXPECT_FALSE(Prepare(options_).has_value());
    EXPECT_EQ(ListDirectory(dir_.path()), (Texts{"a.jsonl", "model"}));
  }
}

TEST_F(PrepareTest, TheContextIsTheModels) {
  Write("a.jsonl", kRows);
  options_.context = 0;
  EXPECT_ERROR(Prepare(options_), ExitCode::kBadConfig, "config.json");
  WriteFileDurably(options_.model + "/config.json",
                   R"({"model_type": "llama", "vocab_size": 100, "hidden_size": 16,
                       "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
                       "max_position_embeddings": 7, "rms_norm_eps": 1e-6})");
  const PrepareReport report = Prepare(options_).value();
  EXPECT_EQ(report.context, 7);
  EXPECT_EQ(report.parts[kTrain].longest, 8);
  EXPECT_NE(ReportText(report, 1).find("ids up to 257"), std::string::npos);
  options_.context = 8;
  EXPECT_ERROR(Prepare(options_), ExitCode::kBadConfig, "more than the model's 7");
}

TEST_F(PrepareTest, SamplesShowTheMaskAndNoControlCharacters) {
  const Tokenizer tokenizer = Tokenizer::Load(options_.model + "/tokenizer.json");
  std::vector<uint32_t> words = {kTestBos};
  for (const char c : std::string("a\x1b[31m")) words.push_back(static_cast<uint32_t>(c));
  words.push_back('b' | kLearnedBit);
  EXPECT_EQ(ShownSample(words, tokenizer, false), "<s>a\\x1b[31m⟦b⟧");
  EXPECT_EQ(ShownSample(words, tokenizer, true), "<s>a\\x1b[31m\x1b[1;32mb\x1b[0m");
}

TEST(DigestSetTest, FindsWhatItHas) {
  DigestSet set;
  for (uint64_t i = 0; i < 10000; ++i) EXPECT_TRUE(set.Insert({i * i, i % 7 + (i << 3)})) << i;
  for (uint64_t i = 0; i < 10000; ++i) EXPECT_FALSE(set.Insert({i * i, i % 7 + (i << 3)})) << i;
}

}  // namespace
}  // namespace gpuctl::trainer
