#include "trainer/optimizer/moments.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/checkpoint/paged_tensor.h"

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
                 bool in_8_bits, c10::Device device, std::vector<ElementRange> held)
    : specs_(specs),
      held_(std::move(held)),
      kinds_{Kind{CodeKind::kMean, "exp_avg", {}, {}},
             Kind{CodeKind::kSquare, "exp_avg_sq", {}, {}}} {
  const auto on = [&](at::ScalarType type) { return at::TensorOptions(type).device(device); };
  if (held_.empty()) {
    for (const ParameterSpec& spec : specs) held_.push_back({0, CountOf(spec)});
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    const std::vector<int64_t> shape =
        whole(i) ? specs[i].shape : std::vector<int64_t>{held_[i].end - held_[i].begin};
    for (size_t k = 0; k < kinds_.size(); ++k) {
      at::Tensor numbers, largest;
      if (!frozen[i] && in_8_bits && !IsSmall(specs[i])) {
        numbers = at::full(shape, kZeroCodes[k], on(at::kByte));
        // Few, so that all are here.
        largest = at::zeros({BlocksOf(specs[i])}, on(at::kFloat));
      } else if (!frozen[i]) {
        numbers = PagedZeros(shape, on(at::kFloat));
      }
      kinds_[k].numbers.push_back(numbers);
      kinds_[k].largest.push_back(largest);
    }
  }
}

