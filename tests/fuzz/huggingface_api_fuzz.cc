// Fuzzes the answers of Hugging Face's API: each gives an error or a value within its bounds, never
// a crash.
#include <cstdint>

#include "tests/fuzz/market_answers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view body(reinterpret_cast<const char*>(data), size);
  gpuctl::CheckMarketAnswers("huggingface", body);
  return 0;
}
