// The network: a Llama-like decoder over bytes.
//
//   x = embedding(token)
//   every block:  x += out(attention(norm(x)));  x += down(swiglu(gate_up(norm(x))))
//   loss = cross entropy of norm(x) against the embedding as head

#ifndef TRAINER_MODEL_GPT_H_
#define TRAINER_MODEL_GPT_H_

#include <ATen/core/Tensor.h>

#include "trainer/config/config.h"
#include "trainer/model/functions.h"
#include "trainer/model/parameters.h"

namespace gpuctl::trainer {

// Shared by all threads, never written after it is made.
struct GptShape {
  ModelConfig config;
  RotaryTable rotary;
};

GptShape MakeGptShape(const ModelConfig& config, const at::TensorOptions& options);

// Last hidden rows, normed, ready for the head. `tokens_bt` is int64 with T <= context.
// Returns [B T, D].
at::Tensor Hidden(const GptShape& shape, const GptWeights& weights, const at::Tensor& tokens_bt);

// scale * the summed loss over the targets that are not -1; both inputs int64 [B, T].
at::Tensor SummedLoss(const GptShape& shape, const GptWeights& weights, const at::Tensor& tokens_bt,
                      const at::Tensor& targets_bt, double scale);

}  // namespace gpuctl::trainer

#endif  // TRAINER_MODEL_GPT_H_
