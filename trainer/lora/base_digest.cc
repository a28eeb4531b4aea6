#include "trainer/lora/base_digest.h"

#include <algorithm>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/sha256.h"
#include "trainer/checkpoint/model_folder.h"

namespace gpuctl::trainer {

std::string BaseDigest(const std::string& folder) {
  std::vector<std::string> names = StoredWeights(folder).file_names();
  names.emplace_back("config.json");
  std::sort(names.begin(), names.end());
  std::string lines;
  for (const std::string& name : names) {
    lines += Sha256HexOfFile(folder + "/" + name) + " " + name + "\n";
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
