// What gpuctl's own exit codes mean, and the two things an error carries besides its status: the
// hint for the next command and, where the status code does not say it, the exit code.
#ifndef GPUCTL_CLIENT_BASE_EXIT_CODES_H_
#define GPUCTL_CLIENT_BASE_EXIT_CODES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// A job's own code passes through, so these lie where jobs' rarely do. docs/json.md lists them.
enum ExitCode : int {
  kExitOk = 0,             // also: detached
  kExitFailed = 1,         // none of the others
  kExitUsage = 2,          // command line, run file, unknown run
  kExitBug = 70,           // a bug of ours
  kExitLeak = 117,         // something of ours bills and should not
  kExitIntegrity = 118,    // content does not match its digest
  kExitLimit = 119,        // a limit ended the job: time, cost
  kExitCredentials = 120,  // no credentials, or none accepted
  kExitCapacity = 121,     // nothing offers what was asked for
  kExitProvider = 122,     // the provider answered with an error
  kExitUnreachable = 123,  // the node does not answer; the job is unaffected
  kExitTimeout = 124,      // gave up waiting; it still runs
  kExitLost = 125,         // the job is lost: its node or its shim is gone
  kExitCannotRun = 126,    // the command was found and cannot be executed
  kExitNotFound = 127,     // the command was not found
  kExitInterrupted = 130,  // Ctrl-C where there was nothing to detach from
};

// `status` with the command (or action) that helps next; shown after "HINT: ". Keeps the code. A
// hint that is there already stays.
absl::Status WithHint(absl::Status status, absl::string_view hint);
std::string HintOf(const absl::Status& status);

// `status` that ends the process with `code` instead of what its status code implies.
absl::Status WithExitCode(absl::Status status, ExitCode code);
ExitCode ExitCodeOf(const absl::Status& status);

// A usage error: INVALID_ARGUMENT, exit code 2.
absl::Status UsageError(absl::string_view message, absl::string_view hint);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_EXIT_CODES_H_
