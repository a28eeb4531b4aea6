// The built-in trainer of this computer, which runs the commands that need LibTorch.
#ifndef GPUCTL_CLIENT_TRAINER_TRAINER_PROGRAM_H_
#define GPUCTL_CLIENT_TRAINER_TRAINER_PROGRAM_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/base/exit_codes.h"
#include "client/base/paths.h"
#include "client/runs/context.h"

namespace gpuctl {

struct TrainerProgram {
  std::vector<std::string> argv;  // behind it come the trainer's own words
  std::vector<std::string> env;   // "NAME=value", for it alone
};

// Returns the trainer beside gpuctl, else the kit in share/gpuctl if it is for this computer, else
// trainer-src/build.sh, which compiles the trainer once. NOT_FOUND with a hint when there is none
// of them, or when the trainer cannot be compiled here.
absl::StatusOr<TrainerProgram> FindTrainerProgram(const BundlePaths& paths);

struct TrainerCall {
  std::vector<std::string> words;  // the command and its flags
  std::string input;               // its stdin; "": that of gpuctl
  std::vector<std::string> env;    // "NAME=value", for it alone
  bool own_codes = false;          // its exit codes pass through, as those of a job
  // Gets its stdout; null: it goes where that of gpuctl goes.
  std::string* output = nullptr;
};

// Runs the trainer to its end. Signals are passed on; the third one kills it. What it says on
// stderr is said as gpuctl says things, and in JSON modes becomes the error. Returns its exit code;
// an error when it did not run, was killed, or failed in a JSON mode. The codes 64 and 65 are
// gpuctl's 2 and 1, unless they pass through. Call it while there are no other threads.
absl::StatusOr<int> RunTrainer(const CommandContext& context, const TrainerCall& call);

// A part of RunTrainer: gpuctl's exit code for one of the trainer's.
int ExitCodeForTrainers(int code);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TRAINER_TRAINER_PROGRAM_H_
