// The weights of a model folder in Hugging Face's layout, as tensors.

#ifndef TRAINER_CHECKPOINT_MODEL_FOLDER_H_
#define TRAINER_CHECKPOINT_MODEL_FOLDER_H_

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "trainer/checkpoint/folder_files.h"
#include "trainer/checkpoint/stored_file.h"

namespace gpuctl::trainer {

using FileDigests = std::map<std::string, std::string>;

// All errors are Error(kBadData) that name file and tensor, or Error(kIo).
class StoredWeights {
 public:
  // Reads the headers of all files; see OpenWeights.
  explicit StoredWeights(const std::string& folder);

  // The tensors by name; only F32, F16 and BF16 are there.
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }

  // Copies a tensor of the same shape into `target`, which must be contiguous; converts dtype and
  // device. Needs a few MiB besides.
  void ReadInto(const std::string& name, const at::Tensor& target) const;
  // Does so with many, by name, in the order of the files. Returns the SHA-256 of each file by its
  // path, from the same bytes.
  FileDigests ReadAllInto(const std::map<std::string, at::Tensor>& targets) const;

 private:
  std::map<std::string, StoredPlace> places_;
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_CHECKPOINT_MODEL_FOLDER_H_
