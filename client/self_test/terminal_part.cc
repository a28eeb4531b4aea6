#include <termios.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/self_test/parts.h"
#include "client/show/panel.h"
#include "client/terminal/line_assembler.h"
#include "client/terminal/panel_terminal.h"

namespace gpuctl {
namespace {

constexpr char kTerminalCheck[] = "terminal";
constexpr char kAskForCursor[] = "\x1b[6n";
constexpr absl::Duration kAnswersWithin = absl::Milliseconds(700);

// Returns the column in a terminal's answer "ESC [ row ; column R"; nothing when there is none.
std::optional<int> ColumnIn(absl::string_view answer) {
  const size_t end = answer.rfind('R');
  if (end == answer.npos) return std::nullopt;
  const size_t begin = answer.rfind(';', end);
  int column = 0;
  if (begin == answer.npos ||
      !absl::SimpleAtoi(answer.substr(begin + 1, end - begin - 1), &column)) {
    return std::nullopt;
  }
  return column;
}

// Makes a read from the terminal end after a tenth of a second. poll() knows no terminals on macOS.
void ReadWithLimit() {
  termios attributes = {};
  if (tcgetattr(STDOUT_FILENO, &attributes) != 0) return;
  attributes.c_cc[VMIN] = 0;
  attributes.c_cc[VTIME] = 1;
  tcsetattr(STDOUT_FILENO, TCSANOW, &attributes);
}

// Asks the terminal on stdout for the cursor's column, from 1. Nothing when it does not answer.
std::optional<int> CursorColumn(const Console& console, Clock& clock) {
  if (!console.DrawSafe(kAskForCursor).ok()) return std::nullopt;
  const absl::Duration end = clock.SinceBoot() + kAnswersWithin;
  std::string answer;
  while (clock.SinceBoot() < end && answer.size() < 256) {
    char buffer[64];
    const ssize_t got = read(STDOUT_FILENO, buffer, sizeof(buffer));
    if (got < 0 && errno != EINTR) return std::nullopt;
    if (got > 0) answer.append(buffer, static_cast<size_t>(got));
    if (const std::optional<int> column = ColumnIn(answer)) return column;
  }
  return std::nullopt;
}

// Returns a panel with everything that a panel can have.
PanelState FullPanel() {
  PanelState state;
  state.run_name = "self-test";
  state.node_name = "local";
  state.phase = RunPhase::kRunning;
  state.running_for = absl::Minutes(12);
  state.linked = state.ever_linked = true;
  state.hint = "this is what a run looks like";
  for (int step = 1; step <= 60; ++step) {
    MetricSample sample;
    sample.step = step;
    sample.total_steps = 120;
    sample.loss = 4.0 / step + 1;
    sample.learning_rate = 3e-4;
    sample.time_ms = step * 1000;
    sample.checkpoint = step == 60;
    state.progress.Add(sample);
  }
  TelemetrySample telemetry;
  telemetry.cpu_percent = 42;
  telemetry.gpus.push_back({93.0, 61e9, 80e9, 412.0, 71.0});
  state.telemetry = telemetry;
  return state;
}

}  // namespace

Judgement JudgeDrawing(const std::vector<DrawnLine>& lines, int columns, int rows, bool utf8,
                       bool colour) {
  const std::string size =
      absl::StrCat(columns, "x", rows, utf8 ? ", UTF-8" : ", not UTF-8 (the panel is in ASCII)",
                   colour ? ", colours" : ", no colours");
  bool told = false;
  for (const DrawnLine& line : lines) {
    told = told || line.column.has_value();
    if (!line.column.has_value() || *line.column == line.width + 1) continue;
    return {false,
            absl::StrCat(size, ": a line of the panel that should be ", line.width,
                         " columns wide takes ", *line.column - 1),
            "choose a terminal or font in which line drawing and block characters are one column "
            "wide (a setting for ambiguous width), or export LC_ALL=C for a panel in ASCII"};
  }
  if (lines.empty()) return {true, absl::StrCat(size, ": too small for a panel"), ""};
  return {true,
          absl::StrCat(size, told ? ": the panel is as wide as it should be"
                                  : ": this terminal does not tell where its cursor is; the panel "
                                    "above should have straight lines"),
          ""};
}

void TestTerminal(const Console& console, Reporter& report) {
  const TerminalTraits& traits = console.terminal;
  if (console.json() || !traits.stdout_tty || !traits.stderr_tty) {
    return report.Ok(kTerminalCheck, console.json()
                                         ? "not looked at with JSON"
                                         : "stdout or stderr is none, so a run is shown without "
                                           "panel: only what it prints");
  }
  if (!traits.animation) {
    return report.Ok(kTerminalCheck,
                     "TERM or CI says that it draws no panel; a run is shown without");
  }
  PanelTerminal terminal(console);
  const TerminalSize size = terminal.size();
  std::vector<DrawnLine> drawn;
  terminal.Start();
  ReadWithLimit();
  bool tells = true;
  for (const std::string& line :
       RenderPanel(FullPanel(), size.columns, size.rows, {traits.colour, traits.utf8})) {
    if (!console.DrawSafe(line).ok()) break;
    DrawnLine result{line, DisplayWidth(line), std::nullopt};
    if (tells) result.column = CursorColumn(console, report.clock());
    tells = result.column.has_value();
    drawn.push_back(std::move(result));
    if (!console.DrawSafe("\r\n").ok()) break;
  }
  terminal.Restore();
  report.Add(kTerminalCheck,
             JudgeDrawing(drawn, size.columns, size.rows, traits.utf8, traits.colour));
}

}  // namespace gpuctl
