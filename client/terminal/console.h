// The only part of the client that writes to stdout and stderr: text as lines and tables, JSON,
// progress, errors with hints, a question. It makes text safe for a terminal
// (client/terminal/safe_text.h); only the functions whose names say so print bytes as they are.
#ifndef GPUCTL_CLIENT_TERMINAL_CONSOLE_H_
#define GPUCTL_CLIENT_TERMINAL_CONSOLE_H_

#include <signal.h>

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/terminal/table.h"

namespace gpuctl {

struct Excerpt;
struct VerbText;

constexpr int kJsonSchemaVersion = 1;

enum class OutputFormat { kTable, kWide, kJson, kJsonLines };

// With -q only lines of kWarning and kAlarm are printed: what went wrong, costs money unasked, or
// is lost. kAlarm is red where stderr shows colours.
enum class Tone { kPlain, kWarning, kAlarm };

// The abilities of stdout and stderr, detected once.
struct TerminalTraits {
  bool stdout_tty = false;
  bool stderr_tty = false;
  bool colour = false;     // a tty, and none of NO_COLOR, CLICOLOR=0, TERM=dumb, --no-color
  bool animation = false;  // stdout and stderr are ttys that can move the cursor, outside CI
  bool utf8 = false;       // the locale's character set is UTF-8
};
TerminalTraits DetectTerminal(bool no_color);

// The output settings of the flags common to all verbs, and all functions that print. Any thread
// may print.
class Console {
 public:
  bool json() const { return format == OutputFormat::kJson || format == OutputFormat::kJsonLines; }

  // These print to stderr, for people; nothing in JSON modes, and with -q only as Tone says. Each
  // call prints exactly one line, so a text of several lines needs several calls. On a terminal
  // that is narrower the line goes on below, indented, and is broken between words. Prints "gpuctl:
  // LINE".
  void Say(absl::string_view line, Tone tone = Tone::kPlain) const;
  // Does the same, with -q too.
  void Warn(absl::string_view line) const { Say(line, Tone::kWarning); }
  // Prints "HINT: LINE": the command, or the action, that helps next.
  void Hint(absl::string_view line) const;
  // Prints "trace: LINE"; only with --trace.
  void Trace(absl::string_view line) const;
  // Prints a line without a prefix.
  void Note(absl::string_view line, Tone tone = Tone::kPlain) const;
  // Does the same, with -q too: whoever is asked something must see what it is about.
  void NoteForQuestion(absl::string_view line) const { Note(line, Tone::kWarning); }
  // Replaces the line that the cursor is on by `line`; "" removes it. Needs a terminal.
  void RewriteLine(absl::string_view line) const;
  // Shows `line` below all that was said, on a terminal, until something else is said; "" removes
  // it. A line of RewriteLine goes first.
  void ShowWaiting(absl::string_view line) const;
  // Begins a line on stderr, after which the user types; in JSON modes too.
  void Prompt(absl::string_view question) const;
  // Ends that line when the terminal did not echo the typed text.
  void EndPrompt() const;

  // These print all of it to stdout; a reader that went away is no error.
  void PrintLine(absl::string_view line) const;
  void PrintLines(const std::vector<std::string>& lines) const;
  // Prints gpuctl's own text, without any content from elsewhere; "\n" ends a line.
  void PrintOwnText(absl::string_view text) const;
  // Prints red cells in red where stdout shows colours.
  void PrintTable(const std::vector<TableRow>& rows) const;
  // Does the same, with no line wider than `columns`: see FormatTableWithin.
  void PrintTableWithin(std::vector<TableRow> rows, int columns,
                        const std::vector<std::string>& least) const;
  // Does the same, and breaks the last column between words: see FormatTableWrapped.
  void PrintTableWrapped(std::vector<TableRow> rows, int columns,
                         const std::vector<std::string>& least) const;
  // Prints rows of names and a text, with no line wider than `columns` where its words allow it:
  // see FormatPage.
  void PrintPage(std::vector<TableRow> rows, int columns) const;
  // Prints one line: an object, with the schema version in front.
  void PrintJson(const nlohmann::ordered_json& object) const;
  // Prints a list under `key`, or one line per object in the jsonl format.
  void PrintJsonList(const std::string& key,
                     const std::vector<nlohmann::ordered_json>& objects) const;

