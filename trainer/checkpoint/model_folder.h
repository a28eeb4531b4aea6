// The weights of a model folder in Hugging Face's layout, as tensors.

#ifndef TRAINER_CHECKPOINT_MODEL_FOLDER_H_
#define TRAINER_CHECKPOINT_MODEL_FOLDER_H_

#include <ATen/core/Tensor.h>

#include <functional>
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

  // Reads the tensors in the order of the files. `target` gives where to copy the one of a name: a
  // contiguous tensor of the same shape, whose dtype and device it gets; undefined: it is not
  // needed. `done` is called when it is there. Needs some MiB besides. With `sha256` it also
  // computes the SHA-256 of each file, by its path, from the same bytes, on a thread beside.
  void ReadEach(const std::function<at::Tensor(const std::string&)>& target,
                const std::function<void(const std::string&)>& done,
                FileDigests* sha256 = nullptr) const;

 private:
  std::map<std::string, StoredPlace> places_;
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_CHECKPOINT_MODEL_FOLDER_H_
