// What a folder with weights holds: a model, a checkpoint or an adapter. Uses no LibTorch.

#ifndef TRAINER_CHECKPOINT_DESCRIBE_FOLDER_H_
#define TRAINER_CHECKPOINT_DESCRIBE_FOLDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/safetensors_header.h"

namespace gpuctl::trainer {

struct FolderContent {
  bool adapter = false;               // its weights are those of adapters
  std::string kind;                   // "qwen2", …; that of PEFT for adapters: "LORA"
  std::optional<int64_t> step;        // of a checkpoint
  std::vector<ManifestEntry> files;   // of a checkpoint: each has been compared with its digest
  std::vector<StoredTensor> tensors;  // sorted by name
  uint64_t elements = 0;
  uint64_t bytes = 0;     // of the tensors
  int64_t processes = 1;  // that made the checkpoint
};

// Reads a checkpoint, a model folder or a folder with an adapter. Verifies a checkpoint, and reads
// the headers of the weights; their numbers are not looked at. Throws Error(kBadData) for any other
// folder, and for damage; Error(kIo).
FolderContent DescribeFolder(const std::string& path);

// Returns lines for people: files, tensors, sums.
std::string FolderText(const FolderContent& content);

}  // namespace gpuctl::trainer

#endif  // TRAINER_CHECKPOINT_DESCRIBE_FOLDER_H_
