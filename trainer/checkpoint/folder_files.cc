#include "trainer/checkpoint/folder_files.h"

#include <algorithm>
#include <iterator>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/json_object.h"
#include "trainer/config/families.h"

namespace gpuctl::trainer {
namespace {

using nlohmann::json;

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

std::string ReadText(const std::string& path, uint64_t most) {
  if (!IsFile(path)) throw DataError("read model " + path + ": no such file");
  return ReadWholeFile(path, most);
}

}  // namespace

json ReadJsonObject(const std::string& path) {
  return ParseJsonObject(ReadText(path, kLargestSettings), "read model " + path);
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

bool IsModelFile(const std::string& name) {
  const auto ends_with = [&name](const std::string& end) {
    return name.size() >= end.size() &&
           name.compare(name.size() - end.size(), end.size(), end) == 0;
  };
  return name == "config.json" || name == "adapter_config.json" || ends_with(".safetensors") ||
         ends_with(".index.json") ||
         std::find(std::begin(kKeptFiles), std::end(kKeptFiles), name) != std::end(kKeptFiles);
}

std::vector<KeptFile> ReadKeptFiles(const std::string& path) {
  std::vector<KeptFile> kept;
  for (const char* name : kKeptFiles) {
    const std::string file = path + "/" + name;
    if (IsFile(file))
      kept.push_back({name, std::make_shared<const std::string>(ReadText(file, kLargestText))});
  }
  return kept;
}

}  // namespace gpuctl::trainer
