// The parts of Stepper for a process that is one of several.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <string>

#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/model/dispatch.h"
#include "trainer/model/transfer.h"
#include "trainer/step/out_of_memory.h"
#include "trainer/step/stepper.h"

namespace gpuctl::trainer {
namespace {

// Elements that go from one rank to all at once.
constexpr int64_t kSentElements = (25 << 20) / 4;

// Called when autograd has added to a leaf's gradient, or would have.
struct ReadyHook : torch::autograd::FunctionPostHook {
  explicit ReadyHook(std::function<void()> function) : ready(std::move(function)) {}
  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& outputs,
      const torch::autograd::variable_list& /*inputs*/) override {
    ready();
    return outputs;
  }
  const std::function<void()> ready;
};

// Returns the sum of a tensor's bits, read as whole numbers: the same one on every device, and in
// any order, because one process may have a matrix in strips that another has dense.
int64_t SumOfBits(const at::Tensor& tensor) {
  const int64_t size = tensor.element_size();
  const at::ScalarType whole = size == 4 ? at::kInt : size == 2 ? at::kShort : at::kByte;
  return ToHost(tensor.contiguous().view({-1}).view(whole).sum(at::kLong)).item<int64_t>();
}

}  // namespace

// Returns the rows [begin, end) of a training batch that this process runs.
std::pair<int64_t, int64_t> Stepper::OwnRows(const Batch& batch) const {
  const int64_t rows = batch.inputs_bt.size(0);
  if (group_ == nullptr) return {0, rows};
  const int64_t each = batch.reference.empty() ? 1 : 2;
  const std::vector<int64_t> shares =
      shares_.empty() ? EqualRows(rows / each, group_->size()) : shares_;
  const auto own = shares.begin() + group_->rank();
  const int64_t begin = std::accumulate(shares.begin(), own, int64_t{0}) * each;
  return {begin, begin + *own * each};
}

// A leaf's gradient is complete when all that adds to it has run, also where functions add to it
// themselves: autograd then still comes to the node of the leaf, once in a backward pass.
void Stepper::WatchGradients(int number) {
  Worker& worker = workers_[static_cast<size_t>(number)];
  for (const size_t i : trained_) {
    auto node = torch::autograd::impl::grad_accumulator(worker.leaves[i]);
    node->add_post_hook(
        std::make_unique<ReadyHook>([this, number, i] { GradientReady(number, i); }));
    worker.accumulators.push_back(node);
  }
}

void Stepper::GradientReady(int number, size_t parameter) {
  Worker& worker = workers_[static_cast<size_t>(number)];
  if (!worker.in_last) return;
  if (wide() && worker.leaves[parameter].grad().defined()) {
    const at::NoGradGuard no_grad;
    worker.wide_gradients[parameter].add_(worker.leaves[parameter].grad());
    worker.leaves[parameter].mutable_grad().reset();
  }
  buckets_->Ready(number, parameter);
}

// In the workers' order, as ReduceShard adds in one process.
void Stepper::MergeWorkers(size_t parameter) {
  for (size_t other = 1; other < workers_.size(); ++other) {
    const at::Tensor from = Gradient(workers_[other], parameter);
    const at::Tensor& into = buckets_->Place(parameter);
    if (wide() || !placement_.device.is_cpu()) {
      into.add_(from);
    } else {
      AddInto(into.numel(), from.data_ptr<float>(), into.data_ptr<float>());
    }
  }
}

// Where one rank was stopped, or had no memory, all do as if they were.
GradientResult Stepper::TryTogether(const Batch& batch, const std::function<bool()>& stop) {
  ChooseDeterministicAttention(deterministic_);
  const auto start = std::chrono::steady_clock::now();
  buckets_->Begin();
  std::exception_ptr failure;
  bool no_memory = false, not_deterministic = false;
  try {
    team_.RunWorkers([&](int worker) { RunWorker(worker, batch, stop); });
  } catch (const std::exception& error) {
    no_memory = IsOutOfMemory(error);
    not_deterministic = !no_memory && deterministic_ && IsNotDeterministic(error);
    if (!no_memory && !not_deterministic) throw;
    failure = std::current_exception();
  }
  bool stopped = false;
  double loss = 0;
  PairSums pairs;
  for (const Worker& worker : workers_) {
    stopped |= worker.stopped;
    if (!worker.stopped && !failure) loss += static_cast<double>(ToHost(worker.loss).item<float>());
    pairs.Add(worker.pairs);
  }
  work_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  buckets_->Finish();
  const std::vector<std::vector<double>> all = group_->Share(
      {stopped ? 1.0 : 0.0, no_memory ? 1.0 : 0.0, not_deterministic ? 1.0 : 0.0, loss, pairs.loss,
       pairs.right, pairs.margin, static_cast<double>(pairs.pairs)});
  const auto sum = [&](size_t of) {
    double total = 0;
    for (const std::vector<double>& of_rank : all) total += of_rank[of];
    return total;
  };
  if (sum(2) > 0) deterministic_ = false;
  if (sum(1) > 0 && micro_batch_ == 1) {
    if (no_memory) std::rethrow_exception(failure);
    throw Error(ExitCode::kTryAgain, "another process has too little memory for one window");
  }
  if (sum(1) > 0) micro_batch_ = (micro_batch_ + 1) / 2;
  if (sum(0) + sum(1) + sum(2) > 0) return {};
  GradientResult result = NormTogether(sum(3) / scale());
  result.pairs = {sum(4), sum(5), sum(6), static_cast<int64_t>(sum(7))};
  return result;
}

