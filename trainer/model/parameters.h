// The weights of the network: their list, initial values and names on disk.
//
// Shapes: V vocabulary, D d_model, H heads, K kv_heads, E head_dim, F ffn.

#ifndef TRAINER_MODEL_PARAMETERS_H_
#define TRAINER_MODEL_PARAMETERS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/config/config.h"
#include "trainer/linear/lora_linear.h"

namespace gpuctl::trainer {

// Rows of a weight that have a separate name on disk: q, k and v are one matrix here and three
// there.
struct RowSlice {
  std::string name;
  int64_t first_row;
  int64_t rows;
};

struct ParameterSpec {
  std::vector<int64_t> shape;
  bool decay;         // norms and biases are not decayed
  double init_std;    // of the initial values
  double init_value;  // all initial values, where init_std is 0
  std::vector<RowSlice> slices;
  bool stays_wide = false;  // never bf16
};

// Returns the block of a name "model.layers.N.…", or -1.
int64_t BlockOfName(const std::string& name);

// Returns the specs in the order of use: embedding, blocks, final norm, head (unless it is tied).
std::vector<ParameterSpec> ParameterSpecs(const ModelConfig& config);

// Weights that a model does not have are undefined; frozen matrices may be in strips or 4 bits.
struct BlockWeights {
  at::Tensor attention_norm_d;
  at::Tensor qkv_nd;      // [(H + 2K) E, D]
  at::Tensor qkv_bias_n;  // [(H + 2K) E]
  at::Tensor q_norm_e;
  at::Tensor k_norm_e;
  at::Tensor out_dn;  // [D, H E]
  at::Tensor out_bias_d;
  at::Tensor attention_out_norm_d;
  at::Tensor ffn_norm_d;
  at::Tensor gate_up_nd;      // [2F, D]
  at::Tensor gate_up_bias_n;  // [2F]
  at::Tensor down_df;         // [D, F]
  at::Tensor down_bias_d;
  at::Tensor ffn_out_norm_d;
  LoraWeights qkv_lora, out_lora, gate_up_lora, down_lora;  // beside the four matrices
};

struct GptWeights {
  at::Tensor embedding_vd;
  std::vector<BlockWeights> blocks;
  at::Tensor final_norm_d;
  at::Tensor head_vd;  // the embedding itself, if it is tied
};

// Returns for each spec whether it is frozen: whether all of its names on disk match a pattern, in
// which * stands for any text. Throws Error(kBadConfig) that names the pattern when it matches no
// weight, or when the patterns match a part of a matrix that is one here (q, k and v; gate and up),
// or when nothing is left to train.
std::vector<bool> FrozenParameters(const std::vector<ParameterSpec>& specs,
                                   const std::vector<std::string>& patterns);

// Returns the same tensors by name, for the forward pass. `flat` is in the order of ParameterSpecs.
GptWeights ArrangeWeights(const std::vector<at::Tensor>& flat, const ModelConfig& config);

// Returns initial weights in fp32 on the CPU; a pure function of config and seed, on every machine.
std::vector<at::Tensor> InitializeWeights(const ModelConfig& config, uint64_t seed);

// Appends the slices of `flat` as `prefix` + name, but for undefined tensors. The slices are views,
// not copies.
void AppendSlices(const std::vector<ParameterSpec>& specs, const std::vector<at::Tensor>& flat,
                  const std::string& prefix, NamedTensors* named);

// Copies `prefix` + name from `stored` into `flat`, but for undefined tensors, and converts dtype
// and device. Takes each one out of `stored` when it is copied, so that both are not there at once.
// Throws Error(kBadData) when one is missing or has another shape; `what` names the source.
void LoadSlices(const std::vector<ParameterSpec>& specs, const std::string& prefix,
                const std::string& what, const std::vector<at::Tensor>& flat,
                std::map<std::string, at::Tensor>* stored);

int64_t CountOf(const ParameterSpec& spec);  // elements
int64_t CountParameters(const ModelConfig& config);

// Returns the floating-point operations to train on one token: 6 N + 6 L H E T (causal attention; T
// is the window in layers that have one; N without an embedding that is not also the head, because
// its lookup is free; 4 N for weights that `freeze` names).
double FlopsPerToken(const ModelConfig& config, const std::vector<std::string>& freeze = {});

}  // namespace gpuctl::trainer

#endif  // TRAINER_MODEL_PARAMETERS_H_
