// Replaces libcuda.so.1 on a simulated machine: has as many devices as were rented, no memory
// behind them, and returns the error that the simulator was told to show. Only the functions that
// gpuctl-cuda-check calls.
#include <unistd.h>

#include <cstddef>
#include <cstdlib>

namespace {

int Number(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

int Result() { return Number("GPUCTL_SIM_CUDA_ERROR"); }

}  // namespace

extern "C" {
int cuInit(unsigned) {
  // A device that hangs blocks each program that opens it.
  while (Result() < 0) pause();
  return Result();
}
int cuDeviceGetCount(int* count) {
  *count = Number("GPUCTL_SIM_CUDA_DEVICES");
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}
int cuCtxCreate_v2(void** context, unsigned, int) {
  static int one;
  *context = &one;
  return 0;
}
int cuCtxDestroy_v2(void*) { return 0; }
int cuMemAlloc_v2(unsigned long long* pointer, size_t) {
  *pointer = 1;
  return 0;
}
int cuMemsetD8_v2(unsigned long long, unsigned char, size_t) { return 0; }
int cuMemFree_v2(unsigned long long) { return 0; }
int cuCtxSynchronize() { return 0; }
}
