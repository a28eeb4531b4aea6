#include "client/terminal/console.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
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

TEST(ConsoleTest, LinesWaitWhileSomethingElseIsDrawn) {
  Console console;
  using Lines = std::vector<std::string>;
  Lines taken, rest;
  const Printed printed = Capture([&] {
    HoldNotes();
    console.Warn("first contact");
    console.Hint("x");
    taken = TakeNotes();
    console.Say(kHostile);
    rest = ReleaseNotes();
    console.Say("later");
  });
  EXPECT_EQ(taken, (Lines{"gpuctl: first contact", "HINT: x"}));
  EXPECT_EQ(rest, Lines{absl::StrCat("gpuctl: ", kShown)});
  EXPECT_EQ(printed.err, "gpuctl: later\n");
  EXPECT_EQ(TakeNotes(), Lines{});
}

// A pseudo-terminal as stderr while it lives.
class StderrTerminal {
 public:
  explicit StderrTerminal(unsigned short columns) {
    winsize size = {};
    size.ws_row = 24;
    size.ws_col = columns;
    ours_ = posix_openpt(O_RDWR | O_NOCTTY);
    EXPECT_EQ(grantpt(ours_), 0);
    EXPECT_EQ(unlockpt(ours_), 0);
    theirs_ = open(ptsname(ours_), O_RDWR | O_NOCTTY);
    EXPECT_EQ(ioctl(theirs_, TIOCSWINSZ, &size), 0);
    saved_ = dup(STDERR_FILENO);
    EXPECT_EQ(dup2(theirs_, STDERR_FILENO), STDERR_FILENO);
  }
  ~StderrTerminal() {
    dup2(saved_, STDERR_FILENO);
    for (const int fd : {ours_, theirs_, saved_}) close(fd);
  }
  // Returns what was written; to be called when something was.
  std::string Text() const {
    char text[4096];
    const ssize_t size = read(ours_, text, sizeof text);
    return size < 0 ? "" : std::string(text, static_cast<size_t>(size));
  }

 private:
  int ours_ = -1, theirs_ = -1, saved_ = -1;
};

TEST(ConsoleTest, ALongLineIsBrokenBetweenWordsOnATerminalAlone) {
  const std::string hint = "gpuctl pull train-1 brings the newest checkpoint";
  std::string shown, with_trace;
  {
    const StderrTerminal terminal(30);
    Console console;
    console.trace = true;
    console.terminal.stderr_tty = true;
    console.Hint(hint);
    shown = terminal.Text();
    console.Trace(hint);
    with_trace = terminal.Text();
  }
  EXPECT_EQ(shown, "HINT: gpuctl pull train-1\r\n  brings the newest checkpoint\r\n");
  EXPECT_EQ(with_trace, "trace: " + hint + "\r\n");
  EXPECT_EQ(Capture([&] { Console().Hint(hint); }).err, "HINT: " + hint + "\n");
}

TEST(InterruptWordTest, CtrlCSaysWhatWasNotDone) {
  const auto interrupted = [](const std::function<void()>& around) {
    around();
    (void)raise(SIGINT);
  };
  EXPECT_EXIT(interrupted([] { new InterruptWord("nothing was rented\x1b"); }),
              testing::KilledBySignal(SIGINT), "^gpuctl: nothing was rented\\\\x1b\n$");
  // The inner one speaks, and the outer one after it.
  EXPECT_EXIT(interrupted([] {
                new InterruptWord("outer");
                const InterruptWord inner("inner");
                (void)raise(SIGINT);
              }),
              testing::KilledBySignal(SIGINT), "^gpuctl: inner\n$");
  EXPECT_EXIT(interrupted([] {
                new InterruptWord("outer");
                const InterruptWord inner("inner");
              }),
              testing::KilledBySignal(SIGINT), "^gpuctl: outer\n$");
  EXPECT_EXIT(interrupted([] { const InterruptWord gone("gone"); }),
              testing::KilledBySignal(SIGINT), "^$");
}

TEST(InterruptWordTest, WhoCatchesOrIgnoresTheSignalKeepsIt) {
  struct sigaction before = {}, now = {};
  ASSERT_NE(signal(SIGINT, SIG_IGN), SIG_ERR);
  {
    const InterruptWord word("nothing was rented");
    ASSERT_EQ(sigaction(SIGINT, nullptr, &now), 0);
    EXPECT_EQ(now.sa_handler, SIG_IGN);
  }
  ASSERT_NE(signal(SIGINT, SIG_DFL), SIG_ERR);
  { const InterruptWord word("nothing was rented"); }
  ASSERT_EQ(sigaction(SIGINT, nullptr, &before), 0);
  EXPECT_EQ(before.sa_handler, SIG_DFL);
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
  const absl::StatusOr<bool> answer = console.AskYesNo("Sure?", "undone", "nobody", "add -y");
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
