// The "post_processor" of tokenizer.json: the special tokens before and behind a text.
//
// Supported: TemplateProcessing (its "single"), BertProcessing, RobertaProcessing, ByteLevel,
// Sequence. Others are refused by name. Source of the format: the tokenizers library of Hugging
// Face, version 0.22.

#ifndef TRAINER_TOKENIZER_POST_PROCESSOR_H_
#define TRAINER_TOKENIZER_POST_PROCESSOR_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/base/json_at.h"

namespace gpuctl::trainer {

struct Surroundings {
  std::vector<int32_t> before;
  std::vector<int32_t> behind;
};

// Returns the ids around one text. Absent: none. Throws Error(kBadData).
Surroundings ReadPostProcessor(const std::optional<JsonAt>& json);

}  // namespace gpuctl::trainer

#endif  // TRAINER_TOKENIZER_POST_PROCESSOR_H_
