#include "trainer/checkpoint/model_folder.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "trainer/checkpoint/safetensors.h"

namespace gpuctl::trainer {

StoredWeights::StoredWeights(const std::string& folder) : places_(OpenWeights(folder)) {
  for (const auto& [name, place] : places_) tensors_.emplace(name, place.tensor);
}

void StoredWeights::ReadInto(const std::string& name, const at::Tensor& target) const {
  const StoredPlace& place = places_.at(name);
  trainer::ReadInto(*place.file, place.tensor, target);
}

FileDigests StoredWeights::ReadAllInto(const std::map<std::string, at::Tensor>& targets) const {
  std::map<std::string, std::vector<const StoredPlace*>> by_file;
  for (const auto& [name, place] : places_) by_file[place.file->path()].push_back(&place);
  FileDigests digests;
  for (auto& [path, places] : by_file) {
    std::sort(places.begin(), places.end(), [](const StoredPlace* a, const StoredPlace* b) {
      return std::tie(a->tensor.begin, a->tensor.end) < std::tie(b->tensor.begin, b->tensor.end);
    });
    const StoredFile& file = *places.front()->file;
    FileDigest digest(file);
    for (const StoredPlace* place : places) {
      const auto target = targets.find(place->tensor.name);
      if (target == targets.end()) continue;
      trainer::ReadInto(file, place->tensor, target->second, &digest);
    }
    digests[path] = digest.Hex();
  }
  return digests;
}

}  // namespace gpuctl::trainer
