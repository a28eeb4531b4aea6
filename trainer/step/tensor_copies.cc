#include "trainer/step/tensor_copies.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "trainer/cpu/copy.h"

namespace gpuctl::trainer {
namespace {

bool IsAlike(const std::pair<std::string, at::Tensor>& a,
             const std::pair<std::string, at::Tensor>& b) {
  return a.first == b.first && a.second.sizes() == b.second.sizes() &&
         a.second.scalar_type() == b.second.scalar_type();
}

// Returns pinned memory, or, where the system gives no more of it, other memory.
at::Tensor PinnedLike(const at::Tensor& tensor) {
  const at::TensorOptions options(tensor.scalar_type());
  try {
    return at::empty(tensor.sizes(), options.pinned_memory(true));
  } catch (const c10::Error&) {
    return at::empty(tensor.sizes(), options);
  }
}

NamedTensors RoomFor(const NamedTensors& live, NamedTensors kept, bool pinned) {
  const bool fits =
      live.size() == kept.size() && std::equal(live.begin(), live.end(), kept.begin(), IsAlike);
  if (fits) return kept;
  kept.clear();
  for (const auto& [name, tensor] : live) {
    kept.emplace_back(name,
                      pinned ? PinnedLike(tensor)
                             : at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type())));
  }
  return kept;
}

bool IsPlainMemory(const at::Tensor& tensor) { return tensor.is_cpu() && tensor.is_contiguous(); }

}  // namespace

NamedTensors CopyTensors(Team& team, const NamedTensors& live, NamedTensors kept,
                         SideStream* side) {
  NamedTensors copies = RoomFor(live, std::move(kept), side != nullptr);
  const at::NoGradGuard no_grad;
  const auto copy_others = [&] {
    for (size_t i = 0; i < live.size(); ++i) {
      if (IsPlainMemory(live[i].second)) continue;
      copies[i].second.copy_(live[i].second, /*non_blocking=*/side != nullptr);
    }
  };
  side != nullptr ? side->Run(copy_others) : copy_others();
  team.Run([&](int member) {
    for (size_t i = 0; i < live.size(); ++i) {
      if (!IsPlainMemory(live[i].second)) continue;
      const size_t bytes = live[i].second.nbytes();
      const auto part = [&](int of) {
        return bytes * static_cast<size_t>(of) / static_cast<size_t>(team.size());
      };
      const size_t begin = part(member), end = part(member + 1);
      cpu::CopyPastCaches(static_cast<char*>(copies[i].second.data_ptr()) + begin,
                          static_cast<const char*>(live[i].second.data_ptr()) + begin, end - begin);
    }
  });
  return copies;
}

}  // namespace gpuctl::trainer
