// The network: one decoder for all families of the table in config/families.h.
//
//   x = embedding(token)
//   every block:  x += out(attention(norm(x)));  x += down(swiglu(gate_up(norm(x))))
//   loss = cross entropy of norm(x) against the head, which may be the embedding

#ifndef TRAINER_MODEL_GPT_H_
#define TRAINER_MODEL_GPT_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "trainer/config/config.h"
#include "trainer/model/functions.h"
#include "trainer/model/parameters.h"

namespace gpuctl::trainer {

// The network's shape, shared by all threads and never changed.
struct GptShape {
  ModelConfig config;
  RotaryTable rotary;
  RotaryTable local_rotary;  // of layers with a window
  // For training: a block keeps its input alone, and the backward pass computes the rest again, to
  // the same bits.
  bool recompute = false;
};

// The tables are made for `config.context` positions.
GptShape MakeGptShape(const ModelConfig& config, const at::TensorOptions& options);

// What the network keeps of the tokens that it has read, for one window. Begins empty.
struct GptCache {
  int64_t tokens = 0;
  std::vector<KeyValues> layers;
};

// Returns how many rows of logits a chunk of the loss has. The head's weights pass through memory
// several times for each chunk, so that few rows would make it wait for memory.
int64_t LogitRows(const ModelConfig& config, bool on_cpu);

// Returns the last hidden rows [B T, D], normed, for the head. `tokens_bt` is int64 with T <=
// context. `starts_bt` tells where the documents of packed windows begin, as in AttentionShape; it
// stays on the CPU, where their bounds for flash attention are found without waiting for a device.
// With a cache (B = 1, one document) the tokens follow those of the cache, which gets them too;
// together they are at most `context`; not differentiable.
at::Tensor Hidden(const GptShape& shape, const GptWeights& weights, const at::Tensor& tokens_bt,
                  const at::Tensor& starts_bt = {}, GptCache* cache = nullptr);

// Returns scale * the summed loss over the targets that are not -1; the inputs are int64 [B, T].
// The targets stay on the CPU: which of them count is decided there, without waiting for a device.
at::Tensor SummedLoss(const GptShape& shape, const GptWeights& weights, const at::Tensor& tokens_bt,
                      const at::Tensor& targets_bt, double scale, const at::Tensor& starts_bt = {});

// What some windows answer: for losses of whole windows.
struct Answers {
  at::Tensor x_nd;            // the last hidden rows with a target, normed
  at::Tensor targets_n;       // on the device of x
  std::vector<int64_t> ends;  // of each window's rows
};

// Returns them for windows as SummedLoss takes them. Differentiable.
Answers AnswersOf(const GptShape& shape, const GptWeights& weights, const at::Tensor& tokens_bt,
                  const at::Tensor& targets_bt, const at::Tensor& starts_bt);

// Returns for each window the log-probability of all its targets together, fp32 on the CPU, which
// waits for the device. Not differentiable.
std::vector<float> LogProbabilities(const GptShape& shape, const GptWeights& weights,
                                    const Answers& answers);

// Returns the sum over the windows of -factor * log-probability. Differentiable.
at::Tensor WeightedLoss(const GptShape& shape, const GptWeights& weights, const Answers& answers,
                        const std::vector<double>& factors);

}  // namespace gpuctl::trainer

#endif  // TRAINER_MODEL_GPT_H_
