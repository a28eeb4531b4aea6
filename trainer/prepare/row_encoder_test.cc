#include "trainer/prepare/row_encoder.h"

#include <gtest/gtest.h>

#include "trainer/prepare/test_model.h"
#include "trainer/tests/expect_error.h"
#include "trainer/tests/temp_dir.h"

namespace gpuctl::trainer {
namespace {

constexpr ExitCode kBad = ExitCode::kBadData;

class RowEncoderTest : public testing::Test {
 protected:
  std::string Shown(const std::string& row, Mask mask = Mask::kAssistant, int64_t context = 1000) {
    WriteTestModel(dir_.path() + "/m", template_);
    const EncodedRow made = RowEncoder(dir_.path() + "/m", "", mask, context).Encode(ParseRow(row));
    dropped_ = made.dropped;
    std::string shown;
    for (size_t i = 0, begin = 0; i < made.ends.size(); begin = made.ends[i++]) {
      if (i > 0) shown += "|";
      shown += ShownWords(made.words.data() + begin, made.ends[i] - begin);
    }
    return shown;
  }

  TempDir dir_;
  std::string template_ = kTestTemplate;
  int64_t dropped_ = 0;
};

constexpr char kTalk[] = R"({"messages": [{"role": "user", "content": "q"},
    {"role": "assistant", "content": "yes"}, {"role": "user", "content": "r"},
    {"role": "assistant", "content": "no"}]})";

TEST_F(RowEncoderTest, MasksTellWhatIsLearned) {
  EXPECT_EQ(Shown(kTalk), "u:q<e>\na:[yes<e>]\nu:r<e>\na:[no<e>]\n");
  EXPECT_EQ(Shown(kTalk, Mask::kLast), "u:q<e>\na:yes<e>\nu:r<e>\na:[no<e>]\n");
  EXPECT_EQ(Shown(kTalk, Mask::kAll), "u[:q<e>\na:yes<e>\nu:r<e>\na:no<e>\n]");
}

TEST_F(RowEncoderTest, OfACompletionOnlyItsTurnsAreLearned) {
  std::string row = kTalk;
  row.replace(row.find("messages"), 8, "prompt");
  row.replace(row.find(", {\"role\": \"user\", \"content\": \"r\""), 2, "], \"completion\": [");
  EXPECT_EQ(Shown(row), "u:q<e>\na:yes<e>\nu:r<e>\na:[no<e>]\n");
  template_ =
      "{% for m in messages %}{% if m.role == 'assistant' %}a:{% generation %}{{ m.content }}"
      "{% endgeneration %}{% else %}u:{{ m.content }}{% endif %}{% endfor %}";
  EXPECT_EQ(Shown(kTalk), "u:qa:[yes]u:ra:[no]");
  EXPECT_EQ(Shown(row), "u:qa:yesu:ra:[no]");
}

TEST_F(RowEncoderTest, OfAPairTheAnswersAreLearned) {
  const std::string texts = R"({"prompt": "ab", "chosen": "cd", "rejected": "e"})";
  const std::string talks = R"({"chosen": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "yes"}], "rejected": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "no"}]})";
  for (const Mask mask : {Mask::kAssistant, Mask::kLast, Mask::kAll}) {
    EXPECT_EQ(Shown(texts, mask), "<s>ab[cd<e>]|<s>ab[e<e>]");
    EXPECT_EQ(Shown(talks, mask), "u:q<e>\na:[yes<e>]\n|u:q<e>\na:[no<e>]\n");
  }
  EXPECT_EQ(Shown(texts, Mask::kAssistant, 3), "<s>ab[c]|<s>ab[e]");
  EXPECT_EQ(dropped_, 3);
  EXPECT_ERROR(Shown(texts, Mask::kAssistant, 2), kBad, "have nothing to learn");
  const std::string alike = R"({"prompt": "ab", "chosen": "cd", "rejected": "ce"})";
  EXPECT_ERROR(Shown(alike, Mask::kAssistant, 3), kBad, "the same for both answers");
  template_ =
      "{{ messages[-1].content[0] }}{% for m in messages %}{% if m.role == 'assistant' %}"
      "{% generation %}{{ m.content }}{% endgeneration %}{% else %}u:{{ m.content }}{% endif %}"
      "{% endfor %}";
  EXPECT_ERROR(Shown(talks), kBad, "the prompt in another way for each answer");
}

TEST_F(RowEncoderTest, AListOfPartsIsNoTextForATemplateThatTakesTexts) {
  const std::string row = R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": [{"type": "text", "text": "it's"}]}]})";
  EXPECT_ERROR(Shown(row), kBad, "message 2: its content is a list of parts");
  EXPECT_ERROR(Shown(row, Mask::kAll), kBad, "message 2: its content is a list of parts");
  template_ =
      "{% for m in messages %}{{ m.role[0] }}:{% if m.content is string %}{{ m.content }}"
      "{% else %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}<e>\n"
      "{% endfor %}{% if add_generation_prompt %}a:{% endif %}";
  EXPECT_EQ(Shown(row), "u:q<e>\na:[it's<e>]\n");
}

