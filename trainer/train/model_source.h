// Finds where the model of a run comes from: the configuration alone, a model folder (model.init),
// or the checkpoint that the run continues.

#ifndef TRAINER_TRAIN_MODEL_SOURCE_H_
#define TRAINER_TRAIN_MODEL_SOURCE_H_

#include <ATen/core/Tensor.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/checkpoint/base_digest.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/model_folder.h"
#include "trainer/config/config.h"
#include "trainer/step/device.h"

namespace gpuctl::trainer {

struct ModelSource {
  ModelConfig model;
  LoraConfig lora;
  nlohmann::json config;        // config.json of the run's checkpoints, but for the dtype; of a
                                // run with adapters adapter_config.json
  std::vector<KeptFile> files;  // of the model, for the run's checkpoints
  std::string checkpoint;       // to continue from, verified, or ""
  std::shared_ptr<LoadedCheckpoint> loaded;  // what it holds; null: none, or of another process
  std::vector<std::string> skipped;  // newer checkpoints that do not verify, with the reasons
  std::string base_stamp;            // with adapters: BaseStamp from before model.init was read
  bool checks_base = false;          // whether model.init must be that of the checkpoint
};

// `resume` is "", "auto" or the path of a checkpoint. With model.init the model is that of the
// checkpoint, if there is one, so that the folder may be gone by then; if it is still there, it
// must hold the same model. With adapters the model is always that of model.init, and lora.init, or
// the checkpoint of such a run, decides what they are. Cleans up after interrupted writers in the
// checkpoint directory. Throws Error(kBadConfig), Error(kBadData) or
// Error(kIo).
ModelSource FindModel(const Config& config, const std::string& resume);
// Does the same with a checkpoint ("": none) that another process has found and verified: reads no
// more of it than what kind of model it is.
ModelSource FindModelOf(const Config& config, const std::string& checkpoint);

// Returns the weights at step 0, in fp32 on the CPU: those of model.init, or initial ones (also
// beside adapters, for measurements). Where a checkpoint of a whole model will overwrite them, they
// are zeros. Beside adapters, frozen weights have the dtype and device of `placement`, and are
// packed or in strips where FrozenMatrix has that form for them; the adapters follow, initial or
// those of lora.init. The frozen weights of a checkpoint's adapters must be the same by BaseDigest,
// which then comes from the bytes that are read anyway. Else nothing waits for a digest;
// `base_digest` gets one that is computed later, for new checkpoints of adapters. Throws
// Error(kBadData) when the files of the frozen weights changed since FindModel, Error(kBadConfig)
// when they are not the checkpoint's.
std::vector<at::Tensor> StartWeights(const Config& config, const ModelSource& source,
                                     const Placement& placement,
                                     std::unique_ptr<BackgroundBaseDigest>* base_digest = nullptr);

}  // namespace gpuctl::trainer

#endif  // TRAINER_TRAIN_MODEL_SOURCE_H_
