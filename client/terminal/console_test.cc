#include "client/terminal/console.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "client/base/exit_codes.h"

namespace gpuctl {
namespace {

using Json = nlohmann::ordered_json;

// Text that a machine, a market or a job may have written.
constexpr char kHostile[] = "x\ngpuctl: forged\r\x1b[2J\u202E\u009b\u2028\xff\x7f";
constexpr char kShown[] = "x\\ngpuctl: forged\\r\\x1b[2J\\u202e\\u009b\\u2028\\xff\\x7f";

struct Printed {
  std::string out, err;
};

Printed Capture(const std::function<void()>& print) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  print();
  Printed printed;
  printed.out = testing::internal::GetCapturedStdout();
  printed.err = testing::internal::GetCapturedStderr();
  return printed;
}

TEST(ConsoleTest, ALineIsOneLineWhateverIsInIt) {
  Console console;
  const Printed printed = Capture([&] {
    console.Say(kHostile);
    console.Hint(kHostile);
    console.Note(kHostile);
    console.PrintLine(kHostile);
    console.PrintLines({kHostile, "y"});
  });
  const std::string shown = kShown;
  EXPECT_EQ(printed.err, "gpuctl: " + shown + "\nHINT: " + shown + "\n" + shown + "\n");
  EXPECT_EQ(printed.out, shown + "\n" + shown + "\ny\n");
}

TEST(ConsoleTest, TracesOnlyWhenAsked) {
  Console console;
  EXPECT_EQ(Capture([&] { console.Trace("GET /"); }).err, "");
  console.trace = true;
  EXPECT_EQ(Capture([&] { console.Trace("GET /\n"); }).err, "trace: GET /\\n\n");
}

TEST(ConsoleTest, OwnTextHasLines) {
  EXPECT_EQ(Capture([] { Console().PrintOwnText("one\n\ntwo\n"); }).out, "one\n\ntwo\n");
}

TEST(ConsoleTest, AnErrorAndItsHintAreTwoLines) {
  const absl::Status error = WithHint(absl::NotFoundError(kHostile), kHostile);
  const Printed printed = Capture([&] { Console().PrintError(error); });
  const std::string shown = kShown;
  EXPECT_EQ(printed.err, "gpuctl: " + shown + "\nHINT: " + shown + "\n");
  EXPECT_EQ(printed.out, "");
}

TEST(ConsoleTest, AlarmsAreRedAroundTextThatIsSafe) {
  Console console;
  console.terminal.stderr_tty = true;
  console.terminal.colour = true;
  EXPECT_EQ(Capture([&] { console.Say("\x1b[0m", Tone::kAlarm); }).err,
            "\x1b[31mgpuctl: \\x1b[0m\x1b[0m\n");
  console.terminal.colour = false;
  EXPECT_EQ(Capture([&] { console.Note("leak", Tone::kAlarm); }).err, "leak\n");
}

TEST(ConsoleTest, CellsCannotBreakTheirTable) {
  Console console;
  std::vector<TableRow> rows = {{"NAME", "STATE"}, {"a\nb\tc", "\x1b[31mok\u202E"}, {"x", "y"}};
  EXPECT_EQ(Capture([&] { console.PrintTable(rows); }).out,
            "NAME     STATE\n"
            "a\\nb\\tc  \\x1b[31mok\\u202e\n"
            "x        y\n");
  rows[2][0].red = true;
  console.terminal.colour = true;
  EXPECT_EQ(Capture([&] {
              console.PrintTable({rows[0], rows[2]});
            }).out,
            "NAME  STATE\n\x1b[31mx\x1b[0m     y\n");
  EXPECT_EQ(Capture([&] { console.PrintTableWithin(rows, 12, {"STATE"}); }).out,
            "NAME\na\\nb\\tc\n\x1b[31mx\x1b[0m\n");
}

TEST(ConsoleTest, JsonIsHarmlessAndTheSame) {
  Console console;
  console.format = OutputFormat::kJson;
  const Json object = {{"name", "x\u202E\u009b\x7f\n\x1b"}, {"a", 1}};
  const Printed printed = Capture([&] {
    console.PrintJson(object);
    console.PrintJsonList("runs", {object});
  });
  const std::string shown = "{\"name\":\"x\\u202e\\u009b\\u007f\\n\\u001b\",\"a\":1}";
  EXPECT_EQ(printed.out, "{\"schema_version\":1," + shown.substr(1) +
                             "\n{\"schema_version\":1,\"runs\":[" + shown + "]}\n");
  const std::string first = printed.out.substr(0, printed.out.find('\n'));
  EXPECT_EQ(Json::parse(first)["name"], object["name"]);
  console.format = OutputFormat::kJsonLines;
  EXPECT_EQ(Capture([&] {
              console.PrintJsonList("runs", {object, Json({{"b", 2}})});
            }).out,
            "{\"schema_version\":1," + shown.substr(1) + "\n{\"schema_version\":1,\"b\":2}\n");
  EXPECT_EQ(Capture([&] { console.PrintJsonList("runs", {}); }).out, "");
  console.format = OutputFormat::kJson;
  EXPECT_EQ(Capture([&] { console.PrintJsonList("runs", {}); }).out,
            "{\"schema_version\":1,\"runs\":[]}\n");
}

TEST(ConsoleTest, JsonKeepsNamesThatAreNoText) {
  Console console;
  console.format = OutputFormat::kJson;
  Json object;
  object["path"] = "a\xff";
  object["kept"] = Json::array({"b", "\xfe"});
  object["files"].push_back({{"name", "\xc3"}});
  EXPECT_EQ(Capture([&] { console.PrintJson(object); }).out,
            "{\"schema_version\":1,\"path\":\"a\uFFFD\",\"kept\":[\"b\",\"\uFFFD\"],"
            "\"files\":[{\"name\":\"\uFFFD\",\"name_base64\":\"ww==\"}],"
            "\"path_base64\":\"Yf8=\",\"kept_base64\":[null,\"/g==\"]}\n");
  EXPECT_EQ(Capture([&] {
              console.PrintJson({{"path", "\u00e4"}});
            }).out,
            "{\"schema_version\":1,\"path\":\"\u00e4\"}\n");
}

TEST(ConsoleTest, InJsonModesOnlyJsonIsPrinted) {
  Console console;
  console.format = OutputFormat::kJson;
  console.trace = true;
  const Printed printed = Capture([&] {
    console.Say("a");
    console.Hint("b");
    console.Note("c");
    console.Trace("d");
    console.RewriteLine("e");
    console.PrintError(WithHint(absl::NotFoundError("f\u2066"), "g"));
  });
  EXPECT_EQ(printed.err, "");
  EXPECT_EQ(printed.out,
            "{\"schema_version\":1,\"error\":{\"code\":\"NOT_FOUND\",\"message\":\"f\\u2066\","
            "\"hint\":\"g\",\"exit_code\":1,\"source\":\"gpuctl\"}}\n");
}

TEST(ConsoleTest, AsksNobodyInJsonModes) {
  Console console;
  console.format = OutputFormat::kJson;
  EXPECT_FALSE(console.CanAsk());
  const absl::StatusOr<bool> answer = console.AskYesNo("Sure?", "nobody", "add -y");
  EXPECT_EQ(answer.status().message(), "nobody");
  EXPECT_EQ(HintOf(answer.status()), "add -y");
  EXPECT_EQ(ExitCodeOf(answer.status()), kExitUsage);
}

TEST(ConsoleTest, ALineThatIsRewrittenIsSafeToo) {
  EXPECT_EQ(Capture([] { Console().RewriteLine("a\nb"); }).err,
            "\r\x1b[K"
            "a\\nb");
  EXPECT_EQ(Capture([] { Console().Prompt("key\n: "); }).err, "key\\n: ");
}

TEST(ConsoleTest, AJobsBytesStayAsTheyAre) {
  const std::string bytes = std::string(kHostile) + std::string("\0\xff", 2);
  const Printed printed = Capture([&] {
    EXPECT_EQ(*Console().PrintJobBytes(bytes), bytes.size());
    Console().PrintJobErrorBytes(bytes);
  });
  EXPECT_EQ(printed.out, bytes);
  EXPECT_EQ(printed.err, bytes);
}

TEST(ConsoleTest, WhatIsSaidAboveAPanelIsSafe) {
  EXPECT_EQ(SaidLine(kHostile), std::string("gpuctl: ") + kShown);
}

TEST(ExcerptTest, ACaretStandsBelowThePlace) {
  const std::vector<std::string> lines = ExcerptLines({12, 3, "  gpus: H100"});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], "  12 |   gpus: H100");
  EXPECT_EQ(lines[1], "     |   ^");
}

TEST(ExcerptTest, OfALongLineOnlyWhatIsAround) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "ä";  // two bytes each
  text += "X" + text;
  const std::vector<std::string> lines = ExcerptLines({1, 201, text});
  EXPECT_LT(lines[0].size(), 130u);
  EXPECT_EQ(lines[0].find("\\x"), std::string::npos);  // no character was cut
  EXPECT_EQ(lines[1], "    |    " + std::string(25, ' ') + "^");
}

TEST(ExcerptTest, IsSafeAndMayBeBehindTheEnd) {
  const std::vector<std::string> lines = ExcerptLines({1, 999, std::string("\x1b[2J\tx")});
  EXPECT_EQ(lines[0], "  1 | \\x1b[2J\\tx");
  EXPECT_EQ(lines[1], "    |           ^");
}

TEST(ExcerptTest, IsPrintedBetweenTheErrorAndItsHint) {
  const absl::Status error = WithExcerpt(UsageError("bad", "mend it"), {2, 1, "x: y"});
  Console console;
  EXPECT_EQ(Capture([&] { console.PrintError(error); }).err,
            "gpuctl: bad\n  2 | x: y\n    | ^\nHINT: mend it\n");
}

}  // namespace
}  // namespace gpuctl
