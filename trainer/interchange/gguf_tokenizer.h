// A tokenizer.json as the metadata of a GGUF file.
//
// llama.cpp has no tokenizer.json: it has one program for byte-level BPE, whose way to split texts
// is chosen by name, and one for SentencePiece's BPE. What neither of them does is refused by name:
// ids that are almost right would spoil a model without a word. Sources: ggml's docs/gguf.md, and
// llama.cpp's llama-vocab.cpp for the names and what they do.

#ifndef TRAINER_INTERCHANGE_GGUF_TOKENIZER_H_
#define TRAINER_INTERCHANGE_GGUF_TOKENIZER_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/checkpoint/folder_files.h"
#include "trainer/interchange/gguf_file.h"

namespace gpuctl::trainer {

// The JSON files of a model folder that say something about its tokens. Those that are not there
// are null.
struct TokenFiles {
  std::string path;                  // of the folder, for messages
  nlohmann::json tokenizer;          // tokenizer.json
  nlohmann::json tokenizer_config;   // tokenizer_config.json
  nlohmann::json config;             // config.json
  nlohmann::json generation_config;  // generation_config.json
  std::string chat_template;         // chat_template.jinja, or ""
};

// Reads them. Throws Error(kBadData), Error(kIo).
TokenFiles ReadTokenFiles(const ModelFolder& folder);

// Appends the metadata of the tokenizer. `rows` are those of the embedding; ids without a token are
// named. `pre` names llama.cpp's way to split texts for byte-level BPE; "" finds it. A model
// without tokenizer.json must have the 257 rows of the trainer's own bytes. Appends to `notes` what
// llama.cpp does differently. Throws Error(kBadData) that names the place and what
// llama.cpp does not do.
void AddTokenizer(const TokenFiles& files, int64_t rows, const std::string& pre,
                  GgufMetadata* metadata, std::vector<std::string>* notes);

}  // namespace gpuctl::trainer

#endif  // TRAINER_INTERCHANGE_GGUF_TOKENIZER_H_
