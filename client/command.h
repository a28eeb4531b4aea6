// What every verb gets, and how it speaks: flags common to all, the list of runs, errors with
// hints, output as text or JSON.
#ifndef GPUCTL_CLIENT_COMMAND_H_
#define GPUCTL_CLIENT_COMMAND_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/exit_codes.h"
#include "client/paths.h"
#include "client/run_store.h"
#include "common/clock.h"

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

class CommandContext {
 public:
  explicit CommandContext(Clock& the_clock) : clock(the_clock) {}

  // Opened at the first call.
  absl::StatusOr<ClientPaths> Paths();
  absl::StatusOr<RunStore*> Store();

  bool json() const { return format == OutputFormat::kJson || format == OutputFormat::kJsonLines; }
  int64_t NowMs() { return absl::ToUnixMillis(clock.Now()); }

  Clock& clock;
  OutputFormat format = OutputFormat::kTable;
  bool trace = false;
  TerminalTraits terminal;
  // What stood behind "--"; absent when there was none.
  std::optional<std::vector<std::string>> after_dashes;

 private:
  std::unique_ptr<RunStore> store_;
};

// A verb: its arguments without its own name. Returns the process's exit code.
using VerbFunction = absl::StatusOr<int> (*)(CommandContext& context,
                                             std::vector<std::string> args);
struct Verb {
  const char* name;
  const char* group;
  const char* summary;
  VerbFunction run;
};
// All verbs, in the order of the help.
const std::vector<Verb>& Verbs();

// Runs what the command line says; never throws for what a user can type. The body of main().
int RunCommandLine(int argc, char** argv);

// Ends the process now, with `result` as RunCommandLine would: for when a thread is inside a
// connection attempt that nothing can break, so that neither it nor what it uses can be destroyed.
[[noreturn]] void ExitAtOnce(const CommandContext& context, const absl::StatusOr<int>& result);

// Text to stdout, all of it; a reader that went away is no error.
void PrintOut(absl::string_view text);
// Not OK when a PrintOut found no room for its text: what a file holds now is not all of it.
absl::Status OutputStatus();
// A line of progress to stderr; nothing in JSON modes.
void PrintProgress(const CommandContext& context, absl::string_view line);
// The error and its hint, for people on stderr or as JSON on stdout.
void PrintError(const CommandContext& context, const absl::Status& status);

// `object` is one JSON object "{…}"; the schema version goes in front.
std::string WithSchemaVersion(absl::string_view object);
// A list under `key`, or one line per object in the jsonl format.
void PrintJsonList(const CommandContext& context, absl::string_view key,
                   const std::vector<std::string>& objects);

// The run that `reference` names.
absl::StatusOr<RunRow> FindRun(CommandContext& context, absl::string_view reference);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_COMMAND_H_
