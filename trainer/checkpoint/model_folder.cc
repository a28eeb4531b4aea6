#include "trainer/checkpoint/model_folder.h"

#include <filesystem>
#include <system_error>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/config/families.h"

namespace gpuctl::trainer {
namespace {

using nlohmann::json;

constexpr char kWeights[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";
constexpr uint64_t kLargestText = 512 << 20;

constexpr const char* kKeptFiles[] = {
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
};

bool IsFile(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

std::string ReadText(const std::string& path) {
  if (!IsFile(path)) throw DataError("read model " + path + ": no such file");
  if (FileSize(path) > kLargestText) throw DataError("read model " + path + ": above 512 MiB");
  return ReadWholeFile(path);
}

// True for the name of a file that lies directly in its folder.
bool IsPlainName(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.find_first_of("/\\") == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

json ReadJsonObject(const std::string& path) {
  json parsed = json::parse(ReadText(path), nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) throw DataError("read model " + path + ": not a JSON object");
  return parsed;
}

ModelFolder ReadModelFolder(const std::string& path) {
  if (!IsDirectory(path)) throw DataError("read model " + path + ": no such directory");
  ModelFolder folder;
  folder.path = path;
  folder.config = ReadJsonObject(path + "/config.json");
  folder.model = ModelFromHuggingFace(folder.config, path + "/config.json");
  if (IsFile(path + "/generation_config.json")) {
    folder.generation_config = ReadJsonObject(path + "/generation_config.json");
  }
  return folder;
}

std::vector<KeptFile> ReadKeptFiles(const std::string& path) {
  std::vector<KeptFile> kept;
  for (const char* name : kKeptFiles) {
    const std::string file = path + "/" + name;
    if (IsFile(file)) kept.push_back({name, std::make_shared<const std::string>(ReadText(file))});
  }
  return kept;
}

StoredWeights::StoredWeights(const std::string& folder) {
  if (IsFile(folder + "/" + kWeights)) {
    Open(folder, kWeights);
  } else if (IsFile(folder + "/" + kIndex)) {
    OpenShards(folder);
  } else {
    throw DataError(
        "read model " + folder + ": neither " + kWeights + " nor " + kIndex + " is there",
        "weights of other formats (.bin, .pt, .gguf) cannot be read");
  }
}

void StoredWeights::Open(const std::string& folder, const std::string& file) {
  const std::string path = folder + "/" + file;
  if (!IsFile(path)) throw DataError("read model " + path + ": no such file");
  file_names_.push_back(file);
  files_.push_back(std::make_unique<SafetensorsFile>(path));
  for (const StoredTensor& tensor : files_.back()->tensors()) {
    if (tensor.dtype != "F32" && tensor.dtype != "F16" && tensor.dtype != "BF16") {
      throw DataError("read model " + path + ": " + tensor.name + ": dtype " + tensor.dtype +
                      " cannot be read; F32, F16 and BF16 can");
    }
    if (!tensors_.emplace(tensor.name, tensor).second) {
      throw DataError("read model " + path + ": " + tensor.name + " is in another file as well");
    }
    file_of_[tensor.name] = files_.back().get();
  }
}

void StoredWeights::OpenShards(const std::string& folder) {
  const std::string path = folder + "/" + kIndex;
  const auto refuse = [&](const std::string& why) {
    throw DataError("read model " + path + ": " + why);
  };
  const json index = ParseJsonStrictly(ReadText(path), path);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    refuse("it has no weight_map");
  }
  std::map<std::string, std::vector<std::string>> by_file;
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string() || !IsPlainName(file.get<std::string>())) {
      refuse(name + ": " + file.dump() + " is no name of a file in the folder");
    }
    by_file[file.get<std::string>()].push_back(name);
  }
  for (const auto& [file, names] : by_file) {
    Open(folder, file);
    for (const std::string& name : names) {
      const auto found = file_of_.find(name);
      if (found == file_of_.end() || found->second != files_.back().get()) {
        refuse(name + " is not in " + file);
      }
    }
    for (const StoredTensor& tensor : files_.back()->tensors()) {
      if (!index["weight_map"].contains(tensor.name)) {
        refuse(tensor.name + " of " + file + " is not listed");
      }
    }
  }
}

void StoredWeights::ReadInto(const std::string& name, const at::Tensor& target) {
  file_of_.at(name)->ReadInto(tensors_.at(name), target);
}

}  // namespace gpuctl::trainer
