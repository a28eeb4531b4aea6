#include "trainer/optimizer/moments.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "trainer/base/error.h"

namespace gpuctl::trainer {
namespace {

constexpr int64_t kSmall = 4096;                   // elements; fewer stay in fp32
constexpr int64_t kPiece = 16384 * kCodeBlock;     // elements that are fp32 at once off the CPU
constexpr int64_t kLoadPiece = 1024 * kCodeBlock;  // elements that are looked at at once
constexpr uint8_t kZeroCodes[] = {127, 0};         // of the two kinds

bool IsSmall(const ParameterSpec& spec) { return CountOf(spec) < kSmall; }

int64_t RowElements(const ParameterSpec& spec) { return CountOf(spec) / spec.shape[0]; }

int64_t BlocksOf(const ParameterSpec& spec) {
  int64_t blocks = 0;
  for (const RowSlice& slice : spec.slices) blocks += CodeBlocks(slice.rows * RowElements(spec));
  return blocks;
}

// Throws unless a moment can have these numbers, or its blocks these magnitudes.
void CheckNumbers(const at::Tensor& numbers, bool negative_too, const std::string& what) {
  const at::Tensor flat = numbers.reshape({-1});
  for (int64_t first = 0; first < flat.numel(); first += kLoadPiece) {
    const at::Tensor piece = flat.narrow(0, first, std::min(kLoadPiece, flat.numel() - first));
    if (!at::isfinite(piece).all().item<bool>()) {
      throw DataError(what + " has a value that is not finite");
    }
    if (!negative_too && piece.lt(0).any().item<bool>()) {
      throw DataError(what + " has a negative value");
    }
  }
}

const at::Tensor& Find(const std::map<std::string, at::Tensor>& stored, const std::string& name,
                       const std::string& what) {
  const auto found = stored.find(name);
  if (found == stored.end()) throw DataError("load " + what + ": " + name + " is missing");
  return found->second;
}

void CheckShape(const at::Tensor& tensor, at::IntArrayRef shape, const std::string& what) {
  if (tensor.sizes() != shape) throw DataError(what + " has another shape");
}

}  // namespace

int64_t MomentBytes(const ParameterSpec& spec, bool in_8_bits) {
  constexpr int64_t kFloatBytes = 4;
  if (!in_8_bits || IsSmall(spec)) return 2 * kFloatBytes * CountOf(spec);
  return 2 * (CountOf(spec) + kFloatBytes * BlocksOf(spec));
}

Moments::Moments(const std::vector<ParameterSpec>& specs, const std::vector<bool>& frozen,
                 bool in_8_bits, c10::Device device)
    : specs_(specs),
      kinds_{Kind{CodeKind::kMean, "exp_avg", {}, {}},
             Kind{CodeKind::kSquare, "exp_avg_sq", {}, {}}} {
  const auto on = [&](at::ScalarType type) { return at::TensorOptions(type).device(device); };
  for (size_t i = 0; i < specs.size(); ++i) {
    for (size_t k = 0; k < kinds_.size(); ++k) {
      at::Tensor numbers, largest;
      if (!frozen[i] && in_8_bits && !IsSmall(specs[i])) {
        numbers = at::full(specs[i].shape, kZeroCodes[k], on(at::kByte));
        largest = at::zeros({BlocksOf(specs[i])}, on(at::kFloat));
      } else if (!frozen[i]) {
        numbers = at::zeros(specs[i].shape, on(at::kFloat));
      }
      kinds_[k].numbers.push_back(numbers);
      kinds_[k].largest.push_back(largest);
    }
  }
}

Moments::Range Moments::RangeOf(size_t parameter, const RowSlice& slice) const {
  const ParameterSpec& spec = specs_[parameter];
  const int64_t row = RowElements(spec);
  int64_t first_block = 0;
  for (const RowSlice& before : spec.slices) {
    if (before.first_row < slice.first_row) first_block += CodeBlocks(before.rows * row);
  }
  return {slice.first_row * row, (slice.first_row + slice.rows) * row, first_block};
}

int64_t Moments::NextCut(size_t parameter, int64_t element) const {
  if (!in_8_bits(parameter)) return element;
  for (const RowSlice& slice : specs_[parameter].slices) {
    const Range range = RangeOf(parameter, slice);
    if (element > range.end) continue;
    const int64_t within = std::max<int64_t>(0, element - range.begin);
    return std::min(range.end, range.begin + CodeBlocks(within) * kCodeBlock);
  }
  return element;
}

void Moments::UpdateCpu(size_t parameter, const AdamwScalars& step, int64_t begin, int64_t end,
                        float clip, const float* gradient, float* master) const {
  const at::Tensor &means = kinds_[0].numbers[parameter], &squares = kinds_[1].numbers[parameter];
  if (!in_8_bits(parameter)) {
    return AdamwUpdateCpu(step, end - begin, clip, gradient + begin, master + begin,
                          means.data_ptr<float>() + begin, squares.data_ptr<float>() + begin);
  }
  auto *mean_codes = means.data_ptr<uint8_t>(), *square_codes = squares.data_ptr<uint8_t>();
  auto* largest_means = kinds_[0].largest[parameter].data_ptr<float>();
  auto* largest_squares = kinds_[1].largest[parameter].data_ptr<float>();
  for (const RowSlice& slice : specs_[parameter].slices) {
    const Range range = RangeOf(parameter, slice);
    for (int64_t at = std::max(begin, range.begin); at < std::min(end, range.end);
         at += kCodeBlock) {
      const int64_t count = std::min(kCodeBlock, range.end - at);
      const int64_t block = range.first_block + (at - range.begin) / kCodeBlock;
      float mean[kCodeBlock], square[kCodeBlock];
      DecodeBlock(CodeKind::kMean, count, mean_codes + at, largest_means[block], mean);
      DecodeBlock(CodeKind::kSquare, count, square_codes + at, largest_squares[block], square);
      AdamwUpdateCpu(step, count, clip, gradient + at, master + at, mean, square);
      EncodeBlock(CodeKind::kMean, count, mean, mean_codes + at, largest_means + block);
      EncodeBlock(CodeKind::kSquare, count, square, square_codes + at, largest_squares + block);
    }
  }
}

void Moments::Update(size_t parameter, const AdamwStep& step, const at::Tensor& master,
                     const at::Tensor& gradient, const at::Tensor& clip) const {
  if (!in_8_bits(parameter)) {
    return AdamwUpdate(step, master, gradient, exp_avg(parameter), exp_avg_sq(parameter), clip);
  }
  const at::Tensor masters = master.view({-1}), gradients = gradient.reshape({-1});
  std::array<at::Tensor, 2> numbers;
  for (at::Tensor& pieces : numbers) {
    pieces = at::empty({std::min(kPiece, masters.numel())}, masters.options());
  }
  for (const RowSlice& slice : specs_[parameter].slices) {
    const Range range = RangeOf(parameter, slice);
    for (int64_t at = range.begin; at < range.end; at += kPiece) {
      const int64_t count = std::min(kPiece, range.end - at);
      const int64_t block = range.first_block + (at - range.begin) / kCodeBlock;
      const auto each = [&](const auto& convert) {
        for (size_t k = 0; k < kinds_.size(); ++k) {
          convert(kinds_[k].code, kinds_[k].numbers[parameter].view({-1}).narrow(0, at, count),
                  kinds_[k].largest[parameter].narrow(0, block, CodeBlocks(count)),
                  numbers[k].narrow(0, 0, count));
        }
      };
      each([](CodeKind kind, const at::Tensor& codes, const at::Tensor& largest,
              const at::Tensor& wide) { Decode(kind, codes, largest, wide); });
      AdamwUpdate(step, masters.narrow(0, at, count), gradients.narrow(0, at, count),
                  numbers[0].narrow(0, 0, count), numbers[1].narrow(0, 0, count), clip);
      each([](CodeKind kind, const at::Tensor& codes, const at::Tensor& largest,
              const at::Tensor& wide) { Encode(kind, wide, codes, largest); });
    }
  }
}

void Moments::AppendTo(NamedTensors* named) const {
  for (const Kind& kind : kinds_) {
    AppendSlices(specs_, kind.numbers, kind.name + ".", named);
    for (size_t i = 0; i < specs_.size(); ++i) {
      if (!kind.largest[i].defined()) continue;
      for (const RowSlice& slice : specs_[i].slices) {
        const Range range = RangeOf(i, slice);
        named->emplace_back(
            kind.name + "_absmax." + slice.name,
            kind.largest[i].narrow(0, range.first_block, CodeBlocks(range.end - range.begin)));
      }
    }
  }
}

void Moments::Load(const std::map<std::string, at::Tensor>& stored, const std::string& what) const {
  const at::NoGradGuard no_grad;
  for (const Kind& kind : kinds_) {
    for (size_t i = 0; i < specs_.size(); ++i) {
      if (!kind.numbers[i].defined()) continue;
      for (const RowSlice& slice : specs_[i].slices) LoadSlice(kind, i, slice, stored, what);
    }
  }
}

void Moments::LoadSlice(const Kind& kind, size_t parameter, const RowSlice& slice,
                        const std::map<std::string, at::Tensor>& stored,
                        const std::string& what) const {
  const Range range = RangeOf(parameter, slice);
  const int64_t count = range.end - range.begin;
  const at::Tensor target = kind.numbers[parameter].narrow(0, slice.first_row, slice.rows);
  const std::string name = kind.name + "." + slice.name;
  const at::Tensor& found = Find(stored, name, what);
  CheckShape(found, target.sizes(), "load " + what + ": " + name);
  const bool coded = found.scalar_type() == at::kByte;
  at::Tensor largest;
  if (coded) {
    const std::string blocks = kind.name + "_absmax." + slice.name;
    largest = Find(stored, blocks, what);
    CheckShape(largest, {CodeBlocks(count)}, "load " + what + ": " + blocks);
    CheckNumbers(largest, /*negative_too=*/false, "load " + what + ": " + blocks);
    largest = largest.to(target.device(), at::kFloat);
  } else if (!found.is_floating_point()) {
    throw DataError("load " + what + ": " + name + " has another dtype");
  } else {
    CheckNumbers(found, kind.code == CodeKind::kMean, "load " + what + ": " + name);
  }
  if (coded != in_8_bits(parameter)) {
    // The other form.
    const at::Tensor flat = target.view({-1});
    if (coded) return Decode(kind.code, found.to(target.device()).view({-1}), largest, flat);
    return Encode(kind.code, found.to(target.device(), at::kFloat).view({-1}), flat,
                  kind.largest[parameter].narrow(0, range.first_block, CodeBlocks(count)));
  }
  target.copy_(found);
  if (coded) {
    kind.largest[parameter].narrow(0, range.first_block, CodeBlocks(count)).copy_(largest);
  }
}

}  // namespace gpuctl::trainer