bool Moments::whole(size_t parameter) const {
  const ElementRange& held = held_[parameter];
  return held.begin == 0 && held.end == CountOf(specs_[parameter]);
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

// Returns the block that begins at a cut, or the number of all blocks behind the last element.
int64_t Moments::BlockAt(size_t parameter, int64_t element) const {
  for (const RowSlice& slice : specs_[parameter].slices) {
    const Range range = RangeOf(parameter, slice);
    if (element < range.begin || element >= range.end) continue;
    return range.first_block + (element - range.begin) / kCodeBlock;
  }
  return BlocksOf(specs_[parameter]);
}

int64_t NextMomentCut(const ParameterSpec& spec, bool in_8_bits, int64_t element) {
  if (!in_8_bits || IsSmall(spec)) return element;
  const int64_t row = RowElements(spec);
  for (const RowSlice& slice : spec.slices) {
    const int64_t begin = slice.first_row * row, end = begin + slice.rows * row;
    if (element > end) continue;
    return std::min(end, begin + CodeBlocks(std::max<int64_t>(0, element - begin)) * kCodeBlock);
  }
  return element;
}

int64_t Moments::NextCut(size_t parameter, int64_t element) const {
  return NextMomentCut(specs_[parameter], in_8_bits(parameter), element);
}

std::vector<at::Tensor> Moments::Pieces(size_t parameter, int64_t begin, int64_t end) const {
  std::vector<at::Tensor> pieces;
  for (const Kind& kind : kinds_) {
    pieces.push_back(
        kind.numbers[parameter].view({-1}).narrow(0, begin - held_[parameter].begin, end - begin));
  }
  if (!in_8_bits(parameter)) return pieces;
  const int64_t first = BlockAt(parameter, begin), last = BlockAt(parameter, end);
  for (const Kind& kind : kinds_) {
    pieces.push_back(kind.largest[parameter].narrow(0, first, last - first));
  }
  return pieces;
}

void Moments::UpdateCpu(size_t parameter, const AdamwScalars& step, int64_t begin, int64_t end,
                        float clip, const float* gradient, float* master) const {
  const at::Tensor &means = kinds_[0].numbers[parameter], &squares = kinds_[1].numbers[parameter];
  if (!in_8_bits(parameter)) {
    const int64_t at = begin - held_[parameter].begin;
    return AdamwUpdateCpu(step, end - begin, clip, gradient + begin, master + begin,
                          means.data_ptr<float>() + at, squares.data_ptr<float>() + at);
  }
  auto *mean_codes = means.data_ptr<uint8_t>(), *square_codes = squares.data_ptr<uint8_t>();
  const int64_t first = held_[parameter].begin;
  auto* largest_means = kinds_[0].largest[parameter].data_ptr<float>();
  auto* largest_squares = kinds_[1].largest[parameter].data_ptr<float>();
  for (const RowSlice& slice : specs_[parameter].slices) {
    const Range range = RangeOf(parameter, slice);
    for (int64_t at = std::max(begin, range.begin); at < std::min(end, range.end);
         at += kCodeBlock) {
      const int64_t count = std::min(kCodeBlock, range.end - at);
      const int64_t block = range.first_block + (at - range.begin) / kCodeBlock;
      float mean[kCodeBlock], square[kCodeBlock];
      DecodeBlock(CodeKind::kMean, count, mean_codes + at - first, largest_means[block], mean);
      DecodeBlock(CodeKind::kSquare, count, square_codes + at - first, largest_squares[block],
                  square);
      AdamwUpdateCpu(step, count, clip, gradient + at, master + at, mean, square);
      EncodeBlock(CodeKind::kMean, count, mean, mean_codes + at - first, largest_means + block);
      EncodeBlock(CodeKind::kSquare, count, square, square_codes + at - first,
                  largest_squares + block);
    }
  }
}

void Moments::Update(size_t parameter, const AdamwStep& step, const at::Tensor& master,
                     const at::Tensor& gradient, const at::Tensor& clip) const {
  const ElementRange& part = held_[parameter];
  if (part.begin == part.end) return;
  if (!in_8_bits(parameter) && whole(parameter)) {
    return AdamwUpdate(step, master, gradient, exp_avg(parameter), exp_avg_sq(parameter), clip);
  }
  if (!in_8_bits(parameter)) {
    const auto of_part = [&](const at::Tensor& all) {
      return all.view({-1}).narrow(0, part.begin, part.end - part.begin);
    };
    return AdamwUpdate(step, of_part(master), of_part(gradient), exp_avg(parameter),
                       exp_avg_sq(parameter), clip);
  }
  const at::Tensor masters = master.view({-1}), gradients = gradient.reshape({-1});
  std::array<at::Tensor, 2> numbers;
  for (at::Tensor& pieces : numbers) {
    pieces = at::empty({std::min(kPiece, masters.numel())}, masters.options());
  }
  for (const RowSlice& slice : specs_[parameter].slices) {
    const Range range = RangeOf(parameter, slice);
    const int64_t end = std::min(range.end, part.end);
    for (int64_t at = std::max(range.begin, part.begin); at < end; at += kPiece) {
      const int64_t count = std::min(kPiece, end - at);
      const int64_t block = range.first_block + (at - range.begin) / kCodeBlock;
      const auto each = [&](const auto& convert) {
        for (size_t k = 0; k < kinds_.size(); ++k) {
          convert(kinds_[k].code,
                  kinds_[k].numbers[parameter].view({-1}).narrow(0, at - part.begin, count),
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

void Moments::Load(std::map<std::string, at::Tensor> stored, const std::string& what) const {
  const at::NoGradGuard no_grad;
  for (const Kind& kind : kinds_) {
    for (size_t i = 0; i < specs_.size(); ++i) {
      if (!kind.numbers[i].defined()) continue;
      for (const RowSlice& slice : specs_[i].slices) {
        LoadSlice(kind, i, slice, stored, what);
        stored.erase(kind.name + "." + slice.name);
      }
    }
  }
}

void Moments::LoadSlice(const Kind& kind, size_t parameter, const RowSlice& slice,
                        const std::map<std::string, at::Tensor>& stored,
                        const std::string& what) const {
  const Range range = RangeOf(parameter, slice);
  const int64_t count = range.end - range.begin;
  const std::string name = kind.name + "." + slice.name;
  const at::Tensor& found = Find(stored, name, what);
  std::vector<int64_t> shape = specs_[parameter].shape;
  shape[0] = slice.rows;
  CheckShape(found, shape, "load " + what + ": " + name);
  const bool coded = found.scalar_type() == at::kByte;
  at::Tensor largest;
  if (coded) {
    const std::string blocks = kind.name + "_absmax." + slice.name;
    largest = Find(stored, blocks, what);
    CheckShape(largest, {CodeBlocks(count)}, "load " + what + ": " + blocks);
    CheckNumbers(largest, /*negative_too=*/false, "load " + what + ": " + blocks);
    largest = largest.to(kind.numbers[parameter].device(), at::kFloat);
  } else if (!found.is_floating_point()) {
    throw DataError("load " + what + ": " + name + " has another dtype");
  } else {
    CheckNumbers(found, kind.code == CodeKind::kMean, "load " + what + ": " + name);
  }
  // The part of the slice that is held.
  const int64_t begin = std::max(range.begin, held_[parameter].begin);
  const int64_t held = std::min(range.end, held_[parameter].end) - begin;
  if (held <= 0) return;
  const int64_t block = (begin - range.begin) / kCodeBlock;
  const at::Tensor target =
      kind.numbers[parameter].view({-1}).narrow(0, begin - held_[parameter].begin, held);
  const at::Tensor source = found.contiguous().view({-1}).narrow(0, begin - range.begin, held);
  if (coded) largest = largest.narrow(0, block, CodeBlocks(held));
  const auto largest_here = [&] {
    return kind.largest[parameter].narrow(0, range.first_block + block, CodeBlocks(held));
  };
  if (coded != in_8_bits(parameter)) {
    // The other form.
    if (coded) return Decode(kind.code, source.to(target.device()), largest, target);
    return Encode(kind.code, source.to(target.device(), at::kFloat), target, largest_here());
  }
  target.copy_(source);
  if (coded) largest_here().copy_(largest);
}

}  // namespace gpuctl::trainer
