// Legend: n rows of all documents, h query heads, k key heads, t rows of a document, e head_dim.

#include "trainer/tests/stand_ins.h"

#if TORCH_VERSION_MAJOR < 2

#include <ATen/ATen.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/silu_backward_cpu_dispatch.h>
#include <ATen/ops/silu_cpu_dispatch.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

// CUDA's functions that the trainer looks up by name: a GPU of capability 7.5 with 15 GB, 6 free.
extern "C" int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  if (device != 0 || (attribute != 75 && attribute != 76)) return 1;
  *value = attribute == 75 ? 7 : 5;
  return 0;
}
extern "C" int cudaMemGetInfo(size_t* available, size_t* total) {
  *available = 6'000'000'000;
  *total = 15'000'000'000;
  return 0;
}

namespace gpuctl::trainer {

StandInCalls& Calls() {
  static StandInCalls calls;
  return calls;
}

bool has_no_fixed_order = false;

std::vector<std::string>& StreamCalls() {
  static std::vector<std::string> calls;
  return calls;
}

namespace {

using OptionalTensor = c10::optional<at::Tensor>;
using OptionalInt = c10::optional<int64_t>;

constexpr double kHiddenScore = -std::numeric_limits<double>::infinity();

bool IsHalf(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf;
}

// LibTorch 2.5 has it for the CPU, too.
at::Tensor AttentionStandIn(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const OptionalTensor& mask, double dropout, bool causal,
                            c10::optional<double> scale, bool enable_gqa) {
  ++Calls().attention;
  EXPECT_EQ(dropout, 0);
  EXPECT_FALSE(scale);
  EXPECT_NE(causal, mask.has_value());
  const int64_t group = q.size(1) / k.size(1);
  EXPECT_TRUE(group == 1 || enable_gqa);
  EXPECT_TRUE(!enable_gqa || (IsHalf(q) && !mask)) << "no kernel shares keys then";
  const auto wide = [&](const at::Tensor& x) {
    return (IsHalf(x) ? x.to(at::kFloat) : x).repeat_interleave(q.size(1) / x.size(1), 1);
  };
  const at::Tensor scores =
      at::matmul(wide(q), wide(k).transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3)));
  const at::Tensor seen = mask ? *mask : at::ones({q.size(2), q.size(2)}, at::kBool).tril();
  EXPECT_EQ(seen.scalar_type(), at::kBool);
  const at::Tensor weights = scores.masked_fill(seen.logical_not(), kHiddenScore).softmax(-1);
  return at::matmul(weights, wide(v)).to(q.scalar_type());
}

// The arguments that both directions of flash attention have.
struct Flash {
  const at::Tensor& q;
  const at::Tensor& k;
  const at::Tensor& v;
  const at::Tensor& bounds;
  double scale;
  OptionalInt left;

  int64_t group() const { return q.size(1) / k.size(1); }
  // Rows [begin, end) as [H, T, E] in fp32.
  at::Tensor Rows(const at::Tensor& x, int64_t begin, int64_t end) const {
    return x.slice(0, begin, end)
        .transpose(0, 1)
        .to(at::kFloat)
        .repeat_interleave(q.size(1) / x.size(1), 0);
  }
  at::Tensor Weights(int64_t begin, int64_t end) const {
    const at::Tensor scores =
        at::matmul(Rows(q, begin, end), Rows(k, begin, end).transpose(1, 2)) * scale;
    at::Tensor seen = at::ones({end - begin, end - begin}, at::kBool).tril();
    if (left) seen = seen.triu(-*left);
    return scores.masked_fill(seen.logical_not(), kHiddenScore).softmax(-1);
  }
  void ForEachDocument(const std::function<void(int64_t, int64_t)>& visit) const {
    const int32_t* at = bounds.data_ptr<int32_t>();
    for (int64_t i = 0; i + 1 < bounds.numel(); ++i) visit(at[i], at[i + 1]);
  }
};

