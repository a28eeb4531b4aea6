// Continues a text, byte by byte.

#ifndef TRAINER_TRAIN_GENERATE_H_
#define TRAINER_TRAIN_GENERATE_H_

#include <functional>
#include <string>

#include "trainer/config/config.h"
#include "trainer/train/stepper.h"

namespace gpuctl::trainer {

// Generates `sample.tokens` bytes after `sample.prompt`, calling `emit` with each as it comes, and
// returns them all. Temperature 0 takes the likeliest byte; otherwise the draw is a pure function
// of sample.seed. Computes the whole window again for each byte, so that the model sees the same
// inputs as in training; continues longer texts from their last `context` bytes. Calls `stop`
// before each byte.
std::string Generate(Stepper& stepper, const ModelConfig& model, const SampleConfig& sample,
                     const std::function<void(char)>& emit, const std::function<bool()>& stop);

}  // namespace gpuctl::trainer

#endif  // TRAINER_TRAIN_GENERATE_H_
