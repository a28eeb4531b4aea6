#include "trainer/chat/chat_template.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "trainer/base/files.h"
#include "trainer/tests/expect_error.h"
#include "trainer/tests/need_truth.h"
#include "trainer/tests/temp_dir.h"

namespace gpuctl::trainer {
namespace {

using Json = nlohmann::ordered_json;

// As ChatML writes it, with a token at each turn's end.
constexpr char kChatMl[] =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

ChatTemplate ChatMl() { return ChatTemplate("t", kChatMl, {{"eos_token", "</s>"}}, 0); }

Conversation Talk(const std::vector<std::pair<std::string, std::string>>& messages) {
  Conversation talk;
  for (const auto& [role, content] : messages) {
    talk.messages.push_back({{"role", role}, {"content", content}});
  }
  return talk;
}

std::vector<std::string> LearnedOf(const MaskedText& masked) {
  std::vector<std::string> learned;
  for (const auto& [begin, end] : masked.learned) {
    learned.push_back(masked.text.substr(begin, end - begin));
  }
  return learned;
}

using Texts = std::vector<std::string>;

TEST(ChatTemplateTest, LearnsWhatTheAssistantSays) {
  const Conversation talk = Talk(
      {{"system", "s"}, {"user", "a"}, {"assistant", "b\n"}, {"user", "c"}, {"assistant", ""}});
  const MaskedText masked = ChatMl().RenderMasked(talk, Turns::kAll);
  EXPECT_EQ(masked.text, ChatMl().Render(talk, false));
  EXPECT_EQ(LearnedOf(masked), (Texts{"b\n</s>", "</s>"}));
  EXPECT_EQ(LearnedOf(ChatMl().RenderMasked(talk, Turns::kLast)), (Texts{"</s>"}));
}

TEST(ChatTemplateTest, TheEndTokenWithinAnAnswerIsNotItsEnd) {
  const MaskedText masked =
      ChatMl().RenderMasked(Talk({{"user", "a"}, {"assistant", "x</s>y"}}), Turns::kAll);
  EXPECT_EQ(LearnedOf(masked), (Texts{"x</s>y</s>"}));
  // Without an end token the whole turn is learned.
  const ChatTemplate other("t", kChatMl, Json::object(), 0);
  EXPECT_EQ(LearnedOf(other.RenderMasked(Talk({{"assistant", "x"}}), Turns::kAll)),
            (Texts{"x</s>\n"}));
}

TEST(ChatTemplateTest, GenerationBlocksTellTheTurns) {
  const ChatTemplate made(
      "t",
      "{% for m in messages %}{% if m.role == 'assistant' %}A:{% generation %}"
      "{{ m.content }};{% endgeneration %}{% else %}U:{{ m.content }};{% endif %}"
      "{% endfor %}",
      Json::object(), 0);
  const Conversation talk = Talk({{"user", "a"}, {"assistant", "b"}, {"assistant", "c"}});
  EXPECT_EQ(LearnedOf(made.RenderMasked(talk, Turns::kAll)), (Texts{"b;", "c;"}));
  EXPECT_EQ(LearnedOf(made.RenderMasked(talk, Turns::kLast)), (Texts{"c;"}));
  EXPECT_ERROR(made.RenderMasked(Talk({{"assistant", "b"}, {"user", "a"}}), Turns::kLast),
               ExitCode::kBadData, "the last message is not the assistant's");
}

TEST(ChatTemplateTest, ATemplateThatChangesEarlierTurnsIsRefused) {
  const ChatTemplate made("t",
                          "{% for m in messages %}<{{ m.role }}>{{ m.content if loop.last else "
                          "m.content[:1] }}{% endfor %}{% if add_generation_prompt %}<assistant>"
                          "{% endif %}",
                          Json::object(), 0);
  const Conversation talk =
      Talk({{"user", "a"}, {"assistant", "long"}, {"user", "c"}, {"assistant", "last"}});
  EXPECT_ERROR(made.RenderMasked(talk, Turns::kAll), ExitCode::kBadData,
               "message 2: the template changes this turn when others follow");
  EXPECT_EQ(LearnedOf(made.RenderMasked(talk, Turns::kLast)), (Texts{"last"}));
}

TEST(ChatTemplateTest, ATemplateThatBeginsAnswersOtherwiseIsRefused) {
  const ChatTemplate made("t",
                          "{% for m in messages %}{{ m.content }}{% endfor %}"
                          "{% if add_generation_prompt %}Answer:{% endif %}",
                          Json::object(), 0);
  EXPECT_ERROR(made.RenderMasked(Talk({{"user", "a"}, {"assistant", "b"}}), Turns::kAll),
               ExitCode::kBadData, "begins an answer in another way");
}

TEST(ChatTemplateTest, ConversationsWithNothingToLearnAreRefused) {
  EXPECT_ERROR(ChatMl().RenderMasked(Talk({{"user", "a"}}), Turns::kAll), ExitCode::kBadData,
               "no message of the assistant");
  EXPECT_ERROR(ChatMl().RenderMasked(Talk({{"assistant", "b"}, {"user", "a"}}), Turns::kLast),
               ExitCode::kBadData, "the last message is not the assistant's");
  EXPECT_ERROR(ChatMl().RenderMasked(Talk({}), Turns::kAll), ExitCode::kBadData, "no message");
}

TEST(ChatTemplateTest, BadMessagesAreRefused) {
  for (const char* messages : {"{}", "3", "null", "[1]", "[{}]", R"([{"role": 1}])"}) {
    Conversation talk;
    talk.messages = Json::parse(messages);
    EXPECT_ERROR(ChatMl().Render(talk, false), ExitCode::kBadData, "message");
  }
}

TEST(ChatTemplateTest, AFolderOfAModelIsRead) {
  const TempDir dir;
  EXPECT_ERROR(ChatTemplate::Load(dir.path()), ExitCode::kBadData, "has no chat template");
  const auto write = [&](const char* name, const std::string& text) {
    WriteFileDurably(dir.path() + "/" + name, text);
  };
  const Conversation talk = Talk({{"user", "a"}});
  Conversation with_tools = talk;
  with_tools.tools = Json::array({{{"name", "f"}}});
  write("tokenizer_config.json",
        R"({"eos_token": {"content": "</s>"}, "chat_template": [
            {"name": "default", "template": "D{{ eos_token }}"},
            {"name": "tool_use", "template": "T{{ tools | length }}"},
            {"name": "rag", "template": "{% never %}"}]})");
  EXPECT_EQ(ChatTemplate::Load(dir.path()).Render(talk, false), "D</s>");
  EXPECT_EQ(ChatTemplate::Load(dir.path()).Render(with_tools, false), "T1");
  write("tokenizer_config.json", R"({"chat_template": "S{{ eos_token }}"})");
  EXPECT_EQ(ChatTemplate::Load(dir.path()).Render(talk, false), "S");
  write("chat_template.jinja", "F");
  EXPECT_EQ(ChatTemplate::Load(dir.path()).Render(talk, false), "F");
  for (const char* bad : {"[]", "{", R"({"chat_template": [{}]})", R"({"chat_template": [1]})",
                          R"({"chat_template": []})", R"({"chat_template": 3})"}) {
    const TempDir other;
    WriteFileDurably(other.path() + "/tokenizer_config.json", bad);
    EXPECT_ERROR(ChatTemplate::Load(other.path()), ExitCode::kBadData, "");
  }
}

