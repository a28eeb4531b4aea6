#include "trainer/checkpoint/model_folder.h"

#include "trainer/checkpoint/safetensors.h"

namespace gpuctl::trainer {

StoredWeights::StoredWeights(const std::string& folder) : places_(OpenWeights(folder)) {
  for (const auto& [name, place] : places_) tensors_.emplace(name, place.tensor);
}

void StoredWeights::ReadInto(const std::string& name, const at::Tensor& target) const {
  const StoredPlace& place = places_.at(name);
  trainer::ReadInto(*place.file, place.tensor, target);
}

}  // namespace gpuctl::trainer
