#include "trainer/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "trainer/base/files.h"
#include "trainer/tests/expect_error.h"
#include "trainer/tests/temp_dir.h"
#include "trainer/tokenizer/byte_level.h"
#include "trainer/tokenizer/test_small_tokenizers.h"
#include "trainer/unicode/utf8.h"

namespace gpuctl::trainer {
namespace {

using Ids = std::vector<int32_t>;
using Texts = std::vector<std::string>;
using nlohmann::json;

// A vocabulary of all bytes, with their values as ids.
json ByteTokenizer() {
  Texts tokens;
  for (int byte = 0; byte < 256; ++byte) {
    std::string letter;
    AppendCodePoint(CharacterOfByte(static_cast<unsigned char>(byte)), &letter);
    tokens.push_back(letter);
  }
  json document = SmallTokenizer(tokens, {});
  document["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  document["decoder"] = {{"type", "ByteLevel"}};
  return document;
}

Ids BytesOf(const std::string& text) {
  Ids ids;
  for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
  return ids;
}

// Shows the pieces: each one becomes one token that no other pre-tokenizer gives, because the
// vocabulary has all of these pieces and takes them whole.
Texts Pieces(const json& pre_tokenizer, const std::string& text, const Texts& pieces) {
  Texts tokens = pieces;
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  json document = SmallTokenizer(tokens, {});
  document["model"]["ignore_merges"] = true;
  document["pre_tokenizer"] = pre_tokenizer;
  const Tokenizer tokenizer = Tokenizer::FromJson(document);
  Texts found;
  for (const int32_t id : tokenizer.Encode(text, false)) found.push_back(*tokenizer.Token(id));
  return found;
}

#define EXPECT_PIECES(pre_tokenizer, text, ...) \
  EXPECT_EQ(Pieces(pre_tokenizer, text, __VA_ARGS__), (__VA_ARGS__))

json Split(const char* behavior, bool invert = false, const char* kind = "String",
           const char* pattern = "-") {
  return {{"type", "Split"},
          {"pattern", {{kind, pattern}}},
          {"behavior", behavior},
          {"invert", invert}};
}

TEST(TokenizerTest, SplitsInFiveWays) {
  EXPECT_PIECES(Split("Removed"), "a--b-c", Texts{"a", "b", "c"});
  EXPECT_PIECES(Split("Isolated"), "a--b-c", Texts{"a", "-", "-", "b", "-", "c"});
  EXPECT_PIECES(Split("MergedWithPrevious"), "a--b-c", Texts{"a-", "-", "b-", "c"});
  EXPECT_PIECES(Split("MergedWithNext"), "a--b-c", Texts{"a", "-", "-b", "-c"});
  EXPECT_PIECES(Split("Contiguous"), "a--b-c", Texts{"a", "--", "b", "-", "c"});
  EXPECT_PIECES(Split("Removed", true), "a--b-c", Texts{"-", "-", "-"});
  EXPECT_PIECES(Split("Removed", true, "Regex", "[a-c]"), "a--b-c", Texts{"a", "b", "c"});
  EXPECT_PIECES(Split("Isolated", false, "Regex", ""), "ab", Texts{"a", "b"});
}

TEST(TokenizerTest, OtherPreTokenizers) {
  EXPECT_PIECES((json{{"type", "Digits"}, {"individual_digits", true}}), "ab12½",
                Texts{"ab", "1", "2", "½"});
  EXPECT_PIECES((json{{"type", "Digits"}, {"individual_digits", false}}), "ab12c",
                Texts{"ab", "12", "c"});
  EXPECT_PIECES((json{{"type", "Whitespace"}}), "it's  1é!?", Texts{"it", "'", "s", "1é", "!?"});
  EXPECT_PIECES((json{{"type", "WhitespaceSplit"}}), " it's\t\xc2\xa0x ", Texts{"it's", "x"});
  EXPECT_PIECES((json{{"type", "Punctuation"}}), "a+b«!", Texts{"a", "+", "b", "«", "!"});
  EXPECT_PIECES((json{{"type", "Punctuation"}, {"behavior", "Contiguous"}}), "a!?b",
                Texts{"a", "!?", "b"});
  EXPECT_PIECES(
      (json{{"type", "Sequence"},
            {"pretokenizers",
             {{{"type", "WhitespaceSplit"}}, {{"type", "Digits"}, {"individual_digits", true}}}}}),
      "a1 2", Texts{"a", "1", "2"});
}

TEST(TokenizerTest, MetaspaceInBothSpellings) {
  json metaspace = {{"type", "Metaspace"}, {"replacement", "▁"}, {"add_prefix_space", true}};
  EXPECT_PIECES(metaspace, "Hey  you", Texts{"▁Hey", "▁", "▁you"});
  EXPECT_PIECES(metaspace, " Hey", Texts{"▁Hey"});
  metaspace["add_prefix_space"] = false;
  EXPECT_PIECES(metaspace, "Hey you", Texts{"Hey", "▁you"});
  metaspace = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", false}};
  EXPECT_PIECES(metaspace, "Hey you", Texts{"▁Hey▁you"});
}

TEST(TokenizerTest, ThePrefixOfTheFirstWordDoesNotComeBehindATokenInTheText) {
  json document = SmallTokenizer({"a", "▁", "▁a", "<s>"}, {"▁ a"});
  document["added_tokens"] = json::array({SmallAdded("<s>", 3)});
  document["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}};
  EXPECT_EQ(Tokenizer::FromJson(document).Encode("a<s>a", false), (Ids{2, 3, 0}));
  document["pre_tokenizer"]["prepend_scheme"] = "always";
  EXPECT_EQ(Tokenizer::FromJson(document).Encode("a<s>a", false), (Ids{2, 3, 2}));
}

TEST(TokenizerTest, PartsGetNoPrefixOfTheirOwn) {
  json metaspace = SmallTokenizer({"a", "b", "▁", "▁a", "▁b", "<s>"}, {"▁ a", "▁ b"});
  metaspace["added_tokens"] = json::array({SmallAdded("<s>", 5)});
  json prepend = metaspace;
  json byte_level = SmallTokenizer({"a", "b", "Ġ", "Ġa", "Ġb", "<s>"}, {"Ġ a", "Ġ b"});
  byte_level["added_tokens"] = metaspace["added_tokens"];
  metaspace["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}};
  prepend["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "Prepend"}, {"prepend", "▁"}},
        {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}}}};
  byte_level["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}};
  for (const json& document : {metaspace, prepend, byte_level}) {
    const Tokenizer tokenizer = Tokenizer::FromJson(document);
    const auto parts = [&](const std::string& text, const std::vector<size_t>& cuts) {
      return tokenizer.EncodeParts(text, cuts);
    };
    EXPECT_EQ(parts("ab", {1}).ids, (Ids{3, 1}));
    EXPECT_EQ(parts("ab", {1}).ends, (std::vector<size_t>{1, 2}));
    EXPECT_EQ(parts("a b", {1}).ids, (Ids{3, 4}));
    // Nothing was said before the first part, and behind a token a word begins as ever.
    EXPECT_EQ(parts("a", {0}).ids, (Ids{3}));
    EXPECT_EQ(parts("a<s>b", {4}).ids, tokenizer.Encode("a<s>b", false));
    EXPECT_EQ(parts("a<s>b", {4}).ids, (Ids{3, 5, 4}));
    EXPECT_EQ(parts("a<s>b", {1, 4, 4}).ids, (Ids{3, 5, 4}));
    // A token across a cut is none; unknown characters give nothing.
    EXPECT_EQ(parts("a<s>", {2}).ids, (Ids{3}));
    EXPECT_EQ(tokenizer.EncodeContinuation("a b<s>a"), (Ids{0, 4, 5, 3}));
  }
}

TEST(TokenizerTest, TheFirstPartIsWhatThePromptWouldBe) {
  json document = ByteTokenizer();
  document["added_tokens"] = json::array({SmallAdded("<x>", 256)});
  document["added_tokens"][0]["rstrip"] = true;
  const Tokenizer tokenizer = Tokenizer::FromJson(document);
  EXPECT_EQ(tokenizer.Encode("a<x>\nb", false), (Ids{'a', 256, 'b'}));
  EXPECT_EQ(tokenizer.EncodeParts("a<x>\nb", {4}).ids, (Ids{'a', 256, '\n', 'b'}));
  EXPECT_EQ(tokenizer.EncodeParts("é", {1}).ids.size(), 6u) << "two times U+FFFD";
  EXPECT_EQ(tokenizer.EncodeParts("ab", {5, 1}).ends, (std::vector<size_t>{2, 2, 2}));
}

TEST(TokenizerTest, BytesComeBack) {
  const Tokenizer tokenizer = Tokenizer::FromJson(ByteTokenizer());
  std::string text;
  for (uint32_t point = 0; point < 0x3000; ++point) AppendCodePoint(point, &text);
  EXPECT_EQ(tokenizer.Encode(text, true), BytesOf(text));
  EXPECT_EQ(tokenizer.Decode(BytesOf(text), true), text);
  EXPECT_EQ(tokenizer.Encode("", true), Ids{});
  EXPECT_EQ(tokenizer.Encode(std::string("\0", 1), true), Ids{0});
  EXPECT_EQ(tokenizer.Encode("\xed\xa0\x80!", true),
            BytesOf("\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd!"));
  EXPECT_EQ(tokenizer.Decode({0xc3, '!', -1, 9999, 0xa9}, true), "\xef\xbf\xbd!\xef\xbf\xbd");
}

TEST(TokenizerTest, AddedTokensAreFoundLongestFirstAndStripSpaces) {
  json document = ByteTokenizer();
  document["added_tokens"] = {SmallAdded("<a>", 256), SmallAdded("<a><b>", 257),
                              SmallAdded("<c>", 258), SmallAdded("<w>", 259)};
  document["added_tokens"][2]["lstrip"] = true;
  document["added_tokens"][2]["rstrip"] = true;
  document["added_tokens"][3]["single_word"] = true;
  const Tokenizer tokenizer = Tokenizer::FromJson(document);
  EXPECT_EQ(tokenizer.Encode("<a><b><a>", false), (Ids{257, 256}));
  EXPECT_EQ(tokenizer.Encode("x \t<c>\n y", false), (Ids{'x', 258, 'y'}));
  EXPECT_EQ(tokenizer.Encode(" <w>!", false), (Ids{' ', 259, '!'}));
  EXPECT_EQ(tokenizer.Encode("é<w>", false), BytesOf("é<w>"));
  EXPECT_EQ(tokenizer.Encode("<a>", false), Ids{256});
  EXPECT_EQ(tokenizer.Decode({'x', 256, 258, 'y'}, true), "xy");
  EXPECT_EQ(tokenizer.Decode({'x', 256, 258, 'y'}, false), "x<a><c>y");
  EXPECT_TRUE(tokenizer.IsSpecial(256));
  EXPECT_FALSE(tokenizer.IsSpecial('x'));
  EXPECT_EQ(tokenizer.TokenId("<a>"), 256);
  EXPECT_EQ(tokenizer.TokenId("<z>"), std::nullopt);
  EXPECT_EQ(tokenizer.VocabularySize(), 260);
  EXPECT_EQ(tokenizer.IdEnd(), 260);
}

TEST(TokenizerTest, NormalizedTokensAreFoundInTheNormalForm) {
  json document = ByteTokenizer();
  document["normalizer"] = {{"type", "Lowercase"}};
  document["added_tokens"] = {SmallAdded("Yes", 256, false), SmallAdded("No", 257, false)};
  document["added_tokens"][0]["normalized"] = true;
  const Tokenizer tokenizer = Tokenizer::FromJson(document);
  EXPECT_EQ(tokenizer.Encode("YES yes", false), (Ids{256, ' ', 256}));
  EXPECT_EQ(tokenizer.Encode("No NO", false), (Ids{257, ' ', 'n', 'o'}));
}

TEST(TokenizerTest, NormalizersInTheirOrder) {
  json document = ByteTokenizer();
  document["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}},
        {{"type", "Replace"}, {"pattern", {{"Regex", "[0-9]+"}}}, {"content", "#"}},
        {{"type", "Replace"}, {"pattern", {{"String", "#"}}}, {"content", "n#"}},
        {{"type", "NFC"}},
        {{"type", "Prepend"}, {"prepend", ">"}}}}};
  const Tokenizer tokenizer = Tokenizer::FromJson(document);
  EXPECT_EQ(tokenizer.Encode("  12e\xcc\x81 3 ", false), BytesOf(">n#é n# "));
  EXPECT_EQ(tokenizer.Encode("", false), Ids{});
  EXPECT_EQ(tokenizer.Encode("  ", false), Ids{});
}

TEST(TokenizerTest, PostProcessorsAddSpecialTokens) {
  json document = ByteTokenizer();
  document["post_processor"] = {
      {"type", "Sequence"},
      {"processors",
       {{{"type", "ByteLevel"}},
        {{"type", "TemplateProcessing"},
         {"single",
          {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
           {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
           {{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}}}},
         {"special_tokens",
          {{"<s>", {{"id", "<s>"}, {"ids", {1, 2}}}}, {"</s>", {{"id", "</s>"}, {"ids", {3}}}}}}},
        {{"type", "BertProcessing"}, {"sep", {"x", 5}}, {"cls", {"y", 4}}}}}};
  const Tokenizer tokenizer = Tokenizer::FromJson(document);
  EXPECT_EQ(tokenizer.Encode("a", true), (Ids{4, 1, 2, 'a', 3, 5}));
  EXPECT_EQ(tokenizer.Encode("a", false), Ids{'a'});
}

TEST(TokenizerTest, StreamedTextIsWholeCodePointsAndTheSame) {
  const Tokenizer tokenizer = Tokenizer::FromJson(ByteTokenizer());
  StreamDecoder stream(tokenizer, true);
  EXPECT_EQ(stream.Push('a'), "a");
  EXPECT_EQ(stream.Push(0xe2), "");
  EXPECT_EQ(stream.Push(0x82), "");
  EXPECT_EQ(stream.Push(0xac), "€");
  EXPECT_EQ(stream.Push(0xf0), "");
  EXPECT_EQ(stream.Push('b'),
            "\xef\xbf\xbd"
            "b");
  EXPECT_EQ(stream.Push(0xf0), "");
  EXPECT_EQ(stream.Finish(), "\xef\xbf\xbd");
}

// The decoder of Llama 2.
TEST(TokenizerTest, ByteTokensAndStrippedSpaces) {
  json document = SmallTokenizer({"▁a", "▁", "<0xE2>", "<0x82>", "<0xac>", "b"}, {});
  document["decoder"] = {{"type", "Sequence"},
                         {"decoders",
                          {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                           {{"type", "ByteFallback"}},
                           {{"type", "Fuse"}},
                           {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 2}}}}};
  const Tokenizer tokenizer = Tokenizer::FromJson(document);
  EXPECT_EQ(tokenizer.Decode({0, 0}, false), "a a");
  EXPECT_EQ(tokenizer.Decode({1, 1, 0, 1, 1, 1}, false), "  a ");
  EXPECT_EQ(tokenizer.Decode({5, 2, 3, 4, 5}, false), "b€b");
  EXPECT_EQ(tokenizer.Decode({2, 3, 5}, false),
            "\xef\xbf\xbd\xef\xbf\xbd"
            "b");
  StreamDecoder stream(tokenizer, false);
  EXPECT_EQ(stream.Push(0), "a");
  EXPECT_EQ(stream.Push(1), "");
  EXPECT_EQ(stream.Push(5), " b");
  EXPECT_EQ(stream.Push(2), "");
  EXPECT_EQ(stream.Finish(), "\xef\xbf\xbd");
}

TEST(TokenizerTest, BytesWithinATextAreWithoutItsEnds) {
  json document = SmallTokenizer({"▁a", "<0xE4>", "Ġb", "Ã"}, {});
  const auto bytes = [&](int32_t id) { return Tokenizer::FromJson(document).BytesWithin(id); };
  document["decoder"] = {{"type", "ByteLevel"}};
  EXPECT_EQ(bytes(2), " b");
  EXPECT_EQ(bytes(3), "\xc3");
  document["decoder"] = {{"type", "Sequence"},
                         {"decoders",
                          {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                           {{"type", "ByteFallback"}},
                           {{"type", "Fuse"}},
                           {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  EXPECT_EQ(bytes(0), " a");
  EXPECT_EQ(bytes(1), "\xe4");
  document["decoder"] = {{"type", "Metaspace"}, {"replacement", "▁"}};
  EXPECT_EQ(bytes(0), " a");
  EXPECT_EQ(bytes(99), "");
}

TEST(TokenizerTest, OtherDecoders) {
  json document = SmallTokenizer({"▁a", "b▁"}, {});
  EXPECT_EQ(Tokenizer::FromJson(document).Decode({0, 1}, false), "▁a b▁");
  document["decoder"] = {{"type", "Metaspace"}, {"replacement", "▁"}};
  EXPECT_EQ(Tokenizer::FromJson(document).Decode({0, 1, 0}, false), "ab  a");
  document["decoder"]["prepend_scheme"] = "never";
  EXPECT_EQ(Tokenizer::FromJson(document).Decode({0}, false), " a");
  // What comes behind Fuse sees the whole text.
  document["decoder"] = {
      {"type", "Sequence"},
      {"decoders",
       {{{"type", "Fuse"}},
        {{"type", "Replace"}, {"pattern", {{"String", "ab"}}}, {"content", "X"}}}}};
  EXPECT_EQ(Tokenizer::FromJson(document).Decode({0, 1}, false), "▁X▁");
}

TEST(TokenizerTest, ManyThreadsGetTheSameIds) {
  json document = SmallTokenizer({"a", "b", " ", "ab", " ab"}, {});
  document["model"]["merges"] = json::parse(R"([["a", "b"], [" ", "ab"]])");
  document["pre_tokenizer"] = Split("MergedWithNext", false, "String", " ");
  const Tokenizer tokenizer = Tokenizer::FromJson(document);
  std::string text;
  for (int i = 0; i < 2000; ++i) text += i % 3 == 0 ? " ab" : i % 7 == 0 ? " ba" : "ab";
  const Ids want = tokenizer.Encode(text, false);
  std::vector<std::thread> threads;
  std::vector<int> wrong(8, 0);
  for (int& mine : wrong) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) mine += tokenizer.Encode(text, false) == want ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(8, 0));
}

TEST(TokenizerTest, WhatIsNotSupportedIsNamedWithItsPlace) {
  const auto refused = [](const char* key, const json& value, const char* part) {
    json document = ByteTokenizer();
    document[key] = value;
    EXPECT_ERROR(Tokenizer::FromJson(document), ExitCode::kBadData, part);
  };
  refused("version", "2.0", "version: the version 2.0");
  refused("normalizer", {{"type", "BertNormalizer"}}, "normalizer: the normalizer BertNormalizer");
  refused("normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Precompiled"}}}}},
          "normalizer.normalizers[0]: the normalizer Precompiled");
  refused("normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", "("}}}, {"content", ""}},
          "normalizer.pattern.Regex: regular expression");
  refused("pre_tokenizer", {{"type", "UnicodeScripts"}}, "UnicodeScripts");
  refused("pre_tokenizer", Split("Odd"), "pre_tokenizer.behavior: the behavior Odd");
  refused("pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "ab"}}, "one character");
  refused("post_processor", {{"type", "X"}}, "the post-processor X");
  refused("post_processor",
          {{"type", "TemplateProcessing"},
           {"single", json::array()},
           {"special_tokens", json::object()}},
          "the text is missing");
  refused("decoder", {{"type", "CTC"}}, "the decoder CTC");
  refused("decoder", {{"type", "Strip"}, {"content", ""}, {"start", 0}, {"stop", 0}},
          "decoder.content: must be one character");
  refused("added_tokens", json::array({SmallAdded("<a>", 300)}), "added_tokens[0].id");
  refused("added_tokens", json::array({SmallAdded(std::string(2000, 'x'), 256)}), "too long");
  refused("added_tokens", json::array({{{"id", 256}}}), "added_tokens[0]: \"content\" is missing");
  json deep = {{"type", "NFC"}};
  for (int i = 0; i < 20; ++i) deep = {{"type", "Sequence"}, {"normalizers", {deep}}};
  refused("normalizer", deep, "nested too deeply");
}

TEST(TokenizerTest, LoadNamesTheFile) {
  const TempDir directory;
  const std::string path = directory.path() + "/tokenizer.json";
  EXPECT_ERROR(Tokenizer::Load(path), ExitCode::kIo, path);
  const auto refused = [&](const std::string& bytes, const char* part) {
    WriteFileDurably(path, bytes);
    EXPECT_ERROR(Tokenizer::Load(path), ExitCode::kBadData, "read tokenizer " + path);
    EXPECT_ERROR(Tokenizer::Load(path), ExitCode::kBadData, part);
  };
  refused("", "no JSON");
  refused("{", "no JSON");
  refused("[]", "must be an object");
  refused("{}", "\"model\" is missing");
  refused("{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", "Unigram");
  refused(std::string(1'000'000, '['), "nested too deeply");
  refused("{\"model\":{\"vocab\":{\"\xff\":0},\"merges\":[]}}", "no JSON");
  WriteFileDurably(path, ByteTokenizer().dump());
  EXPECT_EQ(Tokenizer::Load(path).Encode("ab", false), BytesOf("ab"));
}

}  // namespace
}  // namespace gpuctl::trainer
