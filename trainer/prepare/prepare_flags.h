// The flags of `prepare`, as both gpuctl-trainer and gpuctl take them.

#ifndef TRAINER_PREPARE_PREPARE_FLAGS_H_
#define TRAINER_PREPARE_PREPARE_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/prepare/prepare.h"

namespace gpuctl::trainer {

// As they were typed; "" and 0 stand for a flag that was not given.
struct PrepareFlags {
  std::string model, out;
  std::vector<std::string> data;
  std::vector<std::string> prompts;
  int64_t context = 0;
  std::string mask;      // kMasks
  std::string held_out;  // a share, or a file
  std::string template_file;
  std::string bad_rows;  // "refuse" or "skip"
  int64_t samples = 1;
  int64_t threads = 0;
};

// The words for what is learned of conversations; the first one is the default.
extern const std::vector<std::string> kMasks;
// Returns what the word means; "" is the default. Throws Error(kBadConfig) for another word, which
// it calls `name`.
Mask MaskOf(const std::string& word, const std::string& name);

// Returns the options, without `stop`. Throws Error(kBadConfig) for a value that cannot be meant.
PrepareOptions OptionsOf(const PrepareFlags& flags);

}  // namespace gpuctl::trainer

#endif  // TRAINER_PREPARE_PREPARE_FLAGS_H_