void CheckFlash(const Flash& f, const at::Tensor& bounds_k, int64_t max_q, int64_t max_k,
                double dropout, bool causal, const OptionalInt& right) {
  EXPECT_TRUE(IsHalf(f.q));
  for (const at::Tensor& x : {f.q, f.k, f.v}) {
    ASSERT_EQ(x.dim(), 3);
    EXPECT_EQ(x.scalar_type(), f.q.scalar_type());
    EXPECT_EQ(x.size(0), f.q.size(0));
    EXPECT_EQ(x.size(2), f.q.size(2));
    EXPECT_EQ(x.stride(2), 1);
  }
  EXPECT_EQ(f.q.size(1) % f.k.size(1), 0);
  EXPECT_EQ(f.k.size(1), f.v.size(1));
  EXPECT_TRUE(f.q.size(2) % 8 == 0 && f.q.size(2) <= 256);
  ASSERT_EQ(f.bounds.scalar_type(), at::kInt);
  ASSERT_TRUE(f.bounds.is_contiguous() && f.bounds.dim() == 1 && f.bounds.numel() > 1);
  EXPECT_TRUE(at::equal(f.bounds, bounds_k));
  const int32_t* bounds = f.bounds.data_ptr<int32_t>();
  EXPECT_EQ(bounds[0], 0);
  EXPECT_EQ(bounds[f.bounds.numel() - 1], f.q.size(0));
  int64_t longest = 2;  // never less
  f.ForEachDocument([&](int64_t begin, int64_t end) {
    EXPECT_LT(begin, end);
    longest = std::max(longest, end - begin);
  });
  EXPECT_EQ(max_q, longest);
  EXPECT_EQ(max_k, max_q);
  EXPECT_EQ(dropout, 0);
  EXPECT_TRUE(causal);
  EXPECT_EQ(f.left.has_value(), right.has_value());
  EXPECT_EQ(right.value_or(0), 0);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> FlashStandIn(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const OptionalTensor& bounds_q,
    const OptionalTensor& bounds_k, int64_t max_q, int64_t max_k, double dropout, bool causal,
    bool debug_mask, c10::optional<double> scale, OptionalInt left, OptionalInt right,
    const OptionalTensor& used_k, const OptionalTensor& alibi) {
  ++Calls().flash;
  EXPECT_FALSE(debug_mask || used_k || alibi);
  const Flash f = {q, k, v, bounds_q.value(), scale.value(), left};
  CheckFlash(f, bounds_k.value(), max_q, max_k, dropout, causal, right);
  const at::Tensor out = at::empty_like(q);
  f.ForEachDocument([&](int64_t begin, int64_t end) {
    const at::Tensor mixed = at::matmul(f.Weights(begin, end), f.Rows(v, begin, end));
    out.slice(0, begin, end).copy_(mixed.transpose(0, 1));
  });
  return {out, at::full({q.size(1), q.size(0)}, 5, at::kFloat), at::full({2}, 7, at::kLong),
          at::full({}, 9, at::kLong), at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> FlashBackwardStandIn(
    const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& bounds_q,
    const at::Tensor& bounds_k, int64_t max_q, int64_t max_k, double dropout, bool causal,
    const at::Tensor& seed, const at::Tensor& offset, c10::optional<double> scale, OptionalInt left,
    OptionalInt right) {
  const bool fixed = at::globalContext().deterministicAlgorithms();
  TORCH_CHECK(!fixed || !has_no_fixed_order, "flash does not have a deterministic implementation");
  ++Calls().flash_backward;
  Calls().in_fixed_order += fixed;
  const Flash f = {q, k, v, bounds_q, scale.value(), left};
  CheckFlash(f, bounds_k, max_q, max_k, dropout, causal, right);
  EXPECT_EQ(d_out.sizes(), q.sizes());
  EXPECT_EQ(out.sizes(), q.sizes());
  EXPECT_EQ(logsumexp.sizes(), at::IntArrayRef({q.size(1), q.size(0)}));
  EXPECT_EQ(*logsumexp.data_ptr<float>(), 5);
  EXPECT_EQ(*seed.data_ptr<int64_t>(), 7);
  EXPECT_EQ(*offset.data_ptr<int64_t>(), 9);
  const at::Tensor d_q = at::empty_like(q), d_k = at::empty_like(k), d_v = at::empty_like(v);
  f.ForEachDocument([&](int64_t begin, int64_t end) {
    const auto put = [&](const at::Tensor& d_hte, const at::Tensor& d_x) {
      const int64_t heads = d_x.size(1), group = q.size(1) / heads;
      d_x.slice(0, begin, end)
          .copy_(d_hte.view({heads, group, end - begin, -1}).sum(1).transpose(0, 1));
    };
    const at::Tensor p = f.Weights(begin, end), d_o = f.Rows(d_out, begin, end);
    const at::Tensor d_p = at::matmul(d_o, f.Rows(v, begin, end).transpose(1, 2));
    const at::Tensor rows = (d_o * f.Rows(out, begin, end)).sum(-1, true);
    const at::Tensor d_s = p * (d_p - rows) * f.scale;
    put(at::matmul(d_s, f.Rows(k, begin, end)), d_q);
    put(at::matmul(d_s.transpose(1, 2), f.Rows(q, begin, end)).contiguous(), d_k);
    put(at::matmul(p.transpose(1, 2), d_o).contiguous(), d_v);
  });
  return {d_q, d_k, d_v};
}

void AdamwStandIn(at::TensorList self, at::TensorList gradients, at::TensorList exp_avgs,
                  at::TensorList exp_avg_sqs, at::TensorList max_exp_avg_sqs,
                  at::TensorList state_steps, double lr, double beta1, double beta2,
                  double weight_decay, double eps, bool amsgrad, bool maximize,
                  const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  ++Calls().adamw;
  EXPECT_TRUE(max_exp_avg_sqs.empty());
  EXPECT_FALSE(amsgrad);
  EXPECT_FALSE(maximize);
  EXPECT_FALSE(found_inf.has_value());
  ASSERT_TRUE(grad_scale.has_value());
  ASSERT_EQ(state_steps.size(), self.size());
  for (size_t i = 0; i < self.size(); ++i) {
    EXPECT_EQ(state_steps[i].scalar_type(), at::kFloat);
    const double t = state_steps[i].item<double>();
    EXPECT_EQ(gradients[i].scalar_type(), self[i].scalar_type());
    const at::Tensor g = gradients[i] / *grad_scale;
    self[i].mul_(1 - lr * weight_decay);
    exp_avgs[i].lerp_(g, 1 - beta1);
    exp_avg_sqs[i].mul_(beta2).addcmul_(g, g, 1 - beta2);
    const at::Tensor root = exp_avg_sqs[i].sqrt() / std::sqrt(1 - std::pow(beta2, t)) + eps;
    self[i].addcdiv_(exp_avgs[i], root, -lr / (1 - std::pow(beta1, t)));
  }
}

void CheckNorm(const at::Tensor& x, at::IntArrayRef shape, const OptionalTensor& weight) {
  EXPECT_EQ(shape, at::IntArrayRef({x.size(1)}));
  EXPECT_TRUE(x.is_contiguous() && x.dim() == 2);
  // CUDA's kernel takes no other dtype.
  EXPECT_EQ(weight.value().scalar_type(), x.scalar_type());
}

std::tuple<at::Tensor, at::Tensor> RmsNormStandIn(const at::Tensor& x, at::IntArrayRef shape,
                                                  const OptionalTensor& weight,
                                                  c10::optional<double> eps) {
  ++Calls().rms_norm;
  CheckNorm(x, shape, weight);
  const at::Tensor wide = IsHalf(x) ? x.to(at::kFloat) : x;
  const at::Tensor scale = (wide.pow(2).mean({-1}, true) + eps.value()).rsqrt();
  return {(wide * scale * *weight).to(x.scalar_type()), scale};
}

std::tuple<at::Tensor, at::Tensor> RmsNormBackwardStandIn(const at::Tensor& dy, const at::Tensor& x,
                                                          at::IntArrayRef shape,
                                                          const at::Tensor& scale,
                                                          const OptionalTensor& weight,
                                                          std::array<bool, 2> mask) {
  ++Calls().rms_norm_backward;
  CheckNorm(x, shape, weight);
  EXPECT_TRUE(dy.is_contiguous() && dy.scalar_type() == x.scalar_type());
  EXPECT_EQ(scale.sizes(), at::IntArrayRef({x.size(0), 1}));
  EXPECT_TRUE(mask[0] && mask[1]);
  const at::Tensor unit = x * scale, g = dy * *weight;
  const at::Tensor dx = (g - unit * (g * unit).mean({-1}, true)) * scale;
  return {dx.to(x.scalar_type()), (dy * unit).sum(0).to(x.scalar_type())};
}

// CUDA has them for 16 bits with a result of 32.
void CheckWideProduct(const at::Tensor& a, const at::Tensor& b, at::ScalarType width,
                      const at::Tensor& out) {
  ++Calls().wide_products;
  EXPECT_TRUE(IsHalf(a) && a.scalar_type() == b.scalar_type());
  EXPECT_EQ(width, at::kFloat);
  EXPECT_EQ(out.scalar_type(), at::kFloat);
  EXPECT_EQ(out.sizes(), at::IntArrayRef({a.size(0), b.size(1)}));
}
at::Tensor& WideProductStandIn(const at::Tensor& a, const at::Tensor& b, at::ScalarType width,
                               at::Tensor& out) {
  CheckWideProduct(a, b, width, out);
  return out.copy_(at::mm(a.to(at::kFloat), b.to(at::kFloat)));
}
at::Tensor& AddedWideProductStandIn(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b,
                                    at::ScalarType width, const at::Scalar& beta,
                                    const at::Scalar& alpha, at::Tensor& out) {
  CheckWideProduct(a, b, width, out);
  EXPECT_TRUE(sum.is_same(out)) << "the sum is added to in its place";
  EXPECT_TRUE(beta.equal(1) && alpha.equal(1));
  return out.add_(at::mm(a.to(at::kFloat), b.to(at::kFloat)));
}

// Pinned memory is CUDA's.
bool IsPinnedStandIn(const at::Tensor&, c10::optional<at::Device>) { return false; }
at::Tensor PinStandIn(const at::Tensor& x, c10::optional<at::Device>) {
  ++Calls().pins;
  EXPECT_TRUE(x.is_cpu() && x.is_contiguous());
  return x.clone();
}

// LibTorch 1.13 lacks these in fp16 on the CPU.
at::Tensor& ProductStandIn(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  if (a.scalar_type() != at::kHalf) return at::cpu::mm_out(out, a, b);
  return out.copy_(at::mm(a.to(at::kFloat), b.to(at::kFloat)));
}
at::Tensor& AddedProductStandIn(at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                                const at::Scalar& beta, const at::Scalar& alpha) {
  if (a.scalar_type() != at::kHalf) return at::cpu::addmm_(self, a, b, beta, alpha);
  return self.copy_(
      at::addmm(self.to(at::kFloat), a.to(at::kFloat), b.to(at::kFloat), beta, alpha));
}

at::Tensor SiluStandIn(const at::Tensor& x) {
  if (x.scalar_type() != at::kHalf) return at::cpu::silu(x);
  return at::cpu::silu(x.to(at::kFloat)).to(at::kHalf);
}
at::Tensor& SiluBackwardStandIn(const at::Tensor& dy, const at::Tensor& x, at::Tensor& dx) {
  if (x.scalar_type() != at::kHalf) return at::cpu::silu_backward_out(dx, dy, x);
  return dx.copy_(at::cpu::silu_backward(dy.to(at::kFloat), x.to(at::kFloat)));
}

// Streams of a CUDA without devices: 0 is the default one, 1 that of the pool.
class StreamsStandIn final : public c10::impl::DeviceGuardImplInterface {
 public:
  static constexpr c10::DeviceType static_type = c10::kCUDA;
  explicit StreamsStandIn(c10::DeviceType /*type*/) {}
  StreamsStandIn() = default;
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Device getDevice() const override { return {c10::kCUDA, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 0; }
  c10::Stream getStream(c10::Device) const noexcept override { return Number(current_); }
  c10::Stream getDefaultStream(c10::Device) const override { return Number(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return Number(1); }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    const c10::Stream before = Number(current_);
    current_ = stream.id();
    StreamCalls().push_back("use " + std::to_string(stream.id()));
    return before;
  }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    *event = &current_;
    StreamCalls().push_back("record " + std::to_string(stream.id()));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) StreamCalls().push_back("block " + std::to_string(stream.id()));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    StreamCalls().push_back("wait for " + std::to_string(stream.id()));
  }

 private:
  static c10::Stream Number(c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kCUDA, 0), id);
  }
  static c10::StreamId current_;
};
c10::StreamId StreamsStandIn::current_ = 0;
C10_REGISTER_GUARD_IMPL(CUDA, StreamsStandIn);

