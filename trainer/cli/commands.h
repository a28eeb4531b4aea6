// The commands of gpuctl-trainer. Each gets the words after its name and returns the exit code;
// failures are thrown as Error.

#ifndef TRAINER_CLI_COMMANDS_H_
#define TRAINER_CLI_COMMANDS_H_

#include <string>
#include <vector>

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

std::string HelpText();

// Runs the command that `words` (without the program's name) names.
int RunCommand(const std::vector<std::string>& words);

}  // namespace gpuctl::trainer

#endif  // TRAINER_CLI_COMMANDS_H_
