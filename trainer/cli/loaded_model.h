// The model that a command works with: a model folder, a checkpoint, or either with an adapter.

#ifndef TRAINER_CLI_LOADED_MODEL_H_
#define TRAINER_CLI_LOADED_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/checkpoint/folder_files.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/cli/args.h"
#include "trainer/model/gpt.h"
#include "trainer/step/device.h"

namespace gpuctl::trainer {

// Where the weights of a command are.
struct ModelPaths {
  std::string model;
  std::string adapter;     // merged into the model's, or ""
  std::string checkpoint;  // the one of them that is a checkpoint, or ""
  ManifestEntry tensors;   // of the checkpoint: what LoadModel compares
};

// Reads --model, --adapter and --checkpoint. Verifies a checkpoint but for its tensors. Throws
// Error(kBadConfig), Error(kBadData); `command` begins the messages.
ModelPaths PathsOf(const Args& args, const std::string& command);

struct LoadedModel {
  Placement placement;
  GptShape shape;
  GptWeights weights;  // with the adapter merged into them, in the device's dtype
};

// Loads the weights to `device` ("auto", …), for windows of at most `context` tokens. `folder` is
// that of paths.model. Verifies the tensors of a checkpoint in the same pass, and that the model of
// its adapters is the one that is given. Leaves LibTorch with one thread. Throws Error(kBadConfig),
// also where the weights do not fit in the memory that is free, Error(kBadData), Error(kIo).
LoadedModel LoadModel(const ModelPaths& paths, const ModelFolder& folder, int64_t context,
                      const std::string& device);

}  // namespace gpuctl::trainer

#endif  // TRAINER_CLI_LOADED_MODEL_H_
