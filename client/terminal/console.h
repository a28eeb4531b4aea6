// The one place of the client that writes to stdout and stderr: text as lines and tables, JSON,
// progress, errors with hints, a question. What it prints cannot do anything to a terminal but be
// read (client/terminal/safe_text.h); only the functions whose names say so take bytes as they are.
#ifndef GPUCTL_CLIENT_TERMINAL_CONSOLE_H_
#define GPUCTL_CLIENT_TERMINAL_CONSOLE_H_

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/terminal/table.h"

namespace gpuctl {

constexpr int kJsonSchemaVersion = 1;

enum class OutputFormat { kTable, kWide, kJson, kJsonLines };

// kAlarm is red where stderr shows colours.
enum class Tone { kPlain, kAlarm };

// What stdout and stderr can show; found out once.
struct TerminalTraits {
  bool stdout_tty = false;
  bool stderr_tty = false;
  bool colour = false;     // a tty, and none of NO_COLOR, CLICOLOR=0, TERM=dumb, --no-color
  bool animation = false;  // stdout and stderr are ttys that can move the cursor, and no CI
  bool utf8 = false;       // the locale's character set
};
TerminalTraits DetectTerminal(bool no_color);

// What the flags common to all verbs say about the output, and all ways to print. Any thread may
// print.
class Console {
 public:
  bool json() const { return format == OutputFormat::kJson || format == OutputFormat::kJsonLines; }

  // To stderr, for people: nothing in JSON modes. Each prints one line, whatever is in it; a text
  // of several lines is printed by several calls.
  // "gpuctl: LINE".
  void Say(absl::string_view line, Tone tone = Tone::kPlain) const;
  // "HINT: LINE": the command, or the action, that helps next.
  void Hint(absl::string_view line) const;
  // "trace: LINE"; only with --trace.
  void Trace(absl::string_view line) const;
  // A line without a word of ours in front.
  void Note(absl::string_view line, Tone tone = Tone::kPlain) const;
  // Puts `line` in place of the one that the cursor is on; "" takes it away. For a terminal.
  void RewriteLine(absl::string_view line) const;
  // Begins a line on stderr, after which somebody types; in JSON modes too.
  void Prompt(absl::string_view question) const;
  // Ends that line, when what was typed was not shown.
  void EndPrompt() const;

  // To stdout, all of it; a reader that went away is no error.
  void PrintLine(absl::string_view line) const;
  void PrintLines(const std::vector<std::string>& lines) const;
  // A text of this program's own, in which "\n" ends a line: nothing in it is from elsewhere.
  void PrintOwnText(absl::string_view text) const;
  // Red cells are red where stdout shows colours.
  void PrintTable(const std::vector<TableRow>& rows) const;
  // The same, with no line wider than `columns`: see FormatTableWithin.
  void PrintTableWithin(std::vector<TableRow> rows, int columns,
                        const std::vector<std::string>& least) const;
  // One line: an object, with the schema version in front.
  void PrintJson(const nlohmann::ordered_json& object) const;
  // A list under `key`, or one line per object in the jsonl format.
  void PrintJsonList(const std::string& key,
                     const std::vector<nlohmann::ordered_json>& objects) const;

  // The error and its hint, for people on stderr or as JSON on stdout.
  void PrintError(const absl::Status& status) const;

  // True when there is somebody who can answer a question.
  bool CanAsk() const;
  // Asks on the terminal. INVALID_ARGUMENT (usage) with `nobody` and `hint` where nobody can
  // answer.
  absl::StatusOr<bool> AskYesNo(absl::string_view question, absl::string_view nobody,
                                absl::string_view hint = "add -y") const;

  // What a job or a command on its machine has printed, to stdout byte for byte, terminal or not:
  // as if it ran here. Returns how much was written; less than all only when `wake_fd` became
  // readable meanwhile (-1: never). UNAVAILABLE when the reader is gone.
  absl::StatusOr<size_t> PrintJobBytes(absl::string_view bytes, int wake_fd = -1) const;
  // The same for its stderr; however long it takes, and nobody is told when it fails.
  void PrintJobErrorBytes(absl::string_view bytes) const;
  // What moves the cursor and draws, to stdout: a panel, whose text was made safe before it was
  // put together. Returns as PrintJobBytes.
  absl::StatusOr<size_t> DrawSafe(absl::string_view frame, int wake_fd = -1) const;

  OutputFormat format = OutputFormat::kTable;
  bool trace = false;
  TerminalTraits terminal;
};

// The line that Console::Say prints, made safe, without newline: for the log above a panel.
std::string SaidLine(absl::string_view line);

// Not OK when something printed to stdout found no room: what a file holds now is not all of it.
absl::Status OutputStatus();

// Ends the process now, with `result` as RunCommandLine would: for when a thread is inside a
// connection attempt that nothing can break, so that neither it nor what it uses can be destroyed.
[[noreturn]] void ExitAtOnce(const Console& console, const absl::StatusOr<int>& result);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TERMINAL_CONSOLE_H_
