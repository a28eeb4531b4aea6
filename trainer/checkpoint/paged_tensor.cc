#include "trainer/checkpoint/paged_tensor.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <sys/mman.h>

namespace gpuctl::trainer {

at::Tensor PagedZeros(at::IntArrayRef shape, const at::TensorOptions& options) {
  constexpr int64_t kLarge = 1 << 20;  // of smaller ones too much of the last page is lost
  auto bytes = static_cast<int64_t>(options.dtype().itemsize());
  for (const int64_t extent : shape) bytes *= extent;
  if (!options.device().is_cpu() || bytes < kLarge) return at::zeros(shape, options);
  const auto size = static_cast<size_t>(bytes);
  void* const pages =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  // That frees what the heap can, and has words for what is missing.
  if (pages == MAP_FAILED) return at::zeros(shape, options);
  return at::from_blob(
      pages, shape, [size](void* data) { ::munmap(data, size); }, options);
}

}  // namespace gpuctl::trainer
