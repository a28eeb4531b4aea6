// The configuration of a run, from its file and the command line.

#ifndef TRAINER_CLI_RUN_CONFIG_H_
#define TRAINER_CLI_RUN_CONFIG_H_

#include "trainer/cli/args.h"
#include "trainer/config/config.h"

namespace gpuctl::trainer {

// Reads --config, --set, --init and --data. Throws Error(kBadConfig).
Config ConfigOfRun(const Args& args);

}  // namespace gpuctl::trainer

#endif  // TRAINER_CLI_RUN_CONFIG_H_
