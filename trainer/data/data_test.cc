#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "trainer/base/files.h"
#include "trainer/data/bigram.h"
#include "trainer/data/corpus.h"
#include "trainer/data/windows.h"
#include "trainer/tests/expect_error.h"
#include "trainer/tests/temp_dir.h"

namespace gpuctl::trainer {
namespace {

TokenStream Counting(int64_t size) {
  TokenStream stream;
  for (int64_t i = 0; i < size; ++i) stream.push_back(static_cast<uint16_t>(i % 251));
  return stream;
}

std::vector<std::string> NumberedDocuments(int count) {
  std::vector<std::string> documents;
  for (int i = 0; i < count; ++i) {
    documents.push_back("document number " + std::to_string(i) + std::string(80, 'x'));
  }
  return documents;
}

TEST(WindowsTest, PermuteIsAPermutationForEveryCount) {
  for (const int64_t count : {1, 2, 3, 5, 16, 17, 100, 1000}) {
    std::set<int64_t> seen;
    for (int64_t i = 0; i < count; ++i) seen.insert(Permute(i, count, 3, 0));
    EXPECT_EQ(static_cast<int64_t>(seen.size()), count);
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), count - 1);
  }
}

TEST(WindowsTest, EveryWindowComesOnceAnEpochInAnotherOrder) {
  constexpr int64_t kContext = 16;
  const TokenStream stream = Counting(1000);
  const TrainingWindows windows(stream, kContext, 5);
  const int64_t count = windows.windows_per_epoch();
  std::vector<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<int64_t> starts;
    std::vector<int64_t> order;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t start = windows.Start(epoch * count + i);
      EXPECT_GE(start, 0);
      EXPECT_LE(start + kContext + 1, 1000);
      starts.insert(start);
      order.push_back(start / kContext);
    }
    EXPECT_EQ(static_cast<int64_t>(starts.size()), count);
    const int64_t offset = *starts.begin();
    for (const int64_t start : starts) EXPECT_EQ((start - offset) % kContext, 0);
    orders.push_back(order);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
}

TEST(WindowsTest, OrderDependsOnTheSeedAlone) {
  const TokenStream stream = Counting(4000);
  const TrainingWindows a(stream, 16, 5), b(stream, 16, 5), c(stream, 16, 6);
  bool differs = false;
  for (int64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(a.Start(i), b.Start(i));
    differs |= a.Start(i) != c.Start(i);
  }
  EXPECT_TRUE(differs);
}

TEST(WindowsTest, TargetsAreInputsShiftedAndDocumentStartsAreNotScored) {
  TokenStream stream = Counting(40);
  stream[20] = kBos;
  const TrainingWindows windows(stream, 8, 1);
  std::vector<int64_t> inputs(8), targets(8);
  int64_t ignored = 0;
  for (int64_t i = 0; i < windows.windows_per_epoch(); ++i) {
    const int64_t start = windows.Start(i);
    const int64_t scored = windows.Fill(i, inputs.data(), targets.data());
    EXPECT_EQ(scored, 8 - std::count(targets.begin(), targets.end(), kIgnore));
    for (int64_t t = 0; t < 8; ++t) {
      const auto at = static_cast<size_t>(start + t);
      EXPECT_EQ(inputs[static_cast<size_t>(t)], stream[at]);
      const int64_t expected = stream[at + 1] == kBos ? kIgnore : stream[at + 1];
      EXPECT_EQ(targets[static_cast<size_t>(t)], expected);
      ignored += expected == kIgnore;
    }
  }
  EXPECT_LE(ignored, 1);
}

TEST(WindowsTest, TooLittleDataIsRefused) {
  const TokenStream stream = Counting(31);
  EXPECT_ERROR(TrainingWindows(stream, 16, 1), ExitCode::kBadData, "fewer than two windows");
  const TokenStream empty;
  EXPECT_ERROR(HeldOutWindows(empty, 16, 1), ExitCode::kBadData, "empty");
}

TEST(WindowsTest, HeldOutWindowsScoreEveryByteOnce) {
  const TokenStream stream = Counting(100);
  const HeldOutWindows windows(stream, 16, 1000);
  std::vector<int64_t> inputs(16), targets(16);
  int64_t scored = 0;
  for (int64_t i = 0; i < windows.count(); ++i) {
    scored += windows.Fill(i, inputs.data(), targets.data());
  }
  EXPECT_EQ(scored, 99);
  EXPECT_EQ(HeldOutWindows(stream, 16, 3).count(), 3);
}

