#include "trainer/prepare/row.h"

#include <gtest/gtest.h>

#include "trainer/tests/expect_error.h"

namespace gpuctl::trainer {
namespace {

constexpr ExitCode kBadRow = ExitCode::kBadData;

TEST(RowTest, KeysTellTheKind) {
  Row row = ParseRow(R"({"id": 7, "messages": [{"role": "user", "content": "a", "x": 1},
                         {"role": "assistant", "content": null, "tool_calls": [{"n": 1}]}]})");
  EXPECT_EQ(row.kind, RowKind::kMessages);
  EXPECT_TRUE(row.is_chat);
  EXPECT_EQ(row.conversation.messages[0].dump(), R"({"role":"user","content":"a","x":1})");
  row = ParseRow(R"({"prompt": "a", "completion": "b", "text": "c"})");
  EXPECT_EQ(row.kind, RowKind::kPromptCompletion);
  EXPECT_FALSE(row.is_chat);
  EXPECT_EQ(row.prompt + "|" + row.text, "a|b");
  row = ParseRow(R"({"text": "c", "messages": null})");
  EXPECT_EQ(row.kind, RowKind::kText);
  EXPECT_EQ(row.text, "c");
}

TEST(RowTest, ACompletionOfMessagesFollowsItsPrompt) {
  const Row row = ParseRow(R"({"prompt": [{"role": "user", "content": "a"}],
                               "completion": [{"role": "assistant", "content": "b"}],
                               "tools": "[{\"b\": 1, \"a\": 2}]"})");
  EXPECT_TRUE(row.is_chat);
  EXPECT_EQ(row.first_learned, 1u);
  EXPECT_EQ(row.conversation.messages.size(), 2u);
  EXPECT_EQ(row.conversation.tools.dump(), R"([{"b":1,"a":2}])");
}

TEST(RowTest, ShareGptsSpeakersGetRoles) {
  const Row row = ParseRow(R"({"system": "s", "conversations": [{"from": "human", "value": "a"},
                               {"from": "gpt", "value": "b"}]})");
  EXPECT_EQ(row.kind, RowKind::kConversations);
  EXPECT_EQ(row.conversation.messages.dump(),
            R"([{"role":"system","content":"s"},{"role":"user","content":"a"},)"
            R"({"role":"assistant","content":"b"}])");
  EXPECT_EQ(ParseRow(R"({"conversations": [{"role": "user", "content": "a"}]})")
                .conversation.messages.size(),
            1u);
}

std::string AnswersOf(const Row& row) {
  const auto show = [](const Row& of) {
    std::string shown = of.prompt + "|" + of.text;
    for (size_t i = 0; of.is_chat && i < of.conversation.messages.size(); ++i) {
      shown += i == of.first_learned ? "|" : "";
      shown += of.conversation.messages[i]["content"].get<std::string>();
    }
    return shown;
  };
  EXPECT_EQ(row.kind, RowKind::kPair);
  EXPECT_EQ(row.rejected->kind, RowKind::kPair);
  return show(row) + " " + show(*row.rejected);
}

TEST(RowTest, PairsHaveTwoAnswers) {
  EXPECT_EQ(AnswersOf(ParseRow(R"({"prompt": "p", "chosen": "a", "rejected": "b"})")), "p|a p|b");
  EXPECT_EQ(AnswersOf(ParseRow(R"({"prompt": [{"role": "user", "content": "p"}],
      "chosen": [{"role": "assistant", "content": "a"}],
      "rejected": [{"role": "assistant", "content": "b"}]})")),
            "|p|a |p|b");
  EXPECT_EQ(AnswersOf(ParseRow(R"({"chosen": [{"role": "user", "content": "p"},
      {"role": "assistant", "content": "a"}, {"role": "user", "content": "q"},
      {"role": "assistant", "content": "b"}], "rejected": [{"role": "user", "content": "p"},
      {"role": "assistant", "content": "a"}, {"role": "user", "content": "q"},
      {"role": "assistant", "content": "c"}], "prompt": null})")),
            "|paq|b |paq|c");
}

