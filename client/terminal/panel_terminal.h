// A terminal with a scrolling log above a few fixed lines. Whatever ends the process, signals
// included, the terminal is left as it was found.
#ifndef GPUCTL_CLIENT_TERMINAL_PANEL_TERMINAL_H_
#define GPUCTL_CLIENT_TERMINAL_PANEL_TERMINAL_H_

#include <string>
#include <vector>

#include "client/terminal/console.h"

namespace gpuctl {

struct TerminalSize {
  int columns = 80;
  int rows = 24;
};
// Of the terminal on `fd`; 80x24 where it does not say.
TerminalSize GetTerminalSize(int fd);

// On stdout. At most one exists at a time; `console` outlives it.
class PanelTerminal {
 public:
  explicit PanelTerminal(const Console& console) : console_(console) {}
  ~PanelTerminal() { Restore(); }
  PanelTerminal(const PanelTerminal&) = delete;
  PanelTerminal& operator=(const PanelTerminal&) = delete;

  // Turns echo off and hides the cursor; installs handlers for fatal signals that undo it.
  void Start();
  // Removes the panel and puts everything back. Start may follow (after a stop by Ctrl-Z).
  void Restore();

  // What Console::DrawSafe takes to replace the panel on the screen by `log` (complete lines, no
  // newline at the end of each) and a new panel; the text of both is safe.
  std::string Frame(const std::vector<std::string>& log, const std::vector<std::string>& panel);
  TerminalSize size() const { return GetTerminalSize(1); }

 private:
  const Console& console_;
  bool started_ = false;
  // Widths of the panel's lines on the screen: how many rows they take depends on today's width.
  std::vector<int> shown_widths_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TERMINAL_PANEL_TERMINAL_H_
