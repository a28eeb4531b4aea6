// Matrix products: LibTorch's own, except in fp32 on an x86 CPU, where oneDNN or the trainer's own
// product (cpu/sgemm.h) is called directly.
//
// LibTorch multiplies fp32 matrices with whatever BLAS the system has. Debian's default is the
// reference BLAS (about 30 times slower than possible). oneDNN comes with LibTorch anyway and
// generates its kernels for the processor; those for AVX2 are slower than the trainer's.
//
// All functions are safe on any thread. A large product of fp32 on the CPU is made in pieces, which
// the threads of a worker share (threads.h). Any number of threads gives the same bits. m, k, n and
// z name the extents.

#ifndef TRAINER_LINEAR_MATMUL_H_
#define TRAINER_LINEAR_MATMUL_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace gpuctl::trainer {

// Chooses "onednn", "avx2" (the trainer's own), "blas" (what LibTorch does), or "auto": the own one
// on a processor with AVX2 and without AVX-512, else oneDNN if available. Call it before any
// product; not thread-safe. Throws Error(kBadConfig) for one that is not available. The choice
// follows a rule, never timing, because another choice would round differently.
void ChooseMatMul(const std::string& library);
// Has oneDNN make the code of its kernels, with products of all layouts. It makes each at its first
// use, and (2.7, for one) crashes where no memory is left for it; so this comes before a run takes
// memory. Takes milliseconds.
void PrepareMatMul();
// Returns "onednn", "avx2" or "blas".
std::string MatMulLibrary();
// Returns OpenBLAS's name for the kernels in use ("Haswell", "SkylakeX", …; $OPENBLAS_CORETYPE
// overrides its choice), or "" when another BLAS is loaded.
std::string BlasKernels();

at::Tensor MatMul(const at::Tensor& a_mk, const at::Tensor& b_kn);
// Computes out = a b, or out += a b.
void MatMulInto(const at::Tensor& a_mk, const at::Tensor& b_kn, bool add, at::Tensor out_mn);
// Computes out = a b on this thread alone, in one piece: for products that are pieces themselves.
void MatMulAlone(const at::Tensor& a_mk, const at::Tensor& b_kn, at::Tensor out_mn);
at::Tensor BatchedMatMul(const at::Tensor& a_zmk, const at::Tensor& b_zkn);
// Computes out += a b.
void BatchedMatMulAdd(const at::Tensor& a_zmk, const at::Tensor& b_zkn, at::Tensor out_zmn);

// Returns where the gradients of a leaf of fp32 on the CPU are summed, if it has a gradient
// already; else an undefined tensor. The backward passes of large weights add to it themselves: a
// gradient that autograd adds would have to exist beside the sum. No torch::autograd::grad() over
// such leaves.
at::Tensor GradientSum(const at::Tensor& weight);

// Returns x W^T [N, C], plus a bias [C] if that is defined; differentiable in x [N, D], weight [C,
// D] and bias. A weight without requires_grad costs no product in the backward pass, and x is not
// kept for it; the same holds for x. In `halves` the result is [2, N, C / 2]: the columns of the
// first half of W's rows, then those of the second, each dense, as a GPU reads them faster.
at::Tensor Linear(const at::Tensor& x_nd, const at::Tensor& weight_cd,
                  const at::Tensor& bias_c = at::Tensor(), bool halves = false);

// Returns room for such a result.
at::Tensor RoomForLinear(const at::Tensor& x_nd, int64_t columns, bool halves);
// Returns a vector [C] in a shape that is added to such a result, or multiplied with it.
at::Tensor AlongColumns(const at::Tensor& vector_c, const at::Tensor& y);
// Returns the first row of W of each dense part of such a result, and the part [N, rows].
struct ColumnPart {
  int64_t first;
  at::Tensor y_nc;
};
std::vector<ColumnPart> ColumnParts(const at::Tensor& y);

}  // namespace gpuctl::trainer

#endif  // TRAINER_LINEAR_MATMUL_H_
