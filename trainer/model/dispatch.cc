#include "trainer/model/dispatch.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/triu.h>
#include <ATen/ops/zeros.h>
#include <dlfcn.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "trainer/linear/matmul.h"
#include "trainer/linear/widths.h"

namespace gpuctl::trainer {
namespace {
constexpr char kAttention[] = "aten::scaled_dot_product_attention";
constexpr char kFlash[] = "aten::_flash_attention_forward";
constexpr char kFlashBackward[] = "aten::_flash_attention_backward";
constexpr char kAdamw[] = "aten::_fused_adamw_";
constexpr char kRmsNorm[] = "aten::_fused_rms_norm";
constexpr char kRmsNormBackward[] = "aten::_fused_rms_norm_backward";

// Ampere. Some later ones cannot go backward with large heads.
constexpr int kFlashCapability = 80;
constexpr int64_t kLargeHeads = 192;
constexpr int64_t kLargestHeads = 256;

std::atomic<bool> device_routes_on_cpu{false};
std::atomic<bool> deterministic_attention{false};

bool TakesArgument(const std::string& name, const std::string& argument) {
  const auto found = c10::Dispatcher::singleton().findSchema({name, ""});
  return found && found->schema().argumentIndexWithName(argument).has_value();
}

// Calls it as CallOperator does. Returns all results.
torch::jit::Stack Call(const std::string& name, const std::vector<c10::IValue>& positional,
                       const std::map<std::string, c10::IValue>& named,
                       const std::string& overload = "") {
  const auto found = c10::Dispatcher::singleton().findSchema({name, overload});
  TORCH_CHECK(found, "call ", name, ": this LibTorch does not have it");
  const auto& arguments = found->schema().arguments();
  torch::jit::Stack stack(positional);
  for (size_t i = positional.size(); i < arguments.size(); ++i) {
    const auto given = named.find(arguments[i].name());
    if (given != named.end()) {
      stack.push_back(given->second);
    } else {
      TORCH_CHECK(arguments[i].default_value(), "call ", name, ": ", arguments[i].name(),
                  " has no default");
      stack.push_back(*arguments[i].default_value());
    }
  }
  found->callBoxed(&stack);
  return stack;
}

// Scale and window of flash attention, as arguments.
std::map<std::string, c10::IValue> FlashOptions(double scale, int64_t window) {
  std::map<std::string, c10::IValue> named = {{"scale", scale}};
  if (window > 0) {
    named["window_size_left"] = window - 1;
    named["window_size_right"] = int64_t{0};
  }
  return named;
}

// Calls both operators itself, and so depends on no version's rules of differentiation.
struct FlashFunction : torch::autograd::Function<FlashFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& q_nhe,
                            const at::Tensor& k_nke, const at::Tensor& v_nke,
                            const at::Tensor& bounds_d, int64_t longest, int64_t window,
                            double scale) {
    const torch::jit::Stack results =
        Call(kFlash,
             {q_nhe, k_nke, v_nke, bounds_d, bounds_d, longest, longest, /*dropout_p=*/0.0,
              /*is_causal=*/true, /*return_debug_mask=*/false},
             FlashOptions(scale, window));
    const at::Tensor out_nhe = results.at(0).toTensor();
    // Two tensors of random numbers follow the logarithms of the sums.
    context->save_for_backward({q_nhe, k_nke, v_nke, bounds_d, out_nhe, results.at(1).toTensor(),
                                results.at(2).toTensor(), results.at(3).toTensor()});
    context->saved_data["longest"] = longest;
    context->saved_data["window"] = window;
    context->saved_data["scale"] = scale;
    return out_nhe;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const torch::autograd::variable_list saved = context->get_saved_variables();
    const int64_t longest = context->saved_data["longest"].toInt();
    const torch::jit::Stack results = Call(
        kFlashBackward,
        {gradients[0].contiguous(), saved[0], saved[1], saved[2], saved[4], saved[5], saved[3],
         saved[3], longest, longest, /*dropout_p=*/0.0, /*is_causal=*/true, saved[6], saved[7]},
        FlashOptions(context->saved_data["scale"].toDouble(),
                     context->saved_data["window"].toInt()));
    return {results.at(0).toTensor(),
            results.at(1).toTensor(),
            results.at(2).toTensor(),
            at::Tensor(),
            at::Tensor(),
            at::Tensor(),
            at::Tensor()};
  }
};
}  // namespace

bool HasOperator(const std::string& name) {
  const auto found = c10::Dispatcher::singleton().findSchema({name, ""});
  return static_cast<bool>(found);
}

at::Tensor CallOperator(const std::string& name, const std::vector<c10::IValue>& positional,
                        const std::map<std::string, c10::IValue>& named) {
  const torch::jit::Stack results = Call(name, positional, named);
  return results.empty() ? at::Tensor() : results.at(0).toTensor();
}

bool TakesDeviceRoutes(const at::Tensor& x) { return !x.is_cpu() || device_routes_on_cpu; }

