// A terminal with a scrolling log above a few fixed lines. The terminal is restored when the
// process ends for any reason, signals included.
#ifndef GPUCTL_CLIENT_TERMINAL_PANEL_TERMINAL_H_
#define GPUCTL_CLIENT_TERMINAL_PANEL_TERMINAL_H_

#include <string>
#include <vector>

#include "client/terminal/console.h"
#include "client/terminal/terminal_size.h"

namespace gpuctl {

// Prints a table as Console::PrintTableWrapped does on a terminal, as wide as that is; whole
// elsewhere, and in the wide format.
void PrintTableFor(const Console& console, std::vector<TableRow> rows,
                   const std::vector<std::string>& least);

// Prints rows of names and a text as Console::PrintPage does on a terminal, as wide as that is;
// each row on one line elsewhere, and in the wide format.
void PrintPageFor(const Console& console, std::vector<TableRow> rows);

// True while a panel is on stdout, so that nothing else may write to the terminal. Safe from any
// thread.
bool PanelIsShown();

// The panel on stdout. At most one exists at a time; `console` outlives it.
class PanelTerminal {
 public:
  explicit PanelTerminal(const Console& console) : console_(console) {}
  ~PanelTerminal() { Restore(); }
  PanelTerminal(const PanelTerminal&) = delete;
  PanelTerminal& operator=(const PanelTerminal&) = delete;

  // Turns echo off and hides the cursor. Installs handlers for fatal signals that undo both.
  void Start();
  // Removes the panel and restores the terminal. Start may follow (after a stop by Ctrl-Z).
  void Restore();

  // Returns a frame for Console::DrawSafe that replaces the panel on the screen by `log` (complete
  // lines, without newlines) and a new panel. The text of both must be safe.
  std::string Frame(const std::vector<std::string>& log, const std::vector<std::string>& panel);
  // Makes the newest frame, of which nothing was written yet, fit the terminal's present size.
  void Renew(std::string& frame);
  TerminalSize size() const { return GetTerminalSize(1); }

 private:
  std::string Erasing() const;
  const Console& console_;
  bool started_ = false;
  // Widths of the panel's lines on the screen, in columns. The rows that they take depend on the
  // terminal's current width.
  std::vector<int> shown_widths_;
  // What the newest frame erases, and the number of its bytes that do it.
  std::vector<int> erased_widths_;
  size_t erasing_bytes_ = 0;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TERMINAL_PANEL_TERMINAL_H_
