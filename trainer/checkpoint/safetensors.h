// Reads and writes named tensors in a safetensors file.

#ifndef TRAINER_CHECKPOINT_SAFETENSORS_H_
#define TRAINER_CHECKPOINT_SAFETENSORS_H_

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trainer/checkpoint/safetensors_header.h"
#include "trainer/checkpoint/stored_file.h"

namespace gpuctl::trainer {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Writes the tensors in the given order and syncs the file. They must be contiguous and on the CPU.
// `sha256` (may be null) gets the digest of the file, computed while writing.
// Throws Error(kIo).
void WriteSafetensors(const std::string& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata,
                      std::string* sha256 = nullptr);

// Copies a tensor of `file` into `target`, of the same shape and contiguous; converts dtype and
// device, by pieces of a few MiB. `digest` (may be null) gets the bytes, too. Throws Error(kIo),
// Error(kBadData).
void ReadInto(const StoredFile& file, const StoredTensor& stored, const at::Tensor& target,
              FileDigest* digest = nullptr);

// Reads all tensors into separate memory, on the CPU. `sha256` (may be null) gets the digest of the
// file, computed from the same bytes. Throws Error(kIo) or, for an invalid file, Error(kBadData).
std::map<std::string, at::Tensor> ReadSafetensors(const std::string& path,
                                                  std::string* sha256 = nullptr);

}  // namespace gpuctl::trainer

#endif  // TRAINER_CHECKPOINT_SAFETENSORS_H_