void TakeDeviceRoutesOnCpu(bool take) { device_routes_on_cpu = take; }

bool TakesDeviceRoutesOnCpu() { return device_routes_on_cpu; }

// LibTorch has CUDA's library loaded; the trainer itself is not linked with it.
int CudaCapability() {
  static const int capability = [] {
    using GetAttribute = int (*)(int* value, int attribute, int device);
    constexpr int kMajor = 75, kMinor = 76;  // cudaDevAttrComputeCapabilityMajor, …Minor
    const auto get = reinterpret_cast<GetAttribute>(dlsym(RTLD_DEFAULT, "cudaDeviceGetAttribute"));
    int major = 0, minor = 0;
    if (get == nullptr || get(&major, kMajor, 0) != 0 || get(&minor, kMinor, 0) != 0) return 0;
    return 10 * major + minor;
  }();
  return capability;
}

bool HasFusedAttention() {
  static const bool has = HasOperator(kAttention);
  return has;
}

at::Tensor FusedCausalAttention(const at::Tensor& q_bhte, const at::Tensor& k_bkse,
                                const at::Tensor& v_bkse, int64_t window,
                                const at::Tensor& starts_bt) {
  static const bool can_share = TakesArgument(kAttention, "enable_gqa");
  const int64_t group = q_bhte.size(1) / k_bkse.size(1);
  const int64_t tokens = q_bhte.size(2);
  const bool masked = starts_bt.defined() || (window > 0 && window < tokens);
  // Only flash attention shares keys in every version; the others would compute all scores at once.
  const bool shares = can_share && !masked && IsHalfWidth(q_bhte) &&
                      (CudaCapability() >= kFlashCapability || q_bhte.is_cpu());
  const auto spread = [&](const at::Tensor& x) {
    return group == 1 || shares ? x : at::repeat_interleave(x, group, 1);
  };
  std::map<std::string, c10::IValue> named;
  if (shares && group > 1) named["enable_gqa"] = true;
  if (masked) {
    at::Tensor seen = at::ones({tokens, tokens}, q_bhte.options().dtype(at::kBool)).tril();
    if (window > 0 && window < tokens) seen = seen.triu(1 - window);
    if (starts_bt.defined()) {
      const at::Tensor place_t = at::arange(tokens, starts_bt.options());
      seen = at::logical_and(seen, at::ge(place_t, starts_bt.unsqueeze(-1))).unsqueeze(1);
    }
    named["attn_mask"] = seen;
  } else {
    named["is_causal"] = true;
  }
  const DeterministicScope scope(deterministic_attention);
  return CallOperator(kAttention, {q_bhte, spread(k_bkse), spread(v_bkse)}, named);
}

bool HasFlashAttention(const at::Tensor& x, int64_t head_dim, bool windowed) {
  static const bool has = HasOperator(kFlash) && HasOperator(kFlashBackward);
  static const bool has_windows = has && TakesArgument(kFlash, "window_size_left") &&
                                  TakesArgument(kFlashBackward, "window_size_left");
  if (!has || (windowed && !has_windows) || !IsHalfWidth(x) || !TakesDeviceRoutes(x)) return false;
  if (head_dim % 8 != 0 || head_dim > kLargestHeads) return false;
  if (x.is_cpu()) return true;
  const int capability = x.is_cuda() ? CudaCapability() : 0;
  if (capability < kFlashCapability) return false;
  return head_dim <= kLargeHeads || capability == 80 || (capability >= 90 && capability < 120);
}

at::Tensor FlashAttention(const at::Tensor& q_nhe, const at::Tensor& k_nke, const at::Tensor& v_nke,
                          const DocumentBounds& documents, int64_t window, double scale) {
  // With one row the kernel would lay out its results in another way.
  const int64_t longest = std::max<int64_t>(2, documents.longest);
  return FlashFunction::apply(q_nhe, k_nke, v_nke, documents.bounds_d, longest,
                              window < documents.longest ? window : 0, scale);
}

bool HasFusedRmsNorm(const at::Tensor& x) {
  static const bool has = HasOperator(kRmsNorm) && HasOperator(kRmsNormBackward);
  return has && TakesDeviceRoutes(x) && (x.is_cuda() || x.is_cpu());
}

RmsNormed FusedRmsNorm(const at::Tensor& x_nd, const at::Tensor& weight_d, double eps) {
  const torch::jit::Stack results =
      Call(kRmsNorm, {x_nd, std::vector<int64_t>{x_nd.size(1)}, weight_d, eps}, {});
  return {results.at(0).toTensor(), results.at(1).toTensor()};
}

RmsNormGradients FusedRmsNormBackward(const at::Tensor& dy_nd, const at::Tensor& x_nd,
                                      const at::Tensor& scale_n1, const at::Tensor& weight_d) {
  const torch::jit::Stack results = Call(kRmsNormBackward,
                                         {dy_nd, x_nd, std::vector<int64_t>{x_nd.size(1)}, scale_n1,
                                          weight_d, c10::List<bool>({true, true})},
                                         {});
  return {results.at(0).toTensor(), results.at(1).toTensor()};
}

