#include "trainer/linear/matmul.h"

#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <dlfcn.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/linear/widths.h"

namespace gpuctl::trainer {
namespace {

// oneDNN's C interface: row-major, C = alpha op(A) op(B) + beta C. Returns 0 on success.
using Sgemm = int (*)(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k,
                      float alpha, const float* a, int64_t lda, const float* b, int64_t ldb,
                      float beta, float* c, int64_t ldc);

// Finds oneDNN in LibTorch's CPU library, or in a library that it links; null when it is built in
// and hidden.
Sgemm FindOneDnn() {
#if defined(__x86_64__)
  return reinterpret_cast<Sgemm>(dlsym(RTLD_DEFAULT, "dnnl_sgemm"));
#else
  return nullptr;
#endif
}

Sgemm& Chosen() {
  static Sgemm chosen = FindOneDnn();
  return chosen;
}

// A matrix's layout in memory: by rows ('N') or by columns ('T').
struct Layout {
  char transpose = 0;  // 0: neither, the matrix cannot be passed as it is
  int64_t leading = 0;
};

Layout LayoutOf(const at::Tensor& matrix) {
  const int64_t rows = matrix.size(-2), columns = matrix.size(-1);
  const int64_t down = matrix.stride(-2), across = matrix.stride(-1);
  if ((across == 1 || columns == 1) && (down >= columns || rows == 1)) {
    return {'N', std::max(down, columns)};
  }
  if ((down == 1 || rows == 1) && (across >= rows || columns == 1)) {
    return {'T', std::max(across, rows)};
  }
  return {};
}

bool Passable(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out) {
  return Chosen() != nullptr && UsesCpuKernels(a) && UsesCpuKernels(b) && UsesCpuKernels(out) &&
         out.numel() > 0 && a.size(-1) > 0 && LayoutOf(a).transpose != 0 &&
         LayoutOf(b).transpose != 0 && LayoutOf(out).transpose == 'N';
}

// Computes `count` products, each one step further in every operand.
void Multiply(const at::Tensor& a, const at::Tensor& b, bool add, const at::Tensor& out,
              int64_t count) {
  const Layout la = LayoutOf(a), lb = LayoutOf(b), lo = LayoutOf(out);
  const bool batched = out.dim() == 3;
  for (int64_t z = 0; z < count; ++z) {
    const int status = Chosen()(
        la.transpose, lb.transpose, out.size(-2), out.size(-1), a.size(-1), 1.0f,
        a.data_ptr<float>() + (batched ? z * a.stride(0) : 0), la.leading,
        b.data_ptr<float>() + (batched ? z * b.stride(0) : 0), lb.leading, add ? 1.0f : 0.0f,
        out.data_ptr<float>() + (batched ? z * out.stride(0) : 0), lo.leading);
    TORCH_CHECK(status == 0, "multiply: oneDNN answered ", status);
  }
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor LinearForward(AutogradContext* context, const at::Tensor& x_nd,
                         const at::Tensor& weight_cd) {
  context->save_for_backward({weight_cd.requires_grad() ? x_nd : at::Tensor(),
                              x_nd.requires_grad() ? weight_cd : at::Tensor()});
  return MatMul(x_nd, weight_cd.t());
}

variable_list LinearBackward(AutogradContext* context, const at::Tensor& dy_nc) {
  const variable_list saved = context->get_saved_variables();
  return {saved[1].defined() ? MatMul(dy_nc, saved[1]) : at::Tensor(),
          saved[0].defined() ? MatMul(dy_nc.t(), saved[0]) : at::Tensor()};
}

// y = x W^T:  dx = dy W,  dW = dy^T x.
struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_nd,
                            const at::Tensor& weight_cd) {
    return LinearForward(context, x_nd, weight_cd);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return LinearBackward(context, gradients[0].contiguous());
  }
};

// y = x W^T + b:  db = sum over the rows of dy.
struct BiasedLinearFunction : torch::autograd::Function<BiasedLinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_nd,
                            const at::Tensor& weight_cd, const at::Tensor& bias_c) {
    context->saved_data["bias"] = bias_c.requires_grad();
    return LinearForward(context, x_nd, weight_cd).add_(bias_c);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor dy_nc = gradients[0].contiguous();
    variable_list inputs = LinearBackward(context, dy_nc);
    inputs.push_back(context->saved_data["bias"].toBool() ? dy_nc.sum({0}) : at::Tensor());
    return inputs;
  }
};

}  // namespace

