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
