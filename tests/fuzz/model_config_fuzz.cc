// Fuzzes a model's config.json: it is refused, or gives a model whose sizes fit together.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "trainer/base/error.h"
#include "trainer/base/json_object.h"
#include "trainer/config/config.h"
#include "trainer/config/families.h"

namespace {

void TryOut(const std::string& text) {
  const auto json = gpuctl::trainer::ParseJsonObject(text, "read input");
  const auto model = gpuctl::trainer::ModelFromHuggingFace(json, "input");
  for (const int64_t size : {model.layers, model.d_model, model.heads, model.kv_heads, model.ffn,
                             model.context, model.vocab_size, model.head_dim()}) {
    if (size < 1 || size > int64_t{1} << 53) abort();
  }
  if (model.heads % model.kv_heads != 0 || model.head_dim() % 2 != 0) abort();
  if (!std::isfinite(model.rope_theta) || !std::isfinite(model.norm_eps)) abort();
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
