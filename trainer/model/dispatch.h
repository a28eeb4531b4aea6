// Finds operators of newer LibTorch versions by name at run time, so that one source builds with
// 1.13 and 2.x and uses the operators that exist.

#ifndef TRAINER_MODEL_DISPATCH_H_
#define TRAINER_MODEL_DISPATCH_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <exception>
#include <map>
#include <string>
#include <vector>

namespace gpuctl::trainer {

bool HasOperator(const std::string& name);

// Calls `name` (as "aten::x", no overload) with `positional` first; the other arguments come from
// `named` or from the schema's defaults. Returns its only result. Throws c10::Error when the
// operator does not exist or an argument has neither value nor default. Differentiable. An operator
// without a result gives an undefined tensor.
at::Tensor CallOperator(const std::string& name, const std::vector<c10::IValue>& positional,
                        const std::map<std::string, c10::IValue>& named);

// True where the routes for accelerators are taken: for a tensor on one, or, in tests, also on the
// CPU after TakeDeviceRoutesOnCpu(true).
bool TakesDeviceRoutes(const at::Tensor& x);
void TakeDeviceRoutesOnCpu(bool take);
bool TakesDeviceRoutesOnCpu();

// Returns the compute capability of the CUDA device in use, as 80 for 8.0; 0 when there is none, or
// when it does not tell (ROCm).
int CudaCapability();

// True when LibTorch 2's scaled_dot_product_attention exists.
bool HasFusedAttention();
// Returns causal attention of q [B, H, T, E], k and v [B, K, T, E], scaled by 1 / sqrt(E). Query
// heads that share keys need no copies of them from LibTorch 2.5 on. With a `window` above 0 a
// query sees that many keys, its own included; with starts int64 [B, T], none before the place that
// they name.
at::Tensor FusedCausalAttention(const at::Tensor& q_bhte, const at::Tensor& k_bkse,
                                const at::Tensor& v_bkse, int64_t window,
                                const at::Tensor& starts_bt);

// Documents that lie one behind the other in the rows of a batch.
struct DocumentBounds {
  at::Tensor bounds_d;  // int32 [documents + 1]: the first row of each, then the number of rows
  int64_t longest = 0;  // rows of the longest
};
// True when flash attention of documents (LibTorch 2's _flash_attention_forward) can be used for
// the dtype and device of `x`, heads of `head_dim`, and, if `windowed`, a window.
bool HasFlashAttention(const at::Tensor& x, int64_t head_dim, bool windowed);
// Returns causal attention within each document, of q [N, H, E], k and v [N, K, E], as [N, H, E].
// With a `window` above 0 a query sees that many keys, its own included. Keys need no copies for
// the query heads that share them. Differentiable.
at::Tensor FlashAttention(const at::Tensor& q_nhe, const at::Tensor& k_nke, const at::Tensor& v_nke,
                          const DocumentBounds& documents, int64_t window, double scale);

// True when RMS norm in one kernel (LibTorch 2.9) can be used for `x`.
bool HasFusedRmsNorm(const at::Tensor& x);
struct RmsNormed {
  at::Tensor out_nd;
  at::Tensor scale_n1;  // 1 / sqrt(mean of squares + eps), fp32 or wider
};
// Returns x / sqrt(mean of squares + eps) * weight of each row, with sums in fp32 at least. The
// weight has x's dtype.
RmsNormed FusedRmsNorm(const at::Tensor& x_nd, const at::Tensor& weight_d, double eps);
struct RmsNormGradients {
  at::Tensor dx_nd;
  at::Tensor dw_d;
};
RmsNormGradients FusedRmsNormBackward(const at::Tensor& dy_nd, const at::Tensor& x_nd,
                                      const at::Tensor& scale_n1, const at::Tensor& weight_d);

// While it lives, operators on a GPU add in a fixed order: attention's backward pass, and the
// choice of attention that has such a one. What cannot is a c10::Error then (IsNotDeterministic).
// For all threads of the process; scopes may lie within each other, not beside each other.
class DeterministicScope {
 public:
  explicit DeterministicScope(bool on);
  ~DeterministicScope();
  DeterministicScope(const DeterministicScope&) = delete;
  DeterministicScope& operator=(const DeterministicScope&) = delete;

 private:
  const bool on_;
  const bool before_;
};
bool IsNotDeterministic(const std::exception& error);
// Makes FusedCausalAttention choose in such a scope.
void ChooseDeterministicAttention(bool choose);

// Returns a b, in fp32 where a and b are in 16 bits: not rounded on the way where LibTorch has such
// a product (2.8, on CUDA).
at::Tensor WideProduct(const at::Tensor& a_mk, const at::Tensor& b_kn);
// Computes sum += a b, with a sum of that width.
void AddWideProduct(at::Tensor sum_mn, const at::Tensor& a_mk, const at::Tensor& b_kn);

// Tensors of one AdamW update, fp32 on one device. A list for each kind, in one order.
struct AdamwTensors {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> exp_avgs;
  std::vector<at::Tensor> exp_avg_sqs;
};
struct AdamwNumbers {
  double lr;
  double beta1;
  double beta2;
  double weight_decay;
  double eps;
  int64_t t;  // 1 for the first update
};
// True when LibTorch 2's AdamW in one kernel exists.
bool HasFusedAdamw();
// Updates all of them with it. Gradients are multiplied by `clip`, 0-dimensional on the device.
void FusedAdamw(const AdamwTensors& tensors, const AdamwNumbers& numbers, const at::Tensor& clip);

}  // namespace gpuctl::trainer

#endif  // TRAINER_MODEL_DISPATCH_H_
