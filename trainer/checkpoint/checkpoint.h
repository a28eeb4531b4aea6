// A checkpoint: a directory that is either wholly there or not there at all.
//
//   <root>/step-00000020/
//     config.json             the model, readable as a Hugging Face Llama
//     model.safetensors       the weights, under Hugging Face's names
//     optimizer.safetensors   exp_avg.<name>, exp_avg_sq.<name>, and master.<name> when the weights
//                             are bf16
//     state.json              step, data position, the whole configuration, …
//     manifest.json           {"format":1,"step":N,"files":[{"path","size","sha256"}]}
//
// It is written as <root>/.tmp-step-00000020-<pid>, every file and the directory synced, then
// renamed, then <root> synced. Whoever finds the final name finds all of it; whoever distrusts the
// disk checks the manifest.

#ifndef TRAINER_CHECKPOINT_CHECKPOINT_H_
#define TRAINER_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/checkpoint/safetensors.h"

namespace gpuctl::trainer {

// What is saved. The tensors are on the CPU and belong to the snapshot alone.
struct Snapshot {
  int64_t step = 0;
  nlohmann::json model_config;  // config.json
  nlohmann::json state;         // state.json
  NamedTensors weights;
  NamedTensors optimizer;
};

// What is loaded.
struct LoadedCheckpoint {
  std::string path;
  int64_t step = 0;
  nlohmann::json model_config;
  nlohmann::json state;
  std::map<std::string, at::Tensor> weights;
  std::map<std::string, at::Tensor> optimizer;
};

struct ManifestEntry {
  std::string path;
  uint64_t size = 0;
  std::string sha256;
};

std::string CheckpointName(int64_t step);               // step-00000020
int64_t StepOfCheckpointName(const std::string& name);  // -1: not such a name

// Publishes `snapshot` under `root` (made if missing) and returns its path. A checkpoint of the
// same step that is already there is replaced. Throws Error(kIo); whatever has the final name then
// is whole: the old one, none, or (when only the last sync of <root> failed) the new one.
std::string WriteCheckpoint(const std::string& root, const Snapshot& snapshot);

// Checks every file against the manifest. Throws Error(kBadData) that names what is wrong:
// a missing or torn file, a wrong digest, a file the manifest does not list.
std::vector<ManifestEntry> VerifyCheckpoint(const std::string& path);

// Verifies, then reads. Throws Error(kBadData) or Error(kIo).
LoadedCheckpoint LoadCheckpoint(const std::string& path);
// Verifies, then reads only what generating needs: config.json and the weights.
LoadedCheckpoint LoadModelOnly(const std::string& path);

// The newest checkpoint below `root` that verifies, or "". Each one passed over is appended to
// `skipped` with the reason.
std::string FindNewestCheckpoint(const std::string& root, std::vector<std::string>* skipped);

// Steps published below `root`, ascending, whole or not.
std::vector<int64_t> ListCheckpoints(const std::string& root);

// Clears up after interrupted writers: removes .tmp-*, and puts an .old-* back in its place if its
// replacement never arrived.
void RemoveLeftovers(const std::string& root);

}  // namespace gpuctl::trainer

#endif  // TRAINER_CHECKPOINT_CHECKPOINT_H_
