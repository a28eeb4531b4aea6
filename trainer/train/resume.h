// Makes and checks state.json: the state of the run in a checkpoint, and whether this run may
// continue from it.

#ifndef TRAINER_TRAIN_RESUME_H_
#define TRAINER_TRAIN_RESUME_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/step/device.h"
#include "trainer/train/progress.h"

namespace gpuctl::trainer {

nlohmann::json StateToJson(const Config& config, const Placement& placement,
                           const std::string& data_digest, const Progress& progress);

// Reads the progress. Throws Error(kBadData) when a field is missing or has the wrong type.
Progress ProgressFromJson(const nlohmann::json& state, const std::string& path);

// Returns whether the run continues with the micro-batch of the configuration that began it. Only
// then the one that memory allowed counts again.
bool KeepsMicroBatch(const nlohmann::json& state, const Config& config);

// Returns a line for people where the run began from another folder than model.init, whose weights
// then count no more; else "".
std::string NoteOfOtherInit(const nlohmann::json& state, const Config& config);

// Throws Error(kBadConfig) when the checkpoint has another model, other frozen weights or adapters,
// Error(kBadData) when it was trained on other data. Returns the other differences, one line each:
// the run then continues, but not bit for bit as the first would have.
std::vector<std::string> CheckResumable(const nlohmann::json& state, const Config& config,
                                        const Placement& placement, const std::string& data_digest,
                                        const std::string& path);

}  // namespace gpuctl::trainer

#endif  // TRAINER_TRAIN_RESUME_H_
