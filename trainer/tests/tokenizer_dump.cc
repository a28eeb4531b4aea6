// Encodes and decodes texts for a comparison with another program.
//
//   tokenizer_dump TOKENIZER_JSON < TEXTS > RESULTS
//
// TEXTS: for each text its length and its bytes. RESULTS: for each text the number of its ids, the
// ids, the length of the decoded text and its bytes. Numbers have 32 bits and the machine's order.
// Texts with an even number are encoded with special tokens and decoded without, the others the
// other way. The exit code is the error's, and stderr has its text.
#include <cstdio>
#include <string>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/tokenizer/tokenizer.h"

namespace gpuctl::trainer {
namespace {

bool ReadNumber(uint32_t* number) { return std::fread(number, sizeof(*number), 1, stdin) == 1; }

void WriteNumber(size_t number) {
  const auto word = static_cast<uint32_t>(number);
  std::fwrite(&word, sizeof(word), 1, stdout);
}

int Dump(const std::string& path) {
  const Tokenizer tokenizer = Tokenizer::Load(path);
  uint32_t size;
  for (bool even = true; ReadNumber(&size); even = !even) {
    std::string text(size, '\0');
    if (std::fread(text.data(), 1, size, stdin) != size) return 1;
    const std::vector<int32_t> ids = tokenizer.Encode(text, even);
    const std::string decoded = tokenizer.Decode(ids, even);
    StreamDecoder stream(tokenizer, even);
    std::string streamed;
    WriteNumber(ids.size());
    for (const int32_t id : ids) {
      WriteNumber(static_cast<uint32_t>(id));
      streamed += stream.Push(id);
    }
    if (streamed + stream.Finish() != decoded) return 1;
    WriteNumber(decoded.size());
    std::fwrite(decoded.data(), 1, decoded.size(), stdout);
  }
  return 0;
}

}  // namespace
}  // namespace gpuctl::trainer

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  try {
    return gpuctl::trainer::Dump(argv[1]);
  } catch (const gpuctl::trainer::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
