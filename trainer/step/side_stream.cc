#include "trainer/step/side_stream.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace gpuctl::trainer {
namespace {

c10::impl::VirtualGuardImpl GuardOf(const c10::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type());
}

}  // namespace

SideStream::SideStream(const c10::Device& device)
    : device_(device),
      stream_(GuardOf(device).getStreamFromGlobalPool(device, /*isHighPriority=*/false)),
      before_(device.type()),
      after_(device.type()) {}

c10::Stream SideStream::InUse() const { return GuardOf(device_).getStream(device_); }

void SideStream::Run(const std::function<void()>& enqueue) {
  before_.record(InUse());
  const c10::StreamGuard guard(stream_);
  before_.block(stream_);
  enqueue();
  after_.record(stream_);
}

void SideStream::HoldBackUntilDone() const { after_.block(InUse()); }

void SideStream::Wait() const { GuardOf(device_).synchronizeStream(stream_); }

}  // namespace gpuctl::trainer
