#include "trainer/checkpoint/base_digest.h"

#include <set>

#include "trainer/base/error.h"
#include "trainer/base/sha256.h"
#include "trainer/checkpoint/folder_files.h"
#include "trainer/checkpoint/stored_file.h"

namespace gpuctl::trainer {

std::string BaseDigest(const std::string& folder, const std::function<void()>& check) {
  std::set<std::string> paths = {folder + "/config.json"};
  for (const auto& [name, place] : OpenWeights(folder)) paths.insert(place.file->path());
  std::string lines;
  for (const std::string& path : paths) {
    lines += Sha256HexOfFile(path, check) + " " + path.substr(folder.size() + 1) + "\n";
  }
  return Sha256Hex(lines);
}

void CheckBase(const std::string& checkpoint, const std::string& folder,
               const std::string& digest) {
  const nlohmann::json state = ReadJsonObject(checkpoint + "/state.json");
  if (state.contains("base_digest") && state["base_digest"] == digest) return;
  throw ConfigError("use " + checkpoint + ": its adapters are for another model than that in " +
                        folder + ", whose files have another digest",
                    "give the model folder that the run began with");
}

}  // namespace gpuctl::trainer