TEST_F(RowEncoderTest, TextsGetTheTokensAroundThemOnce) {
  EXPECT_EQ(Shown(R"({"text": "ab"})"), "<s>[ab<e>]");
  EXPECT_EQ(Shown(R"({"text": "<s>ab<e>"})"), "<s>[ab<e>]");
  EXPECT_EQ(Shown(R"({"prompt": "ab", "completion": "cd"})"), "<s>ab[cd<e>]");
  EXPECT_EQ(Shown(R"({"prompt": "<s>", "completion": "cd<e>"})"), "<s>[cd<e>]");
  EXPECT_EQ(Shown(R"({"prompt": "", "completion": "c"})"), "<s>[c<e>]");
  EXPECT_EQ(Shown(R"({"prompt": "ab", "completion": "c"})", Mask::kAll), "<s>[abc<e>]");
  template_ = "";
  EXPECT_EQ(Shown(R"({"text": "ab"})"), "<s>[ab<e>]");
  EXPECT_ERROR(Shown(kTalk), kBad, "has no chat template");
}

TEST_F(RowEncoderTest, DocumentsAreCutIntoRowsThatOverlap) {
  const std::string row = R"({"text": "abcdef"})";
  EXPECT_EQ(Shown(row, Mask::kAssistant, 3), "<s>[abc]|c[def]|f[<e>]");
  EXPECT_EQ(Shown(row, Mask::kAssistant, 7), "<s>[abcdef<e>]");
  EXPECT_EQ(Shown(row, Mask::kAssistant, 6), "<s>[abcdef]|f[<e>]");
  EXPECT_EQ(Shown(R"({"text": "ab"})", Mask::kAssistant, 1), "<s>[a]|a[b]|b[<e>]");
}

TEST_F(RowEncoderTest, PiecesOfADocumentLeaveRoomForTheTokenBefore) {
  WriteTestModel(dir_.path() + "/m", "");
  const RowEncoder encoder(dir_.path() + "/m", "", Mask::kAssistant, 3);
  const auto shown = [&](const std::string& text, bool first, bool last) {
    const EncodedRow made = encoder.EncodeDocument(text, first, last);
    std::string all;
    for (size_t i = 0, begin = 0; i < made.ends.size(); begin = made.ends[i++]) {
      all += "|" + ShownWords(made.words.data() + begin, made.ends[i] - begin);
    }
    return all;
  };
  EXPECT_EQ(shown("abcd", true, false), "|<s>[abc]|c[d]");
  EXPECT_EQ(shown("abcd", false, false), "|[abc]|c[d]");
  EXPECT_EQ(shown("<s>", false, true), "|[<s><e>]");
  EXPECT_ERROR(shown(" \n", true, true), kBad, "has no text");
}

TEST_F(RowEncoderTest, OtherRowsAreCutOff) {
  EXPECT_EQ(Shown(kTalk, Mask::kAssistant, 7), "u:q<e>\na:[y]");
  EXPECT_EQ(dropped_, 15);
  EXPECT_ERROR(Shown(kTalk, Mask::kAssistant, 6), kBad, "its first 7 tokens have nothing to learn");
  EXPECT_ERROR(Shown(kTalk, Mask::kLast, 10), kBad, "nothing to learn");
}

TEST_F(RowEncoderTest, ThePromptHasTheTokensThatTheModelIsAsked) {
  // "a:" and a line end would be one token each with what comes next.
  nlohmann::json tokenizer = TestTokenizer();
  tokenizer["model"]["vocab"][":Ċ"] = 256;
  tokenizer["model"]["vocab"][":y"] = 257;
  tokenizer["model"]["merges"] = {": Ċ", ": y"};
  tokenizer["pre_tokenizer"]["use_regex"] = false;
  tokenizer["added_tokens"][0]["id"] = 258;
  tokenizer["added_tokens"][1]["id"] = 259;
  tokenizer["post_processor"] = nullptr;
  const std::string folder = dir_.path() + "/m";
  WriteTestModel(folder, kTestTemplate);
  WriteFileDurably(folder + "/tokenizer.json", tokenizer.dump());
  const RowEncoder encoder(folder, "", Mask::kAssistant, 1000);
  for (const std::string said : {"yes", "\nyes", " ", ""}) {
    Row row;
    row.is_chat = true;
    row.kind = RowKind::kMessages;
    row.conversation.messages = {{{"role", "user"}, {"content", "y:y"}}};
    // The same as cli/text_codec.cc does for a message.
    const std::vector<int32_t> prompt = encoder.tokenizer().Encode(
        ChatTemplate::Load(folder).Render(row.conversation, /*add_generation_prompt=*/true), false);
    row.conversation.messages.push_back({{"role", "assistant"}, {"content", said}});
    const EncodedRow made = encoder.Encode(row);
    size_t before = 0;
    while ((made.words[before] & kLearnedBit) == 0) ++before;
    EXPECT_EQ(std::vector<int32_t>(made.words.begin(),
                                   made.words.begin() + static_cast<ptrdiff_t>(before)),
              prompt);
  }
}

TEST_F(RowEncoderTest, TheEndTokenMustBeOfTheTokenizer) {
  WriteTestModel(dir_.path() + "/m", "");
  WriteFileDurably(dir_.path() + "/m/tokenizer_config.json", R"({"eos_token": "<nosuch>"})");
  EXPECT_ERROR(RowEncoder(dir_.path() + "/m", "", Mask::kAll, 10), kBad, "no eos_token <nosuch>");
  WriteFileDurably(dir_.path() + "/m/tokenizer_config.json", "{}");
  const RowEncoder encoder(dir_.path() + "/m", "", Mask::kAll, 10);
  EXPECT_FALSE(encoder.ends_documents());
  EXPECT_EQ(encoder.EncodeDocument("a", true, true).words.size(), 2u);
  EXPECT_ERROR(RowEncoder(dir_.path() + "/m", dir_.path() + "/none", Mask::kAll, 10), ExitCode::kIo,
               "none");
}

}  // namespace
}  // namespace gpuctl::trainer
