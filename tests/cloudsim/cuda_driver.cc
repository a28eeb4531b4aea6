// Replaces libcuda.so.1 on a simulated machine: has as many devices as were rented, no memory
// behind them, and returns the error that the simulator was told to show. Only the functions that
// gpuctl-cuda-check calls. GPUCTL_SIM_CUDA_PEER is the result of each copy from the last device to
// the first; -1: the copy brings other bytes.
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

int Number(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

int Result() { return Number("GPUCTL_SIM_CUDA_ERROR"); }

// What an allocation is filled with; all of its bytes are the same. Its number is its address.
std::vector<unsigned char>& Fills() {
  static std::vector<unsigned char> fills = {0};
  return fills;
}

// Contexts are the addresses of these.
int contexts[1024];
int DeviceOf(const void* context) {
  return static_cast<int>(static_cast<const int*>(context) - contexts);
}

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
int cuCtxCreate_v2(void** context, unsigned, int device) {
  *context = &contexts[device];
  return 0;
}
int cuCtxSetCurrent(void*) { return 0; }
// Neighbours reach each other, as on a machine with two sockets.
int cuDeviceCanAccessPeer(int* can, int device, int other) {
  *can = device / 2 == other / 2 ? 1 : 0;
  return 0;
}
int cuCtxEnablePeerAccess(void*, unsigned) { return 0; }
int cuCtxDestroy_v2(void*) { return 0; }
int cuMemAlloc_v2(unsigned long long* pointer, size_t) {
  *pointer = Fills().size();
  Fills().push_back(0);
  return 0;
}
int cuMemsetD8_v2(unsigned long long pointer, unsigned char value, size_t) {
  Fills().at(pointer) = value;
  return 0;
}
int cuMemcpyPeer(unsigned long long to, void* to_context, unsigned long long from,
                 void* from_context, size_t) {
  const bool broken =
      DeviceOf(to_context) == 0 && DeviceOf(from_context) == Number("GPUCTL_SIM_CUDA_DEVICES") - 1;
  const int result = broken ? Number("GPUCTL_SIM_CUDA_PEER") : 0;
  Fills().at(to) = result == 0 ? Fills().at(from) : 0xee;
  return result > 0 ? result : 0;
}
int cuMemcpyDtoH_v2(void* to, unsigned long long from, size_t bytes) {
  std::memset(to, Fills().at(from), bytes);
  return 0;
}
int cuMemFree_v2(unsigned long long) { return 0; }
int cuCtxSynchronize() { return 0; }
}
