#include "trainer/lora/base_digest.h"

#include <algorithm>
#include <vector>

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

}  // namespace gpuctl::trainer
