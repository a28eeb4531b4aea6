#include "trainer/data/bytes_of_text.h"

#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/files.h"

namespace gpuctl::trainer {
namespace {

// Files of tokenizers that cannot be used without tokenizer.json.
constexpr const char* kParts[] = {
    "added_tokens.json",     "merges.txt",     "special_tokens_map.json",
    "spiece.model",          "tiktoken.model", "tokenizer.tiktoken",
    "tokenizer_config.json", "vocab.json",     "vocab.txt",
};

bool IsOfRows(const std::string& name) {
  constexpr char kEnding[] = ".jsonl";
  constexpr size_t kSize = sizeof(kEnding) - 1;
  return name.size() > kSize && name.compare(name.size() - kSize, kSize, kEnding) == 0;
}

// Returns the first file of rows among the paths and in their folders, or "".
std::string FindRows(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (IsOfRows(path)) return path;
    if (!IsDirectory(path)) continue;
    for (const std::string& name : ListDirectory(path)) {
      if (IsOfRows(name)) return path + "/" + name;
    }
  }
  return "";
}

}  // namespace

bool HasTokenizer(const std::string& folder) {
  return IsFile(folder + "/tokenizer.json") || IsFile(folder + "/tokenizer.model");
}

void CheckBytesAreMeant(const std::string& folder, const DataConfig& data) {
  if (data.tokens == "bytes") return;
  if (HasTokenizer(folder)) {
    throw ConfigError(
        "start from " + folder + ": the model has a tokenizer, and the data is no tokens yet",
        "gpuctl-trainer prepare --model " + folder +
            " --data FILE --out FOLDER makes them; data.tokens=bytes trains on bytes all the same");
  }
  const std::string hint =
      "bring the model's tokenizer.json into the folder; data.tokens=bytes trains on the bytes of "
      "the data all the same";
  for (const char* part : kParts) {
    if (!IsFile(folder + "/" + part)) continue;
    throw ConfigError(
        "start from " + folder + ": it has " + part + ", and no tokenizer.json to make tokens with",
        hint);
  }
  if (const std::string rows = FindRows(data.paths); !rows.empty()) {
    throw ConfigError(
        "start from " + folder + ": it has no tokenizer.json to make tokens of " + rows + " with",
        hint);
  }
}

}  // namespace gpuctl::trainer
