// Reads a model folder in Hugging Face's layout: config.json, the weights in model.safetensors or
// in the shards that model.safetensors.index.json lists, and the files of the tokenizer. A
// checkpoint is such a folder, too.

#ifndef TRAINER_CHECKPOINT_MODEL_FOLDER_H_
#define TRAINER_CHECKPOINT_MODEL_FOLDER_H_

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/config/config.h"

namespace gpuctl::trainer {

struct ModelFolder {
  std::string path;
  nlohmann::json config;             // config.json
  nlohmann::json generation_config;  // generation_config.json, or null
  ModelConfig model;
};

// Reads the two files. Throws Error(kBadData) when config.json is missing, is no JSON object, or
// describes a model that cannot be computed here.
ModelFolder ReadModelFolder(const std::string& path);

// A file that belongs to the model and that training does not change.
struct KeptFile {
  std::string name;
  std::shared_ptr<const std::string> bytes;
};

// Returns the files of tokenizer, chat template and generation of a model folder, sorted by name.
// Throws Error(kBadData) for one above 512 MiB, Error(kIo).
std::vector<KeptFile> ReadKeptFiles(const std::string& path);

// Returns the JSON object of a file. Throws Error(kBadData) for a file that is missing, above
// 512 MiB or no JSON object, Error(kIo).
nlohmann::json ReadJsonObject(const std::string& path);

// The weights of a model folder. Not thread-safe. All errors are Error(kBadData) that name file and
// tensor, or Error(kIo).
class StoredWeights {
 public:
  // Reads the headers of all files. Refuses an index that names files outside of the folder, that
  // are missing, or that hold other tensors than the index says.
  explicit StoredWeights(const std::string& folder);

  // The names of the files with tensors, sorted.
  const std::vector<std::string>& file_names() const { return file_names_; }

  // The tensors by name; only F32, F16 and BF16 are there.
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }

  // Copies a tensor of the same shape into `target`, which must be contiguous; converts dtype and
  // device. Needs a few MiB besides.
  void ReadInto(const std::string& name, const at::Tensor& target);

 private:
  void Open(const std::string& folder, const std::string& file);
  void OpenShards(const std::string& folder);

  std::vector<std::string> file_names_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, SafetensorsFile*> file_of_;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_CHECKPOINT_MODEL_FOLDER_H_