void PrepareMatMul() {
  if (Chosen() == nullptr) return;
  // oneDNN compiles its code now, and does not look whether it gets the memory for that.
  at::empty({128 << 20}, at::kByte);
  for (const int64_t size : {1, 8, 96, 384}) {
    const at::Tensor square = at::ones({384, 384});
    const at::Tensor narrow = square.narrow(0, 0, size), flat = square.narrow(1, 0, size);
    for (const bool add : {false, true}) {
      at::Tensor wide_out = at::zeros({size, 384}), high_out = at::zeros({384, size});
      MatMulInto(narrow, square, add, wide_out);
      MatMulInto(narrow, square.t(), add, wide_out);
      MatMulInto(flat.t(), square, add, wide_out);
      MatMulInto(flat.t(), square.t(), add, wide_out);
      MatMulInto(square, flat, add, high_out);
      MatMulInto(square, narrow.t(), add, high_out);
      MatMulInto(square.t(), flat, add, high_out);
      MatMulInto(square.t(), narrow.t(), add, high_out);
    }
  }
}

void ChooseMatMul(const std::string& library) {
  Chosen() = library == "blas" ? nullptr : FindOneDnn();
  if (library == "onednn" && Chosen() == nullptr) {
    throw ConfigError("use train.matmul onednn: this LibTorch does not show its oneDNN");
  }
}

std::string MatMulLibrary() { return Chosen() != nullptr ? "onednn" : "blas"; }

at::Tensor MatMul(const at::Tensor& a_mk, const at::Tensor& b_kn) {
  at::Tensor out_mn = at::empty({a_mk.size(0), b_kn.size(1)}, a_mk.options());
  MatMulInto(a_mk, b_kn, /*add=*/false, out_mn);
  return out_mn;
}

void MatMulInto(const at::Tensor& a_mk, const at::Tensor& b_kn, bool add, at::Tensor out_mn) {
  if (Passable(a_mk, b_kn, out_mn)) {
    Multiply(a_mk, b_kn, add, out_mn, 1);
  } else if (add) {
    out_mn.addmm_(a_mk, b_kn);
  } else {
    at::mm_out(out_mn, a_mk, b_kn);
  }
}

at::Tensor BatchedMatMul(const at::Tensor& a_zmk, const at::Tensor& b_zkn) {
  at::Tensor out_zmn = at::empty({a_zmk.size(0), a_zmk.size(1), b_zkn.size(2)}, a_zmk.options());
  if (Passable(a_zmk, b_zkn, out_zmn)) {
    Multiply(a_zmk, b_zkn, /*add=*/false, out_zmn, out_zmn.size(0));
  } else {
    at::bmm_out(out_zmn, a_zmk, b_zkn);
  }
  return out_zmn;
}

void BatchedMatMulAdd(const at::Tensor& a_zmk, const at::Tensor& b_zkn, at::Tensor out_zmn) {
  if (Passable(a_zmk, b_zkn, out_zmn)) {
    Multiply(a_zmk, b_zkn, /*add=*/true, out_zmn, out_zmn.size(0));
  } else {
    out_zmn.baddbmm_(a_zmk, b_zkn);
  }
}

at::Tensor Linear(const at::Tensor& x_nd, const at::Tensor& weight_cd, const at::Tensor& bias_c) {
  if (bias_c.defined()) return BiasedLinearFunction::apply(x_nd, weight_cd, bias_c);
  return LinearFunction::apply(x_nd, weight_cd);
}

}  // namespace gpuctl::trainer
