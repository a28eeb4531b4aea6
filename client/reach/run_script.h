// What a node's shell runs for a user's command or shell beside a run's job.
#ifndef GPUCTL_CLIENT_REACH_RUN_SCRIPT_H_
#define GPUCTL_CLIENT_REACH_RUN_SCRIPT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/base/paths.h"
#include "client/runs/run_store.h"
#include "gpuctl/v1/run.pb.h"

namespace gpuctl {

// The place and the environment of a job. Secrets are not part of it, because they are stored
// nowhere.
struct RunPlace {
  std::string root;  // of the node; "" means ~/.gpuctl there
  std::string run_id;
  std::string job_id;
  int attempt = 1;
  gpuctl::v1::JobSpec spec;  // for its environment
};

// Returns the place of a run whose row is whole, as RunStore::Get returns it; the attempt is that
// of its copy here.
absl::StatusOr<RunPlace> PlaceOf(const ClientPaths& paths, const RunRow& row);

// How the user's command gets its end.
enum class CommandStyle {
  kPipes,     // it takes the place of the script
  kTerminal,  // the script waits for it, because OpenSSH's client does not tell of signals
};

// Returns a script (POSIX sh) that runs `argv` in the job's work directory with the job's
// environment; 126 when the directory is not there. It tells a node with limits that the user is
// there, as long as the command runs.
std::string CommandScript(const RunPlace& place, const std::vector<std::string>& argv,
                          CommandStyle style);

// Does the same for the user's own shell there; a login shell on a `terminal`. Without the
// directory it begins in the home directory, and says so.
std::string ShellScript(const RunPlace& place, bool terminal);

// INVALID_ARGUMENT (usage) when a script of `verb` is too long for one argument of a program.
absl::Status CheckScriptSize(absl::string_view verb, const std::string& script);

// Returns a script that prints a line `mark` and stays until its stdin ends; `root` is the node's.
std::string StayScript(const std::string& root, absl::string_view mark);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_REACH_RUN_SCRIPT_H_
