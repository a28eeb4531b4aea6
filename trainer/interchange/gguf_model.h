// A model folder as one GGUF file, for llama.cpp and the programs that are built on it.

#ifndef TRAINER_INTERCHANGE_GGUF_MODEL_H_
#define TRAINER_INTERCHANGE_GGUF_MODEL_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/folder_files.h"
#include "trainer/interchange/numbers.h"

namespace gpuctl::trainer {

struct GgufExport {
  std::string folder;
  std::string out;
  std::optional<NumberType> type;       // of matrices; nothing: the one that the folder has
  std::string pre;                      // see AddTokenizer
  std::function<void()> check = [] {};  // called before each piece; may throw to give up
};

struct GgufResult {
  uint64_t bytes = 0;
  NumberType type = NumberType::kF32;
  std::vector<std::string> notes;  // what llama.cpp does differently, in sentences
};

// Writes the file; its place has the whole file, or what was there before. Needs memory for the
// tokenizer and some pieces of 4 MiB. Norms and biases are F32, and matrices whose rows Q8_0 cannot
// hold are F16. Throws Error(kBadData) for a folder that is not right, or has what llama.cpp does
// not compute; Error(kBadConfig), Error(kIo).
GgufResult ExportGguf(const GgufExport& request);

// Returns llama.cpp's name for the family of a model: "llama", "qwen2", "qwen3" or "gemma3".
std::string GgufArchitecture(const ModelFolder& folder);

// Returns the row of the folder that is row `row` of the GGUF file. llama.cpp turns neighbouring
// rows of a head together in a Llama, the folder's rows are half a head apart.
int64_t RotatedRow(int64_t row, int64_t head_dim);

}  // namespace gpuctl::trainer

#endif  // TRAINER_INTERCHANGE_GGUF_MODEL_H_
