// The commands of gpuctl-trainer. Each gets the words after its name and returns the exit code;
// failures are thrown as Error.

#ifndef TRAINER_CLI_COMMANDS_H_
#define TRAINER_CLI_COMMANDS_H_

#include <memory>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/ranks/group.h"
#include "trainer/ranks/ranks.h"

namespace gpuctl::trainer {

int RunTrain(const std::vector<std::string>& words);
int RunPreflight(const std::vector<std::string>& words);
int RunEval(const std::vector<std::string>& words);
int RunGenerate(const std::vector<std::string>& words);
int RunPrepare(const std::vector<std::string>& words);
int RunInspect(const std::vector<std::string>& words);
int RunExport(const std::vector<std::string>& words);
int RunMerge(const std::vector<std::string>& words);
int RunBench(const std::vector<std::string>& words);

// What ThrowIfStopped throws; RunCommand makes the exit code 128 + signal of it.
struct Stopped {
  int signal;
};
// Throws Stopped when SIGTERM or SIGINT arrived. WatchSignals() must have been called.
void ThrowIfStopped();

// Returns the value of a variable of the environment, or "".
std::string Environment(const char* name);
// Joins the other processes of a run, and notes in `config` which one this is. Throws as
// Group::Join and CheckProcesses do. WatchSignals() should have been called.
std::unique_ptr<Group> JoinRun(const Ranks& ranks, Config* config);

std::string HelpText();

// Runs the command that `words` (without the program's name) names.
int RunCommand(const std::vector<std::string>& words);

}  // namespace gpuctl::trainer

#endif  // TRAINER_CLI_COMMANDS_H_
