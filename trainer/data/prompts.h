// Prompts of a run that `prepare` encoded, with what it takes to show the answers: a node that
// trains has no tokenizer. Uses no LibTorch.
//
//   <folder>/prompts.json   {"format":1, "chat": whether prompts are messages of a chat,
//                            "stop_ids": [ids that end an answer],
//                            "prompts": [{"text", "ids"}, …],
//                            "pieces": [for each id, its text within others; "" for special ones]}
//
// Some tokens are a part of a character, so a piece has a code point below 256 for each byte.

#ifndef TRAINER_DATA_PROMPTS_H_
#define TRAINER_DATA_PROMPTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/config.h"

namespace gpuctl::trainer {

constexpr char kPromptsFile[] = "prompts.json";

struct EncodedPrompt {
  std::string text;
  std::vector<int64_t> ids;
};

struct EncodedPrompts {
  bool chat = false;
  std::vector<EncodedPrompt> prompts;
  std::vector<int64_t> stop_ids;
  std::vector<std::string> pieces;  // bytes

  // Returns the bytes of the ids; those without a piece have none.
  std::string TextOf(const std::vector<int64_t>& ids) const;
};

// Returns the content of prompts.json.
std::string PromptsToJson(const EncodedPrompts& encoded);

// Returns the prompts that `sample` names, in its order, from the prepared folder. Throws
// Error(kBadConfig) for one that was not encoded, Error(kBadData) for an invalid file.
EncodedPrompts FindPrompts(const SampleConfig& sample, const std::string& folder);

}  // namespace gpuctl::trainer

#endif  // TRAINER_DATA_PROMPTS_H_
