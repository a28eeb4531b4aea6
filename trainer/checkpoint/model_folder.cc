#include "trainer/checkpoint/model_folder.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "trainer/checkpoint/safetensors.h"

namespace gpuctl::trainer {

StoredWeights::StoredWeights(const std::string& folder) : places_(OpenWeights(folder)) {
  for (const auto& [name, place] : places_) tensors_.emplace(name, place.tensor);
}

void StoredWeights::ReadEach(const std::function<at::Tensor(const std::string&)>& target,
                             const std::function<void(const std::string&)>& done,
                             FileDigests* sha256) const {
  std::map<std::string, std::vector<const StoredPlace*>> by_file;
  for (const auto& [name, place] : places_) by_file[place.file->path()].push_back(&place);
  for (auto& [path, places] : by_file) {
    std::sort(places.begin(), places.end(), [](const StoredPlace* a, const StoredPlace* b) {
      return std::tie(a->tensor.begin, a->tensor.end) < std::tie(b->tensor.begin, b->tensor.end);
    });
    const StoredFile& file = *places.front()->file;
    std::optional<FileDigest> digest;
    if (sha256 != nullptr) digest.emplace(file);
    for (const StoredPlace* place : places) {
      const std::string& name = place->tensor.name;
      const at::Tensor wanted = target(name);
      if (!wanted.defined()) continue;
      ReadInto(file, place->tensor, wanted, digest ? &*digest : nullptr);
      done(name);
    }
    if (digest) (*sha256)[path] = digest->Hex();
  }
}

}  // namespace gpuctl::trainer
