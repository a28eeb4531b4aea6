// Matrix products: LibTorch's own, except in fp32 on an x86 CPU, where oneDNN's are asked directly.
//
// LibTorch multiplies fp32 matrices with whatever BLAS the system has. Debian's default is the
// reference BLAS (about 30 times slower than it could be), and OpenBLAS can be held to old
// instructions by $OPENBLAS_CORETYPE or by being older than the processor. oneDNN comes with
// LibTorch anyway and writes its kernels for the processor it finds.
//
// All functions are safe on any thread and use one thread. m, k, n and z name the extents.

#ifndef TRAINER_MODEL_MATMUL_H_
#define TRAINER_MODEL_MATMUL_H_

#include <ATen/core/Tensor.h>

#include <string>

namespace gpuctl::trainer {

// "auto" (oneDNN where it is to be had), "onednn" or "blas". Call before any product; not
// thread-safe. Throws Error(kBadConfig) when oneDNN is asked for and not there.
// The choice is by rule, never by timing: another choice would round differently.
void ChooseMatMul(const std::string& library);
// "onednn" or "blas".
std::string MatMulLibrary();

at::Tensor MatMul(const at::Tensor& a_mk, const at::Tensor& b_kn);
// out = a b, or out += a b.
void MatMulInto(const at::Tensor& a_mk, const at::Tensor& b_kn, bool add, at::Tensor out_mn);
at::Tensor BatchedMatMul(const at::Tensor& a_zmk, const at::Tensor& b_zkn);
// out += a b.
void BatchedMatMulAdd(const at::Tensor& a_zmk, const at::Tensor& b_zkn, at::Tensor out_zmn);

// x W^T, differentiable in both. x [N, D], weight [C, D] -> [N, C].
at::Tensor Linear(const at::Tensor& x_nd, const at::Tensor& weight_cd);

}  // namespace gpuctl::trainer

#endif  // TRAINER_MODEL_MATMUL_H_
