// Completes the configuration of a run by its model, its data and the memory that there is.

#ifndef TRAINER_TRAIN_RUN_PLAN_H_
#define TRAINER_TRAIN_RUN_PLAN_H_

#include <string>
#include <vector>

#include "trainer/checkpoint/folder_files.h"
#include "trainer/config/config.h"
#include "trainer/data/training_data.h"
#include "trainer/step/memory.h"
#include "trainer/train/model_source.h"

namespace gpuctl::trainer {

// Returns the configuration with the model and the adapters that were found.
Config WithModel(Config config, const ModelSource& source);

// Turns epochs and shares of the run into steps.
Config InSteps(Config config, const TrainingData& data);

// Returns the SHA-256 of tokenizer.json among the files of a model, in hex, or "".
std::string TokenizerDigest(const std::vector<KeptFile>& files);

// Chooses device, workers and micro-batch by the memory that is free now. Of the CPU's, `held`
// bytes of this process are free again before the first step, and `held_on_machine` of all its
// processes. Throws Error(kBadConfig) for a run that does not fit.
MemoryPlan PlanRun(const Config& config, int64_t held = 0, int64_t held_on_machine = 0);

}  // namespace gpuctl::trainer

#endif  // TRAINER_TRAIN_RUN_PLAN_H_
