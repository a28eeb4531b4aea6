#include "trainer/adapters/adapter.h"

#include <cmath>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/text.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/interchange/documents.h"
#include "trainer/interchange/numbers.h"

namespace gpuctl::trainer {
namespace {

using nlohmann::json;

constexpr char kPrefix[] = "base_model.model.";

// Returns the value of the pattern that matches `name`.
template <typename Value>
Value ValueOf(const std::vector<std::pair<NamePattern, Value>>& patterns, const std::string& name,
              Value otherwise, const std::string& path) {
  std::optional<Value> found;
  for (const auto& [pattern, value] : patterns) {
    if (!pattern.Matches(name)) continue;
    if (found && *found != value) {
      throw DataError("read " + path + ": two patterns give " + name + " different values",
                      "leave the one out with which it was not trained");
    }
    found = value;
  }
  return found ? *found : otherwise;
}

// Sorts tensors into modules.
class Sorter {
 public:
  explicit Sorter(Adapter* adapter) : adapter_(adapter) {}

  void Add(const std::string& full, const StoredPlace& place) {
    if (full.compare(0, sizeof(kPrefix) - 1, kPrefix) != 0) {
      Refuse(full, "its name does not begin with " + std::string(kPrefix));
    }
    const std::string name = full.substr(sizeof(kPrefix) - 1);
    if (Take(name, ".lora_A.weight", place, &a_) || Take(name, ".lora_B.weight", place, &b_))
      return;
    if (Take(name, ".lora_magnitude_vector", place, &magnitudes_) ||
        Take(name, ".lora_magnitude_vector.weight", place, &magnitudes_)) {
      if (!adapter_->config.dora) Refuse(full, "it belongs to use_dora, which is false");
      return;
    }
    const size_t dot = name.rfind('.');
    const std::string module = name.substr(0, dot == std::string::npos ? 0 : dot);
    if (name.find("lora_") != std::string::npos || !NamesModule(adapter_->config.saved, module)) {
      Refuse(full, "it is neither a LoRA of a linear layer nor of modules_to_save");
    }
    adapter_->replaced.emplace(name, place);
  }

  void Finish() {
    for (const auto& [name, b] : b_) {
      if (a_.count(name) == 0) Refuse(name, "lora_A is missing");
    }
    for (const auto& [name, magnitude] : magnitudes_) {
      if (a_.count(name) == 0) Refuse(name, "lora_A is missing");
    }
    for (const auto& [name, a] : a_) {
      if (b_.count(name) == 0) Refuse(name, "lora_B is missing");
      adapter_->modules.push_back(Module(name, a, b_.at(name)));
    }
    if (adapter_->modules.empty() && adapter_->replaced.empty()) {
      throw DataError("read adapter " + adapter_->path + ": it has no tensors");
    }
    std::vector<std::string> saved;
    for (const auto& [name, place] : adapter_->replaced) {
      saved.push_back(name.substr(0, name.rfind('.')));
    }
    CheckSaved(adapter_->config, saved, adapter_->path);
  }

 private:
  using Places = std::map<std::string, StoredPlace>;

  [[noreturn]] void Refuse(const std::string& name, const std::string& why) const {
    throw DataError(Printable("read adapter " + adapter_->path + ": " + name + ": " + why));
  }

  static bool Take(const std::string& name, const std::string& end, const StoredPlace& place,
                   Places* places) {
    if (name.size() <= end.size() ||
        name.compare(name.size() - end.size(), std::string::npos, end) != 0) {
      return false;
    }
    places->emplace(name.substr(0, name.size() - end.size()), place);
    return true;
  }

  AdapterModule Module(const std::string& name, const StoredPlace& a, const StoredPlace& b) const {
    const AdapterConfig& config = adapter_->config;
    const std::vector<int64_t>&a_shape = a.tensor.shape, &b_shape = b.tensor.shape;
    AdapterModule module;
    module.name = name;
    module.a = a;
    module.b = b;
    module.rank = ValueOf(config.ranks, name, config.rank, adapter_->path);
    if (a_shape.size() != 2 || b_shape.size() != 2 || a_shape[0] != module.rank ||
        b_shape[1] != module.rank || a_shape[1] < 1 || b_shape[0] < 1) {
      Refuse(name, "lora_A and lora_B do not have the rank " + std::to_string(module.rank));
    }
    if (!config.targets.empty() && !NamesModule(config.targets, name)) {
      Refuse(name, "target_modules does not name it");
    }
    const double alpha = ValueOf(config.alphas, name, config.alpha, adapter_->path);
    const auto rank = static_cast<double>(module.rank);
    module.scale = alpha / (config.rank_stabilised ? std::sqrt(rank) : rank);
    if (!config.dora) return module;
    const auto found = magnitudes_.find(name);
    if (found == magnitudes_.end()) Refuse(name, "lora_magnitude_vector is missing");
    if (found->second.tensor.shape != std::vector<int64_t>{b_shape[0]}) {
      Refuse(name, "lora_magnitude_vector has another shape");
    }
    module.magnitude = found->second;
    return module;
  }

  Adapter* const adapter_;
  Places a_, b_, magnitudes_;
};

}  // namespace

Adapter ArrangeAdapter(const std::string& path, AdapterConfig config,
                       const std::map<std::string, StoredPlace>& places) {
  Adapter adapter;
  adapter.path = path;
  adapter.config = std::move(config);
  Sorter sorter(&adapter);
  for (const auto& [name, place] : places) sorter.Add(name, place);
  sorter.Finish();
  return adapter;
}

Adapter ReadAdapter(const std::string& folder) {
  const std::string config_path = folder + "/adapter_config.json";
  const std::string weights_path = folder + "/adapter_model.safetensors";
  std::optional<ManifestEntry> manifest;
  if (Exists(folder + "/" + kManifestName)) manifest = VerifyButTensors(folder);
  const json parsed = ReadDocument(config_path, kLargestSettings);
  AdapterConfig config = ParseAdapterConfig(parsed, config_path);
  if (!IsFile(weights_path)) {
    throw DataError("read adapter " + weights_path + ": no such file",
                    "adapters of other formats (.bin) cannot be read");
  }
  const auto file = std::make_shared<StoredFile>(weights_path);
  CheckFloats(*file);
  if (manifest) CheckDigest(folder, *manifest, file->TakeIn());
  std::map<std::string, StoredPlace> places;
  for (const StoredTensor& tensor : file->tensors()) places[tensor.name] = {tensor, file};
  return ArrangeAdapter(folder, std::move(config), places);
}

std::vector<float> ReadNumbers(const StoredPlace& place) {
  const NumberType type = TypeOfDtype(place.tensor.dtype);
  std::string bytes(place.tensor.end - place.tensor.begin, '\0');
  place.file->Read(place.tensor, 0, bytes.size(), bytes.data());
  std::vector<float> numbers(bytes.size() / BytesOf(type, 1));
  ToFloats(type, bytes.data(), numbers.size(), numbers.data());
  for (const float number : numbers) {
    if (!std::isfinite(number)) {
      throw DataError("read adapter " + place.file->path() + ": " + place.tensor.name +
                      " has a number that is not finite");
    }
  }
  return numbers;
}

}  // namespace gpuctl::trainer
