// Whether a model may be trained on the bytes of texts. Uses no LibTorch.

#ifndef TRAINER_DATA_BYTES_OF_TEXT_H_
#define TRAINER_DATA_BYTES_OF_TEXT_H_

#include <string>

#include "trainer/config/config.h"

namespace gpuctl::trainer {

// Whether tokens can be made with the tokenizer of a model folder.
bool HasTokenizer(const std::string& folder);

// Checks data that nobody prepared, for the model in `folder`. Throws Error(kBadConfig) where bytes
// are hardly meant: the folder has a tokenizer, or a part of one, or the data are rows of JSON.
// data.tokens "bytes" says that they are.
void CheckBytesAreMeant(const std::string& folder, const DataConfig& data);

}  // namespace gpuctl::trainer

#endif  // TRAINER_DATA_BYTES_OF_TEXT_H_