// Templates of published models: the learned parts are the assistant's messages.
class PublishedTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* named = std::getenv("GPUCTL_VECTORS_DIR");
    folder_ = named != nullptr ? named : std::string(CHAT_ROOT) + "/../shared/tokenizer-vectors";
    folder_ += "/chat-templates/";
    NEED_TRUTH(Exists(folder_), "there are no templates in " + folder_);
  }

  ChatTemplate Read(const std::string& name) const {
    return ChatTemplate(name, ReadWholeFile(folder_ + name), {{"eos_token", "<|im_end|>"}}, 0);
  }

  std::string folder_;
};

TEST_F(PublishedTest, Qwen25LearnsAllTurns) {
  const Conversation talk =
      Talk({{"user", "Hi"}, {"assistant", "Hello!"}, {"user", "Bye"}, {"assistant", "Good bye. "}});
  EXPECT_EQ(LearnedOf(Read("Qwen-Qwen2.5-7B-Instruct.jinja").RenderMasked(talk, Turns::kAll)),
            (Texts{"Hello!<|im_end|>", "Good bye. <|im_end|>"}));
}

TEST_F(PublishedTest, Qwen3DropsEarlierThoughts) {
  const ChatTemplate qwen3 = Read("Qwen-Qwen3-0.6B.jinja");
  const std::string thought = "<think>\nhm\n</think>\n\n";
  const Conversation talk = Talk({{"user", "Hi"},
                                  {"assistant", thought + "Hello!"},
                                  {"user", "Bye"},
                                  {"assistant", thought + "Good bye."}});
  EXPECT_ERROR(qwen3.RenderMasked(talk, Turns::kAll), ExitCode::kBadData,
               "changes this turn when others follow");
  EXPECT_EQ(LearnedOf(qwen3.RenderMasked(talk, Turns::kLast)),
            (Texts{thought + "Good bye.<|im_end|>"}));
}

}  // namespace
}  // namespace gpuctl::trainer