TEST(RowTest, SaysWhatIsWrongWithPairs) {
  const auto texts = [](const std::string& prompt, const std::string& chosen,
                        const std::string& rejected) {
    return ParseRow("{" + prompt + R"("chosen": )" + chosen + R"(, "rejected": )" + rejected + "}");
  };
  EXPECT_ERROR(texts(R"("prompt": "p", )", R"("a")", R"("a")"), kBadRow, "are the same");
  EXPECT_ERROR(texts(R"("prompt": "p", )", R"("")", R"("a")"), kBadRow, "\"chosen\" is empty");
  EXPECT_ERROR(texts(R"("prompt": "p", )", R"("a")", "null"), kBadRow, "no \"rejected\"");
  EXPECT_ERROR(texts(R"("prompt": "p", )", "null", R"("a")"), kBadRow, "no \"chosen\"");
  EXPECT_ERROR(texts(R"("prompt": "p", )", R"("a")", "7"), kBadRow, "neither three texts");
  EXPECT_ERROR(texts(R"("prompt": "p", )", "[]", "[]"), kBadRow, "neither three texts");
  EXPECT_ERROR(texts("", R"("a")", R"("b")"), kBadRow, "texts without a \"prompt\"");
  const std::string p = R"({"role": "user", "content": "p"})";
  const std::string q = R"({"role": "user", "content": "q"})";
  const std::string a = R"({"role": "assistant", "content": "a"})";
  const std::string b = R"({"role": "assistant", "content": "b"})";
  const auto list = [](const std::string& one, const std::string& two = "") {
    return "[" + one + (two.empty() ? "" : ", " + two) + "]";
  };
  EXPECT_ERROR(texts("", list(p, a), list(q, b)), kBadRow, "begin with different messages");
  EXPECT_ERROR(texts("", list(p, a), list(p, a)), kBadRow, "are the same");
  EXPECT_ERROR(texts("", list(p, a), list(p)), kBadRow, "is the beginning of the other");
  EXPECT_ERROR(texts("", list(p, q), list(p, b)), kBadRow,
               "\"chosen\" answers with a message of the role \"user\"");
  EXPECT_ERROR(texts("\"prompt\": " + list(p) + ", ", list(a), list(q)), kBadRow,
               "\"rejected\" answers with a message of the role \"user\"");
  EXPECT_ERROR(texts("\"prompt\": " + list(p) + ", ", list(a), "[]"), kBadRow,
               "\"rejected\" is empty");
  EXPECT_ERROR(texts("\"prompt\": " + list(p) + ", ", list(a), list("7")), kBadRow, "is no object");
}

TEST(RowTest, TheTemplateGetsItsVariablesButNotOthers) {
  const char row[] = R"({"messages": [{"role": "user", "content": "a"}],
                         "chat_template_kwargs": {"%s": false}})";
  const auto with = [&](const std::string& key) {
    std::string text = row;
    return ParseRow(text.replace(text.find("%s"), 2, key)).conversation.variables.dump();
  };
  EXPECT_EQ(with("enable_thinking"), R"({"enable_thinking":false})");
  EXPECT_ERROR(with("messages"), kBadRow, "must not have \"messages\"");
}

TEST(RowTest, ContentIsTextOrPartsOfText) {
  const auto with = [](const std::string& content) {
    return ParseRow(R"({"messages": [{"role": "user", "content": )" + content + "}]}");
  };
  with(R"([{"type": "text", "text": "a"}])");
  EXPECT_ERROR(with(R"([{"type": "text"}])"), kBadRow, "\"text\" is no text");
  EXPECT_ERROR(with(R"(["a"])"), kBadRow, "has no type");
  EXPECT_ERROR(with(R"([{"type": "image_url"}])"), kBadRow, "\"image_url\"");
  EXPECT_ERROR(with("7"), kBadRow, "message 1: its content is no text");
  EXPECT_ERROR(with("null"), kBadRow, "message 1 has no content");
}

TEST(RowTest, SaysWhatIsWrong) {
  EXPECT_ERROR(ParseRow(R"({"text": "a)"), kBadRow, "is no JSON: see byte 12");
  EXPECT_ERROR(ParseRow("{\"text\": \"\xff\"}"), kBadRow, "byte 11 is no valid UTF-8");
  EXPECT_ERROR(ParseRow(std::string(1 << 20, '[')), kBadRow, "nested");
  EXPECT_ERROR(ParseRow(R"({"instruction": "a", "output": "b"})"), kBadRow, "instruction, output");
  EXPECT_ERROR(ParseRow(R"({"messages": [{"role": "asistant", "content": "a"}]})"), kBadRow,
               "did you mean \"assistant\"");
  EXPECT_ERROR(CheckDocument(std::string("a\0b", 3)), kBadRow, "NUL");
}

}  // namespace
}  // namespace gpuctl::trainer
