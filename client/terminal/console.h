// How a verb speaks: output as text or JSON, lines of progress, errors with hints, a question.
#ifndef GPUCTL_CLIENT_TERMINAL_CONSOLE_H_
#define GPUCTL_CLIENT_TERMINAL_CONSOLE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

constexpr int kJsonSchemaVersion = 1;

enum class OutputFormat { kTable, kWide, kJson, kJsonLines };

// What stdout and stderr can show; found out once.
struct TerminalTraits {
  bool stdout_tty = false;
  bool stderr_tty = false;
  bool colour = false;     // a tty, and none of NO_COLOR, CLICOLOR=0, TERM=dumb, --no-color
  bool animation = false;  // stdout and stderr are ttys that can move the cursor, and no CI
  bool utf8 = false;       // the locale's character set
};
TerminalTraits DetectTerminal(bool no_color);

// What the flags common to all verbs say about the output.
class Console {
 public:
  bool json() const { return format == OutputFormat::kJson || format == OutputFormat::kJsonLines; }

  OutputFormat format = OutputFormat::kTable;
  bool trace = false;
  TerminalTraits terminal;
};

// Ends the process now, with `result` as RunCommandLine would: for when a thread is inside a
// connection attempt that nothing can break, so that neither it nor what it uses can be destroyed.
[[noreturn]] void ExitAtOnce(const Console& console, const absl::StatusOr<int>& result);

// Text to stdout, all of it; a reader that went away is no error.
void PrintOut(absl::string_view text);
// Not OK when a PrintOut found no room for its text: what a file holds now is not all of it.
absl::Status OutputStatus();
// A line of progress to stderr; nothing in JSON modes.
void PrintProgress(const Console& console, absl::string_view line);
// The error and its hint, for people on stderr or as JSON on stdout.
void PrintError(const Console& console, const absl::Status& status);

// Asks on the terminal; INVALID_ARGUMENT (usage) with `nobody` where there is nobody to ask.
absl::StatusOr<bool> AskYesNo(const Console& console, const std::string& question,
                              const std::string& nobody);

// `object` is one JSON object "{…}"; the schema version goes in front.
std::string WithSchemaVersion(absl::string_view object);
// A list under `key`, or one line per object in the jsonl format.
void PrintJsonList(const Console& console, absl::string_view key,
                   const std::vector<std::string>& objects);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TERMINAL_CONSOLE_H_