TORCH_LIBRARY_FRAGMENT(aten, library) {
  library.def(
      "scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None,"
      " float dropout_p=0.0, bool is_causal=False, *, float? scale=None, bool enable_gqa=False)"
      " -> Tensor");
  library.def(
      "_flash_attention_forward(Tensor query, Tensor key, Tensor value, Tensor? cum_seq_q,"
      " Tensor? cum_seq_k, SymInt max_q, SymInt max_k, float dropout_p, bool is_causal,"
      " bool return_debug_mask, *, float? scale=None, SymInt? window_size_left=None,"
      " SymInt? window_size_right=None, Tensor? seqused_k=None, Tensor? alibi_slopes=None)"
      " -> (Tensor output, Tensor softmax_logsumexp, Tensor rng_state, Tensor unused,"
      " Tensor debug_attn_mask)");
  library.def(
      "_flash_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value,"
      " Tensor out, Tensor logsumexp, Tensor cum_seq_q, Tensor cum_seq_k, SymInt max_q,"
      " SymInt max_k, float dropout_p, bool is_causal, Tensor rng_state, Tensor unused, *,"
      " float? scale=None, SymInt? window_size_left=None, SymInt? window_size_right=None)"
      " -> (Tensor, Tensor, Tensor)");
  library.def(
      "_fused_adamw_(Tensor(a!)[] self, Tensor(b!)[] grads, Tensor(c!)[] exp_avgs,"
      " Tensor(d!)[] exp_avg_sqs, Tensor(e!)[] max_exp_avg_sqs, Tensor[] state_steps, *, float lr,"
      " float beta1, float beta2, float weight_decay, float eps, bool amsgrad, bool maximize,"
      " Tensor? grad_scale=None, Tensor? found_inf=None) -> ()");
  library.def(
      "_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, float? eps)"
      " -> (Tensor, Tensor)");
  library.def(
      "_fused_rms_norm_backward(Tensor grad_out, Tensor input, int[] normalized_shape, Tensor rstd,"
      " Tensor? weight, bool[2] output_mask) -> (Tensor, Tensor)");
  library.def(
      "mm.dtype_out(Tensor self, Tensor mat2, ScalarType out_dtype, *, Tensor(a!) out)"
      " -> Tensor(a!)");
  library.def(
      "addmm.dtype_out(Tensor self, Tensor mat1, Tensor mat2, ScalarType out_dtype, *,"
      " Scalar beta=1, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)");
}
TORCH_LIBRARY_IMPL(aten, CompositeImplicitAutograd, library) {
  library.impl("scaled_dot_product_attention", TORCH_FN(AttentionStandIn));
  library.impl("_fused_adamw_", TORCH_FN(AdamwStandIn));
}
TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("silu", TORCH_FN(SiluStandIn));
  library.impl("silu_backward.grad_input", TORCH_FN(SiluBackwardStandIn));
  library.impl("mm.out", TORCH_FN(ProductStandIn));
  library.impl("addmm_", TORCH_FN(AddedProductStandIn));
  library.impl("_flash_attention_forward", TORCH_FN(FlashStandIn));
  library.impl("_flash_attention_backward", TORCH_FN(FlashBackwardStandIn));
  library.impl("mm.dtype_out", TORCH_FN(WideProductStandIn));
  library.impl("addmm.dtype_out", TORCH_FN(AddedWideProductStandIn));
  library.impl("_fused_rms_norm", TORCH_FN(RmsNormStandIn));
  library.impl("_fused_rms_norm_backward", TORCH_FN(RmsNormBackwardStandIn));
}
TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("is_pinned", TORCH_FN(IsPinnedStandIn));
  library.impl("_pin_memory", TORCH_FN(PinStandIn));
}

}  // namespace
}  // namespace gpuctl::trainer

#endif
