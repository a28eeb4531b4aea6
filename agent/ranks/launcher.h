// Runs a job's command several times, as processes with ranks, in place of the command itself. The
// shim's direct child executes it, so to the shim it is the job.
#ifndef GPUCTL_AGENT_RANKS_LAUNCHER_H_
#define GPUCTL_AGENT_RANKS_LAUNCHER_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace gpuctl {

// The first argument of gpuctl-shim that means the launcher.
constexpr char kLauncherWord[] = "--ranks";

struct LauncherOptions {
  int processes = 0;       // JobSpec.processes
  absl::Duration grace;    // from SIGTERM to SIGKILL, when one process has failed
  std::string nvidia_smi;  // for processes -1; "": there is none
  int word_fd = -1;        // gets which process ended first (agent/base/last_word.h); -1: nothing
  std::vector<std::string> argv;  // of each process; argv[0] is searched in our own PATH
};

// Returns the words that start the launcher, for the command to be added behind them. `word_fd_at`
// is the place of the number of word_fd.
std::vector<std::string> LauncherArguments(const LauncherOptions& options, size_t& word_fd_at);

// Runs the processes with these words, from behind kLauncherWord, and returns the exit code for
// this process; or ends this process by a signal.
//
// Our stdout gets what all of them print (merger.h). The processes have our environment and the
// variables of their ranks (rank_place.h), /dev/null as stdin, and die when we die.
//
// The first process that ends other than with exit code 0 decides how we end; the others get
// SIGTERM and, after the grace, SIGKILL. One that ended by a SIGTERM that all got decides only when
// no other did. A signal from our parent is for all and is not passed on; from anybody else it is.
// When the port where the processes meet was taken meanwhile, all are started once more. We end
// when nothing that they started is left: what outlives them has the grace, then SIGTERM and 5 s.
int RunLauncher(const std::vector<std::string>& words);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_RANKS_LAUNCHER_H_
