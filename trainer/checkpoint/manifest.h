// Finds and verifies checkpoints (checkpoint.h has their layout). Uses no LibTorch.

#ifndef TRAINER_CHECKPOINT_MANIFEST_H_
#define TRAINER_CHECKPOINT_MANIFEST_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gpuctl::trainer {

inline constexpr char kManifestName[] = "manifest.json";
inline constexpr char kOptimizerName[] = "optimizer.safetensors";

struct ManifestEntry {
  std::string path;
  uint64_t size = 0;
  std::string sha256;
};

// The names of the files that say what the weights are, and that hold them.
struct CheckpointFiles {
  const char* config;
  const char* tensors;
};
CheckpointFiles FilesOfCheckpoint(bool adapter);

std::string CheckpointName(int64_t step);               // step-00000020
int64_t StepOfCheckpointName(const std::string& name);  // -1: not such a name

// True when the checkpoint is one of adapters. Looks only for its file.
bool HoldsAdapter(const std::string& path);

// Checks every file against the manifest. Throws Error(kBadData) that names the problem: a missing
// or incomplete file, a wrong digest, a file by IsModelFile that the manifest does not list; or
// Error(kIo), which proves no damage. `read` reads a file and returns its digest; so one that needs
// the content reads it once. Null: only the digest is needed.
std::vector<ManifestEntry> VerifyCheckpoint(
    const std::string& path,
    const std::function<std::string(const ManifestEntry&)>& read = nullptr);

// Does so for one that needs the weights and not the moments, and does not read either: only their
// sizes are checked. Returns the entry of the weights, or of the adapters, for CheckDigest.
ManifestEntry VerifyButTensors(const std::string& path);
// Throws the Error(kBadData) of VerifyCheckpoint unless the file has this digest.
void CheckDigest(const std::string& path, const ManifestEntry& entry, const std::string& sha256);

// Returns the steps published below `root`, ascending, complete or not.
std::vector<int64_t> ListCheckpoints(const std::string& root);

// Throws the Error(kBadData) of VerifyCheckpoint.
[[noreturn]] void RefuseCheckpoint(const std::string& path, const std::string& why);

}  // namespace gpuctl::trainer

#endif  // TRAINER_CHECKPOINT_MANIFEST_H_
