#include "trainer/data/bytes_of_text.h"

#include <algorithm>
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

constexpr char kRowsEnding[] = ".jsonl";

bool IsOfRows(const std::string& name) {
  constexpr size_t kSize = sizeof(kRowsEnding) - 1;
  return name.size() > kSize && name.compare(name.size() - kSize, kSize, kRowsEnding) == 0;
}

bool IsAmong(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

// Returns the first file of rows below a directory that is read as text, or "".
std::string FindRowsBelow(const std::string& directory, const DataConfig& data) {
  for (const std::string& name : ListDirectory(directory)) {
    const std::string path = directory + "/" + name;
    if (name[0] == '.' || IsAmong(data.exclude, name)) continue;
    if (IsFile(path) && IsOfRows(name)) return path;
    const bool enters = IsDirectory(path) && !IsSymlink(path);
    const std::string below = enters ? FindRowsBelow(path, data) : "";
    if (!below.empty()) return below;
  }
  return "";
}

// Returns the first file of rows that is read as text, or "": a path, or one in a directory, where
// data.extensions have it.
std::string FindRows(const DataConfig& data) {
  const bool in_directories = data.extensions.empty() || IsAmong(data.extensions, kRowsEnding);
  for (const std::string& path : data.paths) {
    const bool directory = IsDirectory(path);
    if (!directory && IsOfRows(path)) return path;
    const std::string below = directory && in_directories ? FindRowsBelow(path, data) : "";
    if (!below.empty()) return below;
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
  if (const std::string rows = FindRows(data); !rows.empty()) {
    throw ConfigError(
        "start from " + folder + ": it has no tokenizer.json to make tokens of " + rows + " with",
        hint);
  }
}

}  // namespace gpuctl::trainer
