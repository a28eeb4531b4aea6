// A checkpoint: a directory that is either complete or not there at all.
//
//   <root>/step-00000020/
//     config.json             the model, readable by Hugging Face's transformers
//     model.safetensors       the weights, under Hugging Face's names
//     optimizer.safetensors   exp_avg.<name>, exp_avg_sq.<name>, in 8 bits with
//                             exp_avg_absmax.<name>, exp_avg_sq_absmax.<name>; and master.<name>
//                             when the weights are bf16
//     state.json              step, data position, the whole configuration, …
//     tokenizer.json, …       the files of the model that training does not change
//     manifest.json           {"format":1,"step":N,"files":[{"path","size","sha256"}]}
//
// That of adapters has adapter_config.json and adapter_model.safetensors, as the peft library reads
// them, in the place of the first two files; the model itself is not in it.
//
// It is written as <root>/.tmp-step-00000020-<pid>. Every file and the directory are synced, then
// the directory is renamed, then <root> is synced. A directory with the final name is complete; the
// manifest shows damage on the disk.

#ifndef TRAINER_CHECKPOINT_CHECKPOINT_H_
#define TRAINER_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/model_folder.h"
#include "trainer/checkpoint/safetensors.h"

namespace gpuctl::trainer {

// The data to save. The tensors are on the CPU and belong to the snapshot alone.
struct Snapshot {
  int64_t step = 0;
  bool adapter = false;
  nlohmann::json model_config;  // config.json or adapter_config.json
  nlohmann::json state;         // state.json
  NamedTensors weights;
  NamedTensors optimizer;
  std::vector<KeptFile> files;    // written as they are
  std::function<void()> arrived;  // waits until the tensors are there; null: they are
};

// The loaded data.
struct LoadedCheckpoint {
  std::string path;
  int64_t step = 0;
  bool adapter = false;
  nlohmann::json model_config;
  nlohmann::json state;
  std::map<std::string, at::Tensor> weights;
  std::map<std::string, at::Tensor> optimizer;
};

// Publishes `snapshot` under `root` (made if missing) and returns its path. Replaces an existing
// checkpoint of the same step. Throws Error(kIo); a checkpoint with the final name is complete even
// then: the old one, none, or (when only the last sync of <root> failed) the new one.
std::string WriteCheckpoint(const std::string& root, const Snapshot& snapshot);

// Throws Error(kIo) when nothing can be written into the directory `root`, so that a run ends
// before it works in vain. A full disk is none of the reasons: it may have room when there is a
// checkpoint.
void CheckTakesCheckpoints(const std::string& root);

// Verifies and reads, each file of tensors in one pass. Throws Error(kBadData) or Error(kIo).
LoadedCheckpoint LoadCheckpoint(const std::string& path);
// Does so with the newest checkpoint below `root` that verifies; null: there is none at all.
// Appends each skipped one to `skipped` with the reason. Throws Error(kBadData) when there are some
// and none verifies, as a new run would replace them, and Error(kIo) for one that cannot be read.
std::unique_ptr<LoadedCheckpoint> LoadNewestCheckpoint(const std::string& root,
                                                       std::vector<std::string>* skipped);

// Returns the bytes of its tensors.
int64_t TensorBytes(const LoadedCheckpoint& checkpoint);

// Cleans up after interrupted writers: removes .tmp-*, and renames an .old-* back if its
// replacement is missing.
void RemoveLeftovers(const std::string& root);

}  // namespace gpuctl::trainer

#endif  // TRAINER_CHECKPOINT_CHECKPOINT_H_
