#include "provisioning/rest/json_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Code = absl::StatusCode;

TEST(JsonReaderTest, RefusesWhatIsNoJson) {
  EXPECT_OK(ParseJson(R"({"a":[1,2]})"));
  for (const char* body : {"", "{", "<html>", "{\"a\":1e999}", "\"\xff\"", "{}{}"}) {
    EXPECT_THAT(ParseJson(body), StatusIs(Code::kUnknown)) << body;
  }
  EXPECT_OK(ParseJson(std::string(60, '[') + std::string(60, ']')));
  EXPECT_THAT(ParseJson(std::string(80, '[') + std::string(80, ']')),
              StatusIs(Code::kUnknown, HasSubstr("deep")));
  EXPECT_FALSE(ParseJson(std::string(1 << 20, '[')).ok());
  EXPECT_FALSE(ParseJson("\"" + std::string(33 << 20, 'a') + "\"").ok());
}

TEST(JsonReaderTest, ReadsTypesAndNamesTheFirstWrongField) {
  const auto json = *ParseJson(
      R"({"s":"x","n":1.5,"i":3.0,"big":18446744073709551615,"t":"12","b":true,"z":null})");
  JsonReader object(json, "thing");
  std::string text;
  double number = 0;
  int64_t whole = 0, loose = 0;
  std::optional<bool> yes;
  std::optional<std::string> missing;
  object.Require("s", text);
  object.Require("n", number);
  object.Require("i", whole);
  object.ReadLooseInt("t", loose);
  object.Read("b", yes);
  object.Read("z", missing);
  EXPECT_EQ(text, "x");
  EXPECT_EQ(number, 1.5);
  EXPECT_EQ(whole, 3);
  EXPECT_EQ(loose, 12);
  EXPECT_EQ(yes, true);
  EXPECT_EQ(missing, std::nullopt);
  EXPECT_OK(object.status());
  object.Require("n", whole);
  object.Require("z", text);
  EXPECT_EQ(whole, 3);
  EXPECT_EQ(text, "x");
  EXPECT_THAT(object.status(), StatusIs(Code::kUnknown, HasSubstr("field n of thing is a JSON")));
  // Fields after a wrong field are still read.
  object.Read("n", number);
  EXPECT_EQ(number, 1.5);
  for (const char* field : {"big", "t"}) {
    JsonReader strict(json, "thing");
    std::optional<int64_t> none;
    strict.Read(field, none);
    EXPECT_FALSE(none.has_value()) << field;
    EXPECT_FALSE(strict.status().ok()) << field;
  }
}

TEST(JsonReaderTest, FollowsPaths) {
  const auto json = *ParseJson(R"({"a":{"b":{"c":7},"s":"x"},"z":null})");
  int64_t number = 0;
  JsonReader object(json, "thing");
  object.Require("a.b.c", number);
  EXPECT_EQ(number, 7);
  object.Read("a.none.c", number);
  object.Read("z.c", number);
  EXPECT_EQ(number, 7);
  EXPECT_OK(object.status());
  object.Require("a.none.c", number);
  EXPECT_THAT(object.status(), StatusIs(Code::kUnknown, "field a.none.c of thing is missing"));
  JsonReader odd(json, "thing");
  odd.Read("a.s.c", number);
  EXPECT_THAT(odd.status(),
              StatusIs(Code::kUnknown, "field a.s of thing is a JSON string, not an object"));
  const auto list = *ParseJson("[1]");
  JsonReader none(list, "thing");
  none.Read("a.b", number);
  EXPECT_THAT(none.status(), StatusIs(Code::kUnknown, "thing is no JSON object"));
}

TEST(JsonReaderTest, ReadsObjectsAndRowsUpToTheFirstThatIsWrong) {
  const auto json = *ParseJson(
      R"({"o":{"id":"x"},"rows":[{"id":"a"},{"id":""},{"id":"c"}],"named":{"n":{"id":"d"}}})");
  const auto read_id = [](JsonReader& row, std::string& id) { row.RequireId("id", id); };
  std::vector<std::string> ids;
  const auto add = [&ids, &read_id](JsonReader& row) { read_id(row, ids.emplace_back()); };
  JsonReader object(json, "thing");
  object.ReadObject("o", "part", add);
  object.ReadObject("none", "part", add);
  object.ReadEach("none", "row", add);
  object.RequireEachField("named", "row", add);
  EXPECT_OK(object.status());
  EXPECT_THAT(ids, ElementsAre("x", "d"));
  std::vector<std::string> rows;
  object.RequireRows("rows", "row", read_id, rows);
  EXPECT_THAT(object.status(), StatusIs(Code::kUnknown, "field id of row is empty"));
  EXPECT_EQ(rows.size(), 2u);
  const std::vector<std::pair<const char*, const char*>> wrong = {
      {"none", "field none of thing is missing"},
      {"rows", "field rows of thing is a JSON array, not an object"}};
  for (const auto& [path, problem] : wrong) {
    JsonReader reader(json, "thing");
    reader.RequireObject(path, "part", add);
    EXPECT_THAT(reader.status(), StatusIs(Code::kUnknown, problem));
  }
  JsonReader reader(json, "thing");
  reader.ReadEach("o", "row", add);
  EXPECT_THAT(reader.status(),
              StatusIs(Code::kUnknown, "field o of thing is a JSON object, not an array"));
}

TEST(JsonReaderTest, ParsesWhatFitsOfAnythingAtAll) {
  const auto read = [](JsonReader& answer, std::string& text) {
    std::string odd;
    answer.Read("odd", odd);
    answer.Read("text", text);
  };
  EXPECT_EQ(ParseWhatFits<std::string>(R"({"odd":7,"text":"x"})", read), "x");
  for (const char* body : {"", "<html>", "[]", "7", R"({"text":7})", R"({"text":null})"}) {
    EXPECT_EQ(ParseWhatFits<std::string>(body, read), "") << body;
  }
}

}  // namespace
}  // namespace gpuctl
