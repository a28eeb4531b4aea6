#include "trainer/model/finite.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>

#include <algorithm>

#include "trainer/base/error.h"

namespace gpuctl::trainer {
namespace {

constexpr int64_t kPieceElements = 1 << 20;

bool IsFinite(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.reshape({-1});
  for (int64_t first = 0; first < flat.numel(); first += kPieceElements) {
    const int64_t count = std::min(kPieceElements, flat.numel() - first);
    if (!at::isfinite(flat.narrow(0, first, count)).all().item<bool>()) return false;
  }
  return true;
}

}  // namespace

std::string NameOfNotFinite(const ParameterSpec& spec, const at::Tensor& flat) {
  const at::NoGradGuard no_grad;
  if (!flat.defined() || !flat.is_floating_point()) return "";
  const bool in_strips = flat.dim() < static_cast<int64_t>(spec.shape.size());
  if (in_strips) return IsFinite(flat) ? "" : spec.slices[0].name;
  for (const RowSlice& slice : spec.slices) {
    if (!IsFinite(flat.narrow(0, slice.first_row, slice.rows))) return slice.name;
  }
  return "";
}

void CheckFinite(const ParameterSpec& spec, const at::Tensor& flat, const std::string& doing) {
  const std::string name = NameOfNotFinite(spec, flat);
  if (name.empty()) return;
  throw DataError(doing + ": " + name + " has a value that is not finite",
                  "the file may be damaged, or a run that went wrong may have written it");
}

}  // namespace gpuctl::trainer