// All ranks have the same gradients and compute their norm; rank 0's counts, should machines
// differ.
GradientResult Stepper::NormTogether(double loss) {
  const at::NoGradGuard no_grad;
  GradientResult result{true, loss, 0, false, {}};
  if (!placement_.device.is_cpu() || wide()) {
    norm_on_device_ = NormOnDevice();
    group_->collectives().Broadcast(norm_on_device_, 0);
    result.norm = static_cast<double>(ToHost(norm_on_device_).item<float>()) / scale();
    NoteOverflow(&result);
    return result;
  }
  std::vector<std::vector<double>> squares(shards_.size());
  team_.Run([&](int member) { squares[static_cast<size_t>(member)] = ReduceShard(member); });
  double norm = 0;
  for (const std::vector<double>& of_member : squares) {
    for (const double square : of_member) norm += square;
  }
  norm_ = result.norm = group_->Share({std::sqrt(norm)})[0][0];
  return result;
}

// Weights that stay are not sent: each process has read them from a folder of its own.
void Stepper::CheckSameFrozen() {
  const at::NoGradGuard no_grad;
  std::vector<std::string> names, sums;
  std::string text;
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (!frozen_[i] || compute_[i].numel() == 0) continue;
    names.push_back(specs_[i].slices[0].name);
    sums.push_back(std::to_string(SumOfBits(compute_[i])));
    text += sums.back() + "\n";
  }
  group_->CheckSame(text, [&](const std::string& first) {
    size_t at = 0;
    for (size_t i = 0;
         i < sums.size() && first.compare(at, sums[i].size() + 1, sums[i] + "\n") == 0; ++i) {
      at += sums[i].size() + 1;
    }
    const auto same = static_cast<size_t>(
        std::count(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    return "other weights in model.init" + (same < names.size() ? ", first in " + names[same] : "");
  });
}

// Each rank gives its elements of the weights to all others, many at once.
void Stepper::SendFromOwners(const std::vector<std::vector<ElementRange>>& owners) {
  const at::NoGradGuard no_grad;
  for (size_t owner = 0; owner < owners.size(); ++owner) {
    const bool mine = static_cast<int64_t>(owner) == group_->rank();
    std::vector<at::Tensor> pieces;
    int64_t elements = 0;
    const auto send = [&] {
      if (pieces.empty()) return;
      const at::Tensor buffer = at::empty({elements}, pieces[0].options());
      const auto each = [&](const auto& copy) {
        int64_t at = 0;
        for (const at::Tensor& piece : pieces) {
          copy(piece, buffer.narrow(0, at, piece.numel()));
          at += piece.numel();
        }
      };
      if (mine) each([](const at::Tensor& piece, const at::Tensor& place) { place.copy_(piece); });
      group_->collectives().Broadcast(buffer, static_cast<int64_t>(owner));
      if (!mine) each([](const at::Tensor& piece, const at::Tensor& place) { piece.copy_(place); });
      pieces.clear();
      elements = 0;
    };
    for (const size_t i : trained_) {
      const ElementRange& range = owners[owner][i];
      for (int64_t begin = range.begin; begin < range.end; begin += kSentElements) {
        const int64_t count = std::min(kSentElements, range.end - begin);
        if (elements + count > kSentElements) send();
        pieces.push_back(masters_[i].view({-1}).narrow(0, begin, count));
        elements += count;
      }
    }
    send();
  }
  if (!wide()) return;
  for (const size_t i : trained_) compute_[i].copy_(masters_[i]);
}

void Stepper::Gather() {
  if (!divided()) return;
  const at::NoGradGuard no_grad;
  const bool first = group_->rank() == 0;
  auto all = std::make_unique<Moments>(
      specs_, frozen_, config_.optimizer.HasSmallState(), c10::Device(c10::kCPU),
      first ? std::vector<ElementRange>() : std::vector<ElementRange>(specs_.size()));
  for (size_t owner = 0; owner < owned_.size(); ++owner) {
    const bool mine = static_cast<int64_t>(owner) == group_->rank();
    for (const size_t i : trained_) {
      const ElementRange& range = owned_[owner][i];
      if (range.begin == range.end || (owner == 0 && !first)) continue;
      std::vector<at::Tensor> pieces, places;
      if (mine) pieces = moments_.Pieces(i, range.begin, range.end);
      if (first) places = all->Pieces(i, range.begin, range.end);
      if (!mine && !first) {
        // Takes part, and needs nothing of it.
        const Moments unused(specs_, frozen_, config_.optimizer.HasSmallState(),
                             c10::Device(c10::kCPU), RangesOfOne(i, range));
        pieces = unused.Pieces(i, range.begin, range.end);
      }
      for (size_t piece = 0; piece < std::max(pieces.size(), places.size()); ++piece) {
        if (mine && first) {
          places[piece].copy_(pieces[piece]);
          continue;
        }
        const at::Tensor sent = mine    ? pieces[piece].cpu().contiguous()
                                : first ? places[piece]
                                        : pieces[piece];
        group_->collectives().Broadcast(sent, static_cast<int64_t>(owner));
      }
    }
  }
  if (first) gathered_ = std::move(all);
}

// Returns ranges in which one parameter alone has elements.
std::vector<ElementRange> Stepper::RangesOfOne(size_t parameter, const ElementRange& range) const {
  std::vector<ElementRange> ranges(specs_.size());
  ranges[parameter] = range;
  return ranges;
}

}  // namespace gpuctl::trainer
