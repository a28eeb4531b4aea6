// Fuzzes a tokenizer.json: it is refused, or it encodes and decodes, by streaming as well.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "trainer/base/error.h"
#include "trainer/tokenizer/tokenizer.h"

namespace {

void TryOut(const gpuctl::trainer::Tokenizer& tokenizer) {
  for (const std::string text : {"", "Hello  world, it's 12 o'clock\n\n",
                                 "a\xcc\x81 \xe2\x96\x81<s>\xf0\x9f\x98\x80\xff x"}) {
    try {
      const auto ids = tokenizer.Encode(text, true);
      for (const int32_t id : ids) {
        if (id < 0) abort();
      }
      const std::string whole = tokenizer.Decode(ids, false);
      gpuctl::trainer::StreamDecoder stream(tokenizer, false);
      std::string streamed;
      for (const int32_t id : ids) streamed += stream.Push(id);
      if (streamed + stream.Finish() != whole) abort();
    } catch (const gpuctl::trainer::Error& error) {
      if (error.code() != gpuctl::trainer::ExitCode::kBadData) abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto json = nlohmann::json::parse(data, data + size, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return 0;
  try {
    TryOut(gpuctl::trainer::Tokenizer::FromJson(json));
  } catch (const gpuctl::trainer::Error& error) {
    if (error.code() != gpuctl::trainer::ExitCode::kBadData) abort();
  }
  return 0;
}
