// The meanings of gpuctl's own exit codes. Four things that an error carries besides its status:
// the hint for the next command; where the status code does not imply it, the exit code; where
// programs act on it, its cause; and the line of a file that it is about.
#ifndef GPUCTL_CLIENT_BASE_EXIT_CODES_H_
#define GPUCTL_CLIENT_BASE_EXIT_CODES_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// A job's own code passes through, so these have values that jobs rarely use. docs/json.md lists
// them.
enum ExitCode : int {
  kExitOk = 0,             // also: detached
  kExitFailed = 1,         // none of the others
  kExitUsage = 2,          // command line, run file, unknown run
  kExitBug = 70,           // a bug in gpuctl
  kExitLeak = 117,         // something that gpuctl rented still bills and should not
  kExitIntegrity = 118,    // content does not match its digest
  kExitLimit = 119,        // a limit ended the job: time, cost
  kExitCredentials = 120,  // no credentials, or none accepted
  kExitCapacity = 121,     // no offer fits the request
  kExitProvider = 122,     // the provider answered with an error
  kExitUnreachable = 123,  // the node does not answer; the job is unaffected
  kExitTimeout = 124,      // gpuctl stopped waiting; the job still runs
  kExitLost = 125,         // the job is lost: its node or its shim is gone
  kExitCannotRun = 126,    // the command was found and cannot be executed
  kExitNotFound = 127,     // the command was not found
  kExitInterrupted = 130,  // Ctrl-C where there was nothing to detach from
};

// Returns `status` with the command (or action) that helps next; it is shown after "HINT: ". Keeps
// the code, and a hint that is there already.
absl::Status WithHint(absl::Status status, absl::string_view hint);
std::string HintOf(const absl::Status& status);

// Returns `status` so that it ends the process with `code`, not with what its status code implies.
absl::Status WithExitCode(absl::Status status, ExitCode code);
ExitCode ExitCodeOf(const absl::Status& status);

// Returns `status` with its cause, one of the words below: a status code is shared by errors that a
// program must tell apart. "" when there is none.
inline constexpr char kNothingToBring[] = "nothing-to-bring";  // the run has no results
inline constexpr char kPriceLimit[] = "price-limit";  // a higher --max-price allows what is there
inline constexpr char kBadMachine[] = "bad-machine";  // what was rented was of no use
inline constexpr char kMarketRefuses[] = "market-refuses";  // it takes no request of ours now
absl::Status WithCause(absl::Status status, absl::string_view cause);
std::string CauseOf(const absl::Status& status);

// Returns `status` with the line of a file that it is about, for people.
struct Excerpt {
  int line = 0;    // its number, from 1
  int column = 0;  // the byte to point at, from 1
  std::string text;
};
absl::Status WithExcerpt(absl::Status status, const Excerpt& excerpt);
std::optional<Excerpt> ExcerptOf(const absl::Status& status);

// Returns a usage error: INVALID_ARGUMENT, exit code 2.
absl::Status UsageError(absl::string_view message, absl::string_view hint);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_EXIT_CODES_H_