namespace {
// LibTorch from 2.2 on fills new tensors, too, in its deterministic mode.
template <typename Context>
auto LeaveNewTensorsEmpty(Context* context)
    -> decltype(context->setDeterministicFillUninitializedMemory(false)) {
  context->setDeterministicFillUninitializedMemory(false);
}
void LeaveNewTensorsEmpty(void*) {}
}  // namespace

DeterministicScope::DeterministicScope(bool on)
    : on_(on), before_(at::globalContext().deterministicAlgorithms()) {
  if (!on_) return;
  // cuBLAS keeps to one order anyway, for one stream; LibTorch refuses products without this.
  static const int set = setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  (void)set;
  LeaveNewTensorsEmpty(&at::globalContext());
  // With warnings only, attention would keep to its faster way.
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
}

DeterministicScope::~DeterministicScope() {
  if (on_) at::globalContext().setDeterministicAlgorithms(before_, /*warn_only=*/false);
}

bool IsNotDeterministic(const std::exception& error) {
  return dynamic_cast<const c10::Error*>(&error) != nullptr &&
         std::strstr(error.what(), "deterministic") != nullptr;
}

void ChooseDeterministicAttention(bool choose) { deterministic_attention = choose; }

namespace {
void MultiplyWide(const at::Tensor& a_mk, const at::Tensor& b_kn, const at::Tensor& out_mn) {
  Call("aten::mm", {a_mk, b_kn, at::kFloat}, {{"out", out_mn}}, "dtype_out");
}

void AddMultipliedWide(const at::Tensor& a_mk, const at::Tensor& b_kn, const at::Tensor& sum_mn) {
  Call("aten::addmm", {sum_mn, a_mk, b_kn, at::kFloat}, {{"out", sum_mn}}, "dtype_out");
}

using WideOperator = void (*)(const at::Tensor&, const at::Tensor&, const at::Tensor&);

// Tries an operator where x is. Some versions have one, and refuse a sum of another width.
bool Works(WideOperator multiply, const at::Tensor& x) {
  const at::Tensor ones = at::ones({16, 16}, x.options());
  const at::Tensor out = at::zeros({16, 16}, x.options().dtype(at::kFloat));
  try {
    multiply(ones, ones, out);
  } catch (const c10::Error&) {
    return false;
  }
  return out.eq(16).all().item<bool>();
}

bool MayMultiplyWide(const at::Tensor& x) {
  return IsHalfWidth(x) && TakesDeviceRoutes(x) && (x.is_cpu() || CudaCapability() > 0);
}
}  // namespace

at::Tensor WideProduct(const at::Tensor& a_mk, const at::Tensor& b_kn) {
  const auto works = [&] {
    static const bool known = Works(MultiplyWide, a_mk);
    return known;
  };
  if (!MayMultiplyWide(a_mk) || !works()) return Widen(MatMul(a_mk, b_kn));
  const at::Tensor out_mn =
      at::empty({a_mk.size(0), b_kn.size(1)}, a_mk.options().dtype(at::kFloat));
  MultiplyWide(a_mk, b_kn, out_mn);
  return out_mn;
}

void AddWideProduct(at::Tensor sum_mn, const at::Tensor& a_mk, const at::Tensor& b_kn) {
  const auto works = [&] {
    static const bool known = Works(AddMultipliedWide, a_mk);
    return known;
  };
  if (!IsHalfWidth(a_mk)) {
    MatMulInto(a_mk, b_kn, /*add=*/true, sum_mn);
  } else if (MayMultiplyWide(a_mk) && works()) {
    AddMultipliedWide(a_mk, b_kn, sum_mn);
  } else {
    sum_mn.add_(WideProduct(a_mk, b_kn));
  }
}

bool HasFusedAdamw() {
  static const bool has = HasOperator(kAdamw);
  return has;
}

void FusedAdamw(const AdamwTensors& tensors, const AdamwNumbers& numbers, const at::Tensor& clip) {
  const at::Tensor t = at::full({}, static_cast<double>(numbers.t), clip.options());
  CallOperator(kAdamw,
               {tensors.parameters, tensors.gradients, tensors.exp_avgs, tensors.exp_avg_sqs,
                std::vector<at::Tensor>(),  // no maxima of the squares
                std::vector<at::Tensor>(tensors.parameters.size(), t)},
               {{"lr", numbers.lr},
                {"beta1", numbers.beta1},
                {"beta2", numbers.beta2},
                {"weight_decay", numbers.weight_decay},
                {"eps", numbers.eps},
                {"amsgrad", false},
                {"maximize", false},
                // It divides the gradients by this.
                {"grad_scale", clip.reciprocal()}});
}

}  // namespace gpuctl::trainer
