// Fuzzes an adapter of PEFT's: {"config": adapter_config.json, "tensors": {name: shape}}. It is
// refused, or its modules fit together.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>

#include "trainer/adapters/adapter.h"
#include "trainer/base/error.h"
#include "trainer/base/json_at.h"
#include "trainer/interchange/documents.h"

namespace {

using gpuctl::trainer::JsonAt;
using gpuctl::trainer::StoredPlace;

std::map<std::string, StoredPlace> PlacesOf(const JsonAt& tensors) {
  std::map<std::string, StoredPlace> places;
  if (!tensors.value().is_object()) tensors.Refuse("must be an object");
  for (const auto& [name, ignored] : tensors.value().items()) {
    StoredPlace place;
    place.tensor.name = name;
    place.tensor.dtype = "F32";
    const JsonAt shape = tensors.At(name);
    for (size_t i = 0; i < shape.Size(); ++i) {
      place.tensor.shape.push_back(shape.At(i).Number(INT64_MAX));
    }
    places[name] = place;
  }
  return places;
}

void TryOut(const std::string& text) {
  const auto json = gpuctl::trainer::ParseDocument(text, "input");
  const JsonAt root(json, "", "read input");
  const auto config = gpuctl::trainer::ParseAdapterConfig(root.At("config").value(), "config");
  const auto adapter =
      gpuctl::trainer::ArrangeAdapter("adapter", config, PlacesOf(root.At("tensors")));
  if (adapter.modules.empty() && adapter.replaced.empty()) abort();
  for (const auto& module : adapter.modules) {
    if (module.name.empty() || module.rank < 1 || module.rows() < 1 || module.columns() < 1)
      abort();
    if (!(module.scale > 0) || !std::isfinite(module.scale)) abort();
    if (config.dora != module.magnitude.has_value()) abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    TryOut(std::string(reinterpret_cast<const char*>(data), size));
  } catch (const gpuctl::trainer::Error& error) {
    if (error.code() != gpuctl::trainer::ExitCode::kBadData) abort();
  }
  return 0;
}