  // Prints the error and its hint, for people on stderr or as JSON on stdout.
  void PrintError(const absl::Status& status) const;

  // True when somebody can answer a question.
  bool CanAsk() const;
  // Asks on the terminal. INVALID_ARGUMENT (usage) with `nobody` and `hint` when nobody can answer.
  // When Ctrl-C ends the process there, it says `undone` first: "nothing was rented".
  absl::StatusOr<bool> AskYesNo(absl::string_view question, absl::string_view undone,
                                absl::string_view nobody, absl::string_view hint = "add -y") const;

  // Prints the output of a job, or of a command on its machine, to stdout byte for byte, terminal
  // or not: as if it ran here. Returns the number of bytes written; less than all only when
  // `wake_fd` became readable meanwhile (-1: never). UNAVAILABLE when the reader is gone.
  absl::StatusOr<size_t> PrintJobBytes(absl::string_view bytes, int wake_fd = -1) const;
  // Does the same for its stderr. Waits without a limit, and ignores errors.
  void PrintJobErrorBytes(absl::string_view bytes) const;
  // Prints a frame with cursor movements, such as a panel, to stdout. Its text must be safe
  // already. Returns as PrintJobBytes.
  absl::StatusOr<size_t> DrawSafe(absl::string_view frame, int wake_fd = -1) const;

  OutputFormat format = OutputFormat::kTable;
  bool trace = false;
  bool quiet =
      false;  // -q: stdout has what a script needs, stderr what went wrong; false with JSON
  TerminalTraits terminal;
  // Where a verb says what it takes, instead of doing anything; null: it does its work.
  VerbText* describe = nullptr;
};

// While it lives, a SIGINT that ends this process prints "gpuctl: LINE" to stderr first. The
// process ends by the signal, as it would without it. Where SIGINT is ignored or caught already, it
// does nothing; who catches the signal later gets it alone. One may live inside another: the inner
// one speaks. Make and destroy them on one thread.
class InterruptWord {
 public:
  // `line` is made safe. "" says nothing.
  explicit InterruptWord(absl::string_view line);
  ~InterruptWord();
  InterruptWord(const InterruptWord&) = delete;
  InterruptWord& operator=(const InterruptWord&) = delete;

 private:
  const char* outer_ = nullptr;  // the line of the one around it
  bool installed_ = false;
  struct sigaction before_ = {};
};

// Returns an error as it is in JSON documents: code, message, hint, exit code and source.
nlohmann::ordered_json ErrorToJson(const absl::Status& status);

// Returns the lines that show an excerpt: the file's line, made safe, and a caret below its place.
std::vector<std::string> ExcerptLines(const Excerpt& excerpt);

// While something else is drawn on the terminal, the lines of Note, Say, Warn and Hint wait, from
// whichever thread. TakeNotes returns those that wait, safe and without newlines; ReleaseNotes does
// so, too, and from then on lines are written at once.
void HoldNotes();
std::vector<std::string> TakeNotes();
std::vector<std::string> ReleaseNotes();

// Returns the line that Console::Say prints, made safe, without newline: for the log above a panel.
std::string SaidLine(absl::string_view line);

// Returns an error when stdout had no room for some output, or was closed from the beginning: what
// it goes to is incomplete.
absl::Status OutputStatus();

// Ends the process now, with `result` as RunCommandLine would. For use when a thread is inside a
// connection attempt that nothing can interrupt: neither the thread nor the objects that it uses
// can be destroyed.
[[noreturn]] void ExitAtOnce(const Console& console, const absl::StatusOr<int>& result);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TERMINAL_CONSOLE_H_
