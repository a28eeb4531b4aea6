// Reads a model folder in Hugging Face's layout, without its weights: config.json, and the files of
// the tokenizer. A checkpoint is such a folder, too. Uses no LibTorch.

#ifndef TRAINER_CHECKPOINT_FOLDER_FILES_H_
#define TRAINER_CHECKPOINT_FOLDER_FILES_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

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

// Returns the JSON object of a file. Throws Error(kBadData) for a file that is missing, above
// 512 MiB or no JSON object, Error(kIo).
nlohmann::json ReadJsonObject(const std::string& path);

// A file that belongs to the model and that training does not change.
struct KeptFile {
  std::string name;
  std::shared_ptr<const std::string> bytes;
};

// Whether readers of a model folder read a file of this name: configurations, weights and their
// indices, and those of ReadKeptFiles.
bool IsModelFile(const std::string& name);

// Returns the files of tokenizer, chat template and generation of a model folder, sorted by name.
// Throws Error(kBadData) for one above 512 MiB, Error(kIo).
std::vector<KeptFile> ReadKeptFiles(const std::string& path);

}  // namespace gpuctl::trainer

#endif  // TRAINER_CHECKPOINT_FOLDER_FILES_H_