TEST(BigramTest, ProbabilitiesSumToOne) {
  const BigramModel model(Encode("the cat sat on the mat, the end"));
  for (const int32_t previous : {int32_t{'t'}, int32_t{'q'}, kBos}) {
    double sum = 0;
    for (int32_t next = 0; next < 256; ++next)
      sum += std::exp(model.LogProbability(previous, next));
    EXPECT_NEAR(sum, 1.0, 1e-12);
  }
}

TEST(BigramTest, AlternatingTextIsNearlyFreeAndRandomTextIsNot) {
  std::string alternating, noise;
  uint32_t state = 1;
  for (int i = 0; i < 20000; ++i) {
    alternating += i % 2 == 0 ? 'a' : 'b';
    state = state * 1664525 + 1013904223;
    noise += static_cast<char>('a' + (state >> 24) % 16);
  }
  const TokenStream easy = Encode(alternating), hard = Encode(noise);
  EXPECT_LT(BigramEntropy(easy, HeldOutWindows(easy, 64, 50), 64), 0.01);
  EXPECT_NEAR(BigramEntropy(hard, HeldOutWindows(hard, 64, 1000), 64), std::log(16.0), 0.02);
}

TEST(CorpusTest, SplitByDocumentIsDisjointDeterministicAndNearTheShare) {
  DataConfig config;
  const std::vector<std::string> documents = NumberedDocuments(200);
  const Corpus corpus = MakeCorpus(documents, config, 1);
  EXPECT_EQ(corpus.split, "document");
  const double share = static_cast<double>(corpus.held_out.size()) /
                       static_cast<double>(corpus.held_out.size() + corpus.train.size());
  EXPECT_NEAR(share, 0.1, 0.02);
  EXPECT_EQ(MakeCorpus(documents, config, 1).digest, corpus.digest);
  EXPECT_NE(MakeCorpus(documents, config, 2).digest, corpus.digest);
  const auto documents_of = [](const TokenStream& stream) {
    std::set<std::string> found;
    std::string current;
    for (const uint16_t token : stream) {
      if (token == kBos) {
        if (!current.empty()) found.insert(current);
        current.clear();
      } else {
        current += static_cast<char>(token);
      }
    }
    found.insert(current);
    return found;
  };
  const std::set<std::string> train = documents_of(corpus.train);
  for (const std::string& document : documents_of(corpus.held_out)) {
    EXPECT_EQ(train.count(document), 0u);
  }
  EXPECT_EQ(train.size() + documents_of(corpus.held_out).size(), 200u);
}

TEST(CorpusTest, CopiesBinariesAndEmptyFilesAreLeftOut) {
  DataConfig config;
  config.split = "tail";
  const Corpus corpus = MakeCorpus(
      {"hello world", "hello world", "", std::string("\0\1", 2), "other text"}, config, 1);
  EXPECT_EQ(corpus.documents, 2);
  EXPECT_EQ(corpus.duplicates, 1);
  EXPECT_EQ(corpus.not_text, 1);
  EXPECT_EQ(corpus.split, "tail");
}

TEST(CorpusTest, ReadsDirectoriesByExtensionAndLeavesOutTheExcluded) {
  const TempDir directory;
  const std::string& root = directory.path();
  MakeDirectories(root + "/sub");
  MakeDirectories(root + "/build");
  MakeDirectories(root + "/.hidden");
  WriteFileDurably(root + "/a.txt", "first text");
  WriteFileDurably(root + "/sub/b.md", "second text");
  WriteFileDurably(root + "/c.bin", "not wanted");
  WriteFileDurably(root + "/build/d.txt", "not wanted either");
  WriteFileDurably(root + "/.hidden/e.txt", "nor this");
  DataConfig config;
  config.paths = {root};
  EXPECT_EQ(LoadCorpus(config, 1).documents, 2);
  config.extensions = {};
  EXPECT_EQ(LoadCorpus(config, 1).documents, 3);
  config.paths = {root + "/c.bin"};
  config.extensions = {".txt"};
  EXPECT_EQ(LoadCorpus(config, 1).documents, 1);  // named explicitly
}

TEST(CorpusTest, MissingOrUselessDataIsRefused) {
  DataConfig config;
  EXPECT_ERROR(LoadCorpus(config, 1), ExitCode::kBadConfig, "data.paths is empty");
  config.paths = {"/nonexistent/data"};
  EXPECT_ERROR(LoadCorpus(config, 1), ExitCode::kBadData, "/nonexistent/data");
  const TempDir directory;
  config.paths = {directory.path()};
  EXPECT_ERROR(LoadCorpus(config, 1), ExitCode::kBadData, "nothing to train on");
}

}  // namespace
}  // namespace gpuctl::trainer
