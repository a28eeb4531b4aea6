// Texts that a run generates from its prompts, so that people see what the model has learned.

#ifndef TRAINER_TRAIN_SAMPLES_H_
#define TRAINER_TRAIN_SAMPLES_H_

#include <functional>
#include <optional>
#include <string>

#include "trainer/config/config.h"
#include "trainer/data/prompts.h"
#include "trainer/model/gpt.h"

namespace gpuctl::trainer {

struct SampleText {
  std::string prompt;
  std::string text;   // behind it; perhaps not valid UTF-8
  bool chat = false;  // an answer, not a continuation
};

// Immutable. It draws from random numbers of its own, so samples change nothing of a run.
class Sampler {
 public:
  // Uses the prompts of config.sample: as bytes, or with prepared data as `prepare` encoded them.
  // Throws Error like FindPrompts.
  explicit Sampler(const Config& config);

  // Generates after each prompt, with the weights in place, and calls `take` with each text. Ends
  // without the one in work when `stop` says so. Throws Error(kBadData) when the model's output is
  // not finite.
  void Run(const GptShape& shape, const GptWeights& weights, const std::function<bool()>& stop,
           const std::function<void(const SampleText&)>& take) const;

 private:
  const SampleConfig sample_;
  std::optional<EncodedPrompts> encoded_;  // none: bytes
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_TRAIN_SAMPLES_H_
