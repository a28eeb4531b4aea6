#include "client/terminal/panel_terminal.h"

#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/terminal/line_assembler.h"

namespace gpuctl {
namespace {

constexpr absl::string_view kShowCursor = "\x1b[?25h\x1b[0m";
constexpr absl::string_view kHideCursor = "\x1b[?25l";

constexpr int kFatalSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGQUIT};

// The state that the handlers of fatal signals need.
struct SavedTerminal {
  volatile sig_atomic_t active = 0;
  int fd = -1;
  bool has_attributes = false;
  termios attributes = {};
  struct sigaction before[std::size(kFatalSignals)] = {};  // the handlers before Start
};
SavedTerminal g_saved;
std::atomic<bool> g_panel_is_shown = false;

void RestoreAttributes() {
  if (!g_saved.active) return;
  g_saved.active = 0;
  if (g_saved.has_attributes) tcsetattr(g_saved.fd, TCSANOW, &g_saved.attributes);
  // This also runs in a signal handler, so it bypasses the console.
  [[maybe_unused]] const ssize_t written =
      write(g_saved.fd, kShowCursor.data(), kShowCursor.size());
}

void OnFatalSignal(int signal) {
  RestoreAttributes();
  for (size_t i = 0; i < std::size(kFatalSignals); ++i) {
    if (kFatalSignals[i] == signal) sigaction(signal, &g_saved.before[i], nullptr);
  }
  raise(signal);
}

}  // namespace

void PrintTableFor(const Console& console, std::vector<TableRow> rows,
                   const std::vector<std::string>& least) {
  if (!console.terminal.stdout_tty || console.format == OutputFormat::kWide) {
    return console.PrintTable(rows);
  }
  console.PrintTableWrapped(std::move(rows), GetTerminalSize(STDOUT_FILENO).columns, least);
}

void PrintPageFor(const Console& console, std::vector<TableRow> rows) {
  if (!console.terminal.stdout_tty || console.format == OutputFormat::kWide) {
    return console.PrintTable(rows);
  }
  console.PrintPage(std::move(rows), GetTerminalSize(STDOUT_FILENO).columns);
}

bool PanelIsShown() { return g_panel_is_shown; }

void PanelTerminal::Start() {
  if (started_) return;
  started_ = true;
  g_panel_is_shown = true;
  HoldNotes();
  g_saved.fd = STDOUT_FILENO;
  g_saved.has_attributes = tcgetattr(STDOUT_FILENO, &g_saved.attributes) == 0;
  g_saved.active = 1;
  struct sigaction action = {};
  action.sa_handler = OnFatalSignal;
  sigfillset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kFatalSignals); ++i) {
    sigaction(kFatalSignals[i], nullptr, &g_saved.before[i]);
    if (g_saved.before[i].sa_handler == SIG_IGN) continue;  // it ends nothing
    sigaction(kFatalSignals[i], &action, nullptr);
  }
  if (g_saved.has_attributes) {
    termios quiet = g_saved.attributes;
    quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON);
    tcsetattr(STDOUT_FILENO, TCSANOW, &quiet);
  }
  (void)console_.DrawSafe(kHideCursor);
}

void PanelTerminal::Restore() {
  if (!started_) return;
  started_ = false;
  (void)console_.DrawSafe(Frame(ReleaseNotes(), {}));
  g_panel_is_shown = false;
  // What was typed meanwhile stays for the shell, as behind any other command.
  RestoreAttributes();
  for (size_t i = 0; i < std::size(kFatalSignals); ++i) {
    sigaction(kFatalSignals[i], &g_saved.before[i], nullptr);
  }
}

// Returns the bytes that begin a frame: they erase the panel that is on the screen.
std::string PanelTerminal::Erasing() const {
  const int columns = size().columns;
  int rows = 0;
  for (const int width : erased_widths_) rows += std::max(1, (width + columns - 1) / columns);
  // A terminal with mode 2026 draws this as one update; others flicker a little.
  std::string frame = "\x1b[?2026h\r";
  if (rows > 1) absl::StrAppend(&frame, "\x1b[", rows - 1, "A");
  absl::StrAppend(&frame, "\x1b[J");
  return frame;
}

void PanelTerminal::Renew(std::string& frame) {
  const std::string erasing = Erasing();
  frame.replace(0, erasing_bytes_, erasing);
  erasing_bytes_ = erasing.size();
}

std::string PanelTerminal::Frame(const std::vector<std::string>& log,
                                 const std::vector<std::string>& panel) {
  erased_widths_ = shown_widths_;
  std::string frame = Erasing();
  erasing_bytes_ = frame.size();
  for (const std::string& line : log) absl::StrAppend(&frame, line, "\n");
  shown_widths_.clear();
  for (size_t i = 0; i < panel.size(); ++i) {
    absl::StrAppend(&frame, i == 0 ? "" : "\n", panel[i]);
    shown_widths_.push_back(DisplayWidth(panel[i]));
  }
  absl::StrAppend(&frame, "\x1b[?2026l");
  return frame;
}

}  // namespace gpuctl
