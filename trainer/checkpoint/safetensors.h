// Reads and writes named tensors in a safetensors file.

#ifndef TRAINER_CHECKPOINT_SAFETENSORS_H_
#define TRAINER_CHECKPOINT_SAFETENSORS_H_

#include <ATen/core/Tensor.h>

#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trainer/checkpoint/safetensors_header.h"

namespace gpuctl::trainer {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Writes the tensors in the given order and syncs the file. They must be contiguous and on the CPU.
// `sha256` (may be null) gets the digest of the file, computed while writing.
// Throws Error(kIo).
void WriteSafetensors(const std::string& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata,
                      std::string* sha256 = nullptr);

// A file that is open for reading; the header has been checked. Not thread-safe. Throws Error(kIo)
// or, for an invalid file, Error(kBadData).
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::vector<StoredTensor>& tensors() const { return header_.tensors; }
  // Returns one of them in memory of its own, on the CPU.
  at::Tensor Read(const StoredTensor& stored);
  // Copies one of them into `target`, of the same shape and contiguous; converts dtype and device,
  // by pieces of a few MiB.
  void ReadInto(const StoredTensor& stored, const at::Tensor& target);

 private:
  // Reads `size` bytes of the data from byte `begin` on.
  void ReadBytes(uint64_t begin, uint64_t size, void* into);

  const std::string path_;
  std::ifstream file_;
  SafetensorsHeader header_;
};

// Reads all tensors into separate memory, on the CPU. Throws Error(kIo) or, for an invalid file,
// Error(kBadData).
std::map<std::string, at::Tensor> ReadSafetensors(const std::string& path);

}  // namespace gpuctl::trainer

#endif  // TRAINER_CHECKPOINT_SAFETENSORS_H_
