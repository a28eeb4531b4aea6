// A run file guessed from a directory: which script trains, in which environment, and where its
// checkpoints are. Reads the beginnings of a few files, and runs nothing.
#ifndef GPUCTL_CLIENT_GUESS_GUESS_RUN_H_
#define GPUCTL_CLIENT_GUESS_GUESS_RUN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gpuctl {

struct Guess {
  std::string field;  // of the run file
  std::string value;
  std::string why;  // "train.py imports transformers"
};

struct GuessedRun {
  std::string name;
  std::string setup;  // a script for bash that makes the environment; empty: none is needed
  std::string run;    // a script for bash; empty: nothing to run was found
  std::vector<std::string> checkpoints;
  std::vector<Guess> guesses;  // what was guessed, and from what
};

// Guesses for the directory `dir`. Errors only when it cannot be listed.
absl::StatusOr<GuessedRun> GuessRun(const std::string& dir);

// Returns the run file. Its first line leads editors to the JSON Schema at `schema_path`
// (absolute). A guess that was not found is there as a comment.
std::string FormatRunFile(const GuessedRun& run, const std::string& schema_path);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_GUESS_GUESS_RUN_H_
