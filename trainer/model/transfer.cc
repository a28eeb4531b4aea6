#include "trainer/model/transfer.h"

#include <atomic>

#include "trainer/model/dispatch.h"

namespace gpuctl::trainer {
namespace {

std::atomic<int64_t> host_reads{0};

}  // namespace

at::Tensor ToDevice(const at::Tensor& host, const at::Device& device) {
  if (!host.defined() || !host.is_cpu()) return host;
  if (!device.is_cuda() && !(device.is_cpu() && TakesDeviceRoutes(host))) return host.to(device);
  // LibTorch gives the pinned memory to nobody else until the copy is done.
  return host.contiguous().pin_memory().to(device, host.scalar_type(), /*non_blocking=*/true);
}

at::Tensor ToHost(const at::Tensor& there) {
  ++host_reads;
  return there.to(at::kCPU);
}

int64_t HostReads() { return host_reads; }

}  // namespace gpuctl::trainer
