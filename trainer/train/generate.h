// Continues a text, token by token.

#ifndef TRAINER_TRAIN_GENERATE_H_
#define TRAINER_TRAIN_GENERATE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/model/gpt.h"

namespace gpuctl::trainer {

// Gives the logits after a growing sequence of tokens. Keeps keys and values of what it has read,
// so that a call reads only the new tokens. Of more than `context` tokens it reads the last
// `context` ones, all of them in each call. Weights and shape must outlive it. Not thread-safe.
class NextToken {
 public:
  NextToken(const GptShape& shape, const GptWeights& weights) : shape_(shape), weights_(weights) {}

  // Returns fp32 logits [V] on the CPU for the token after `tokens`, which continue those of the
  // last call. Throws Error(kBadData) when the logits are not finite.
  at::Tensor Logits(const std::vector<int64_t>& tokens);

 private:
  const GptShape& shape_;
  const GptWeights& weights_;
  GptCache cache_;
};

struct Sampling {
  double temperature = 0;  // 0: the likeliest token
  int64_t top_k = 0;       // only the k likeliest tokens; 0: all
  double top_p = 1;        // of those, the likeliest ones that together have this probability
  int64_t choices = 0;     // only tokens below it; 0: all
  int64_t seed = 1;
};

// Chooses one token by logits [V]. `number` counts the draws of the seed.
int64_t ChooseToken(const at::Tensor& logits_v, const Sampling& sampling, uint64_t number);

struct GenerateRequest {
  std::vector<int64_t> prompt;  // at least one token, each below the vocabulary's size
  int64_t tokens = 0;           // at most that many are generated
  std::vector<int64_t> stop_tokens;
  Sampling sampling;
};

// Generates tokens after the prompt, calling `emit` with each as it comes, and returns them. Ends
// before a stop token. The result is a pure function of request and weights. Calls `stop` before
// each token. Throws Error(kBadConfig) for a prompt that is not as described.
std::vector<int64_t> GenerateTokens(const GptShape& shape, const GptWeights& weights,
                                    const GenerateRequest& request,
                                    const std::function<void(int64_t)>& emit,
                                    const std::function<bool()>& stop);

// Does the same with bytes: generates `sample.tokens` bytes after the prompt.
std::string GenerateText(const GptShape& shape, const GptWeights& weights,
                         const SampleConfig& sample, const std::string& prompt,
                         const std::function<void(char)>& emit, const std::function<bool()>& stop);

}  // namespace gpuctl::trainer

#endif  // TRAINER_TRAIN_GENERATE_H_
