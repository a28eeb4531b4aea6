#include "trainer/tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "trainer/tests/expect_error.h"
#include "trainer/tokenizer/test_small_tokenizers.h"

namespace gpuctl::trainer {
namespace {

using Ids = std::vector<int32_t>;
using nlohmann::json;

Bpe Read(const json& document, bool byte_level = false) {
  return Bpe::Read(JsonAt(document["model"], "model"), byte_level);
}

Ids Encode(const Bpe& bpe, const std::string& text) {
  BpeScratch scratch;
  Ids ids;
  bpe.Encode(text, scratch, &ids);
  Ids again;
  bpe.Encode(text, scratch, &again);  // from the cache
  EXPECT_EQ(again, ids);
  return ids;
}

TEST(BpeTest, TheFirstMergeOfTheListCountsAndThenTheLeftmost) {
  const json document =
      SmallTokenizer({"a", "b", "c", "bc", "ab", "aa", "abc"}, {"b c", "a b", "a a", "a bc"});
  const Bpe bpe = Read(document);
  EXPECT_EQ(Encode(bpe, "abc"), Ids{6});
  EXPECT_EQ(Encode(bpe, "abab"), (Ids{4, 4}));
  EXPECT_EQ(Encode(bpe, "aaa"), (Ids{5, 0}));
  EXPECT_EQ(Encode(bpe, "x"), Ids{});  // no unk_token
}

TEST(BpeTest, BothSpellingsOfMergesAreRead) {
  json document = SmallTokenizer({"a", " ", "b", "a ", "a b"}, {});
  document["model"]["merges"] = json::parse(R"([["a", " "], ["a ", "b"]])");
  EXPECT_EQ(Encode(Read(document), "a b"), Ids{4});
  document["model"]["merges"] = json::array({"#version: 0.2"});
  EXPECT_EQ(Encode(Read(document), "a b"), (Ids{0, 1, 2}));
}

// The same merges one after the other, without a heap or a cache.
Ids Slowly(const Bpe& bpe, const std::vector<std::string>& merges, std::string_view text) {
  std::vector<std::string> parts;
  for (const char c : text) parts.emplace_back(1, c);
  for (;;) {
    size_t best = merges.size();
    size_t place = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      for (size_t rank = 0; rank < best; ++rank) {
        if (merges[rank] == parts[i] + " " + parts[i + 1]) {
          best = rank;
          place = i;
        }
      }
    }
    if (best == merges.size()) break;
    parts[place] += parts[place + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) ids.push_back(*bpe.Find(part));
  return ids;
}

TEST(BpeTest, LongAndShortPiecesMergeAlike) {
  std::mt19937 random(7);
  std::vector<std::string> tokens = {"a", "b", "c"};
  std::vector<std::string> merges;
  while (tokens.size() < 60) {
    const std::string& left = tokens[random() % tokens.size()];
    const std::string& right = tokens[random() % tokens.size()];
    const std::string both = left + right;
    if (both.size() > 12 || std::find(tokens.begin(), tokens.end(), both) != tokens.end()) continue;
    merges.push_back(left + " " + right);
    tokens.push_back(both);
  }
  const Bpe bpe = Read(SmallTokenizer(tokens, merges));
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (size_t size = random() % 200; size > 0; --size)
      text += static_cast<char>('a' + random() % 3);
    ASSERT_EQ(Encode(bpe, text), Slowly(bpe, merges, text)) << text;
  }
}

TEST(BpeTest, AWordOfTwoMillionLettersIsNoTrouble) {
  const Bpe bpe = Read(SmallTokenizer({"a", "aa", "aaaa"}, {"a a", "aa aa"}));
  EXPECT_EQ(Encode(bpe, std::string(2'000'000, 'a')), Ids(500'000, 2));
}

TEST(BpeTest, UnknownCharactersBecomeBytesOrTheUnknownToken) {
  std::vector<std::string> tokens = {"<unk>", "a", "<0xC3>", "<0xA9>", "<0xE4>"};
  json document = SmallTokenizer(tokens, {});
  document["model"]["unk_token"] = "<unk>";
  document["model"]["byte_fallback"] = true;
  EXPECT_EQ(Encode(Read(document), "aéa"), (Ids{1, 2, 3, 1}));
  EXPECT_EQ(Encode(Read(document), "a中中a"), (Ids{1, 0, 0, 1}));  // not all bytes are there
  document["model"]["fuse_unk"] = true;
  EXPECT_EQ(Encode(Read(document), "a中中a"), (Ids{1, 0, 1}));
  // As in the library: an unknown one that waits comes behind bytes.
  EXPECT_EQ(Encode(Read(document), "中éa"), (Ids{2, 3, 0, 1}));
  document["model"]["unk_token"] = "<none>";
  const Bpe without = Read(document);
  EXPECT_ERROR(Encode(without, "中"), ExitCode::kBadData, "<none>");
}

TEST(BpeTest, AWholePieceOfTheVocabularyIsNotMerged) {
  json document = SmallTokenizer({"a", "b", "c", "bc", "abc"}, {"b c"});
  EXPECT_EQ(Encode(Read(document), "abc"), (Ids{0, 3}));
  document["model"]["ignore_merges"] = true;
  EXPECT_EQ(Encode(Read(document), "abc"), Ids{4});
}

TEST(BpeTest, CutsAtMetaspacesChangeNothing) {
  // The last merge goes over a metaspace behind b, so that there is no cut there.
  const json document = SmallTokenizer({"a", "b", "▁", "▁a", "b▁", "▁▁"}, {"▁ a", "▁ ▁", "b ▁"});
  const Bpe bpe = Read(document);
  EXPECT_EQ(Encode(bpe, "a▁b▁b"), (Ids{0, 2, 4, 1}));
  EXPECT_EQ(Encode(bpe, "b▁a"), (Ids{1, 3}));
  EXPECT_EQ(Encode(bpe, "a▁▁▁a"), (Ids{0, 5, 3}));
  EXPECT_EQ(Encode(bpe, "▁"), Ids{2});
}

TEST(BpeTest, WrongVocabulariesAndMergesAreRefusedWithTheirPlace) {
  const auto refused = [](const char* key, const json& value, const char* part) {
    json document = SmallTokenizer({"a", "b", "ab"}, {"a b"});
    document["model"][key] = value;
    EXPECT_ERROR(Read(document), ExitCode::kBadData, part);
  };
  refused("type", "Unigram", "model.type: the model Unigram is not supported");
  refused("type", "WordPiece", "WordPiece");
  refused("type", "WordLevel", "WordLevel");
  refused("dropout", 0.1, "model.dropout");
  refused("end_of_word_suffix", "</w>", "model.end_of_word_suffix");
  refused("continuing_subword_prefix", "##", "model.continuing_subword_prefix");
  refused("vocab", json::array(), "model.vocab: must be an object");
  refused("vocab", json{{"a", 0}, {"b", 0}}, "has the id 0 of \"a\"");
  refused("vocab", json{{"a", -1}}, "model.vocab[\"a\"]: must be a whole number");
  refused("vocab", json{{"a", 1.5}}, "model.vocab[\"a\"]");
  refused("vocab", json{{"a", 1ULL << 40}}, "model.vocab[\"a\"]");
  refused("vocab", json{{"a", "0"}}, "model.vocab[\"a\"]");
  refused("vocab", json{{"\xff", 0}}, "UTF-8");
  refused("merges", "a b", "model.merges: must be a list");
  refused("merges", json::array({"ab"}), "model.merges[0]");
  refused("merges", json::array({"a b c"}), "model.merges[0]");
  refused("merges", json::parse(R"([["a", "b"], ["a"]])"), "model.merges[1]");
  refused("merges", json::array({1}), "model.merges[0]");
  refused("merges", json::array({"a c"}), "\"c\" is not in the vocabulary");
  refused("merges", json::array({"b a"}), "\"ba\" is not in the vocabulary");
  refused("unk_token", 3, "model.unk_token: must be a text");
  refused("ignore_merges", "yes", "model.ignore_merges: must be true or false");
}

}  // namespace
}  // namespace gpuctl::trainer
