// Fuzzes the files of a tokenizer, as an object of them: they are refused, or become metadata.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/interchange/documents.h"
#include "trainer/interchange/gguf_tokenizer.h"

namespace {

constexpr int64_t kRows = 300;

void TryOut(const std::string& text) {
  const auto json = gpuctl::trainer::ParseDocument(text, "input");
  gpuctl::trainer::TokenFiles files;
  files.path = "input";
  const auto take = [&](const char* key) {
    return json.contains(key) ? json[key] : nlohmann::json();
  };
  files.tokenizer = take("tokenizer");
  files.tokenizer_config = take("tokenizer_config");
  files.config = take("config");
  files.generation_config = take("generation_config");
  gpuctl::trainer::GgufMetadata metadata;
  std::vector<std::string> notes;
  gpuctl::trainer::AddTokenizer(files, kRows, "", &metadata, &notes);
  for (const char* key : {"model", "tokens", "token_type", "eos_token_id", "bos_token_id"}) {
    if (!metadata.Has(std::string("tokenizer.ggml.") + key)) abort();
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
