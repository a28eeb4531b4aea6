// A terminal with a scrolling log above a few fixed lines. Whatever ends the process, signals
// included, the terminal is left as it was found.
#ifndef GPUCTL_CLIENT_TERMINAL_PANEL_TERMINAL_H_
#define GPUCTL_CLIENT_TERMINAL_PANEL_TERMINAL_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

struct TerminalSize {
  int columns = 80;
  int rows = 24;
};
// Of the terminal on `fd`; 80x24 where it does not say.
TerminalSize GetTerminalSize(int fd);

// Writes all of `text` to `fd`, a terminal, pipe or file, without ever blocking longer than until
// `wake_fd` becomes readable: then it returns how much was written. UNAVAILABLE when the reader is
// gone. Pass -1 to wait however long it takes.
absl::StatusOr<size_t> WriteOrWake(int fd, absl::string_view text, int wake_fd);

// At most one exists at a time.
class PanelTerminal {
 public:
  explicit PanelTerminal(int fd) : fd_(fd) {}
  ~PanelTerminal() { Restore(); }
  PanelTerminal(const PanelTerminal&) = delete;
  PanelTerminal& operator=(const PanelTerminal&) = delete;

  // Turns echo off and hides the cursor; installs handlers for fatal signals that undo it.
  void Start();
  // Removes the panel and puts everything back. Start may follow (after a stop by Ctrl-Z).
  void Restore();

  // The bytes that replace the panel on the screen by `log` (complete lines, no newline at the end
  // of each) and a new panel.
  std::string Frame(const std::vector<std::string>& log, const std::vector<std::string>& panel);
  TerminalSize size() const { return GetTerminalSize(fd_); }

 private:
  int fd_;
  bool started_ = false;
  // Widths of the panel's lines on the screen: how many rows they take depends on today's width.
  std::vector<int> shown_widths_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TERMINAL_PANEL_TERMINAL_H_
