// Small helpers for tests with tensors.

#ifndef TRAINER_TESTS_TENSORS_H_
#define TRAINER_TESTS_TENSORS_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <vector>

#include "trainer/base/philox.h"

namespace gpuctl::trainer {

// Returns $TRAINER_TEST_DEVICE (such as cuda:0), where tests compute that are not about the CPU;
// else the CPU.
inline c10::Device TestDevice() {
  const char* const name = std::getenv("TRAINER_TEST_DEVICE");
  return name == nullptr ? c10::Device(c10::kCPU) : c10::Device(name);
}

// Returns normal numbers, the same for the same `sub`.
inline at::Tensor RandomTensor(const std::vector<int64_t>& shape, at::ScalarType type,
                               uint64_t sub) {
  at::Tensor tensor = at::empty(shape, at::kDouble);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    tensor.data_ptr<double>()[i] =
        RandomNormal(99, RandomStream::kInit, sub, static_cast<uint64_t>(i));
  }
  return tensor.to(type);
}

// Returns whole numbers in [low, high).
inline at::Tensor RandomIntegers(const std::vector<int64_t>& shape, int64_t low, int64_t high,
                                 uint64_t sub) {
  at::Tensor tensor = at::empty(shape, at::kLong);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    tensor.data_ptr<int64_t>()[i] =
        low +
        static_cast<int64_t>(Random64(98, RandomStream::kInit, sub, static_cast<uint64_t>(i)) %
                             static_cast<uint64_t>(high - low));
  }
  return tensor;
}

// Returns the same numbers as RandomTensor, on TestDevice().
inline at::Tensor RandomOnDevice(const std::vector<int64_t>& shape, at::ScalarType type,
                                 uint64_t sub) {
  return RandomTensor(shape, type, sub).to(TestDevice());
}

// Returns ||a - b|| / ||b||, in fp64.
inline double RelativeDifference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor reference = b.detach().cpu().to(at::kDouble);
  const double size = reference.norm().item<double>();
  const double difference = (a.detach().cpu().to(at::kDouble) - reference).norm().item<double>();
  return size == 0 ? difference : difference / size;
}

}  // namespace gpuctl::trainer

#endif  // TRAINER_TESTS_TENSORS_H_
