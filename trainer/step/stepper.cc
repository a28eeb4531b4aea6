// Legend: b windows, t tokens, d = of the vocabulary's size.

#include "trainer/step/stepper.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "trainer/linear/threads.h"
#include "trainer/linear/widths.h"
#include "trainer/lora/adapter_files.h"
#include "trainer/lora/adapters.h"
#include "trainer/model/dispatch.h"
#include "trainer/model/finite.h"
#include "trainer/model/transfer.h"
#include "trainer/optimizer/owned_ranges.h"
#include "trainer/step/out_of_memory.h"

namespace gpuctl::trainer {
namespace {

// Elements; a shard begins at a multiple of it in a parameter. No two members write one cache line.
constexpr int64_t kShardAlignment = 16384;
constexpr double kClipEpsilon = 1e-6;

// Returns its norm, with a sum in fp32.
at::Tensor WideNorm(const at::Tensor& gradient) {
  if (!IsHalfWidth(gradient)) return at::linalg_vector_norm(gradient);
  return at::linalg_vector_norm(gradient, 2, at::OptionalIntArrayRef(), /*keepdim=*/false,
                                at::kFloat);
}

// Returns the rows [first, end) that a worker runs; `each` of them stay together.
std::pair<int64_t, int64_t> ShareOf(int worker, int workers, int64_t rows, int64_t each = 1) {
  const int64_t examples = rows / each;
  return {examples * worker / workers * each, examples * (worker + 1) / workers * each};
}

// Returns the windows that a worker runs at once at most.
int64_t MostAtOnce(const TrainConfig& train, int workers) {
  const int64_t share = (train.share() + workers - 1) / workers;
  return train.micro_batch > 0 ? std::min(train.micro_batch, share) : share;
}

std::vector<size_t> IndicesOf(const std::vector<bool>& flags, bool wanted) {
  std::vector<size_t> indices;
  for (size_t i = 0; i < flags.size(); ++i) {
    if (flags[i] == wanted) indices.push_back(i);
  }
  return indices;
}

}  // namespace

Batch MakeBatch(int64_t rows, int64_t context, bool packed,
                const std::function<int64_t(int64_t, const WindowSlot&)>& fill) {
  const auto numbers = [&] { return at::empty({rows, context}, at::kLong); };
  Batch batch{numbers(), numbers(), packed ? numbers() : at::Tensor(), 0, 0};
  for (int64_t row = 0; row < rows; ++row) {
    const auto row_of = [&](const at::Tensor& all_bt) {
      return all_bt.data_ptr<int64_t>() + row * context;
    };
    batch.scored += fill(row, {row_of(batch.inputs_bt), row_of(batch.targets_bt),
                               packed ? row_of(batch.starts_bt) : nullptr});
  }
  return batch;
}

void TrimPlaces(Batch* batch) {
  const int64_t rows = batch->inputs_bt.size(0), places = batch->inputs_bt.size(1);
  const int64_t* starts = batch->starts_bt.data_ptr<int64_t>();
  int64_t longest = 1;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t* of = starts + row * places;
    longest =
        std::max(longest, std::find_if(of, of + places, [](int64_t s) { return s > 0; }) - of);
  }
  for (at::Tensor* all_bt : {&batch->inputs_bt, &batch->targets_bt, &batch->starts_bt}) {
    *all_bt = all_bt->narrow(1, 0, longest).contiguous();
  }
}

namespace {

at::Tensor RowsOf(const at::Tensor& all_bt, int64_t first, int64_t rows) {
  return all_bt.defined() ? all_bt.narrow(0, first, rows) : at::Tensor();
}

// Returns scale * the summed loss of some rows of the batch, on the device of the weights.
at::Tensor LossOfRows(const GptShape& shape, const GptWeights& weights, const Batch& batch,
                      int64_t first, int64_t rows, double scale) {
  return SummedLoss(
      shape, weights, ToDevice(RowsOf(batch.inputs_bt, first, rows), weights.embedding_vd.device()),
      RowsOf(batch.targets_bt, first, rows), scale, RowsOf(batch.starts_bt, first, rows));
}

Answers AnswersOfRows(const GptShape& shape, const GptWeights& weights, const Batch& batch,
                      int64_t first, int64_t rows) {
  return AnswersOf(shape, weights,
                   ToDevice(RowsOf(batch.inputs_bt, first, rows), weights.embedding_vd.device()),
                   RowsOf(batch.targets_bt, first, rows), RowsOf(batch.starts_bt, first, rows));
}

}  // namespace

double SummedLossOfBatch(Team& team, const GptShape& shape,
                         const std::function<const GptWeights&(int)>& weights, const Batch& batch,
                         int64_t micro_batch) {
  std::vector<double> sums(static_cast<size_t>(team.workers()));
  team.RunWorkers([&](int worker) {
    const at::NoGradGuard no_grad;
    const auto [begin, end] = ShareOf(worker, team.workers(), batch.inputs_bt.size(0));
    std::vector<at::Tensor> losses;
    for (int64_t first = begin; first < end; first += micro_batch) {
      const int64_t rows = std::min(micro_batch, end - first);
      losses.push_back(LossOfRows(shape, weights(worker), batch, first, rows, 1.0));
    }
    if (losses.empty()) return;
    const at::Tensor read = ToHost(at::stack(losses));
    for (size_t i = 0; i < losses.size(); ++i) {
      sums[static_cast<size_t>(worker)] += static_cast<double>(read.data_ptr<float>()[i]);
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

Stepper::Stepper(const Config& config, const Placement& placement,
                 const std::vector<at::Tensor>& weights, Group* group)
    : config_(config),
      placement_(placement),
      layout_(MakeAdapterLayout(config)),
      specs_(layout_.specs),
      frozen_(layout_.frozen),
      trained_(IndicesOf(frozen_, false)),
      team_(placement.workers, placement.threads),
      shape_(MakeGptShape(config.model, at::TensorOptions(at::kFloat).device(placement.device))),
      group_(group),
      owned_(group != nullptr && config.optimizer.zero > 0
                 ? DivideElements(specs_, trained_, config.optimizer.HasSmallState(), group->size())
                 : std::vector<std::vector<ElementRange>>()),
      moments_(specs_, frozen_, config.optimizer.HasSmallState(), placement.device,
               owned_.empty() ? std::vector<ElementRange>()
                              : owned_[static_cast<size_t>(group->rank())]),
      micro_batch_(MostAtOnce(config.train, placement.workers)),
      deterministic_(config.train.deterministic &&
                     (!placement.device.is_cpu() || TakesDeviceRoutesOnCpu())) {
  shape_.recompute = config.train.recompute;
  if (placement.device.is_cuda()) side_ = std::make_shared<SideStream>(placement.device);
  PlaceWeights(weights);
  if (group_ != nullptr) {
    buckets_ = std::make_unique<GradientBuckets>(
        group_->collectives(), specs_, trained_, placement.device, placement.workers,
        [this](size_t parameter) { MergeWorkers(parameter); });
  }
  MakeWorkers();
  MakeShards();
  if (group_ == nullptr) return;
  std::vector<std::vector<ElementRange>> all_of_first(static_cast<size_t>(group_->size()),
                                                      std::vector<ElementRange>(specs_.size()));
  for (const size_t i : trained_) all_of_first[0][i] = {0, masters_[i].numel()};
  SendFromOwners(all_of_first);
  CheckSameFrozen();
}

void Stepper::PlaceWeights(const std::vector<at::Tensor>& weights) {
  for (size_t i = 0; i < specs_.size(); ++i) {
    const bool copy = !frozen_[i] || !layout_.adapted();
    if (weights[i].scalar_type() == at::kByte) {  // packed
      masters_.emplace_back();
      compute_.push_back(weights[i].to(placement_.device));
    } else if (frozen_[i] && wide()) {
      masters_.emplace_back();
      compute_.push_back(weights[i].to(placement_.device, placement_.dtype, false, copy));
    } else {
      masters_.push_back(weights[i].to(placement_.device, at::kFloat, false, copy));
      compute_.push_back(specs_[i].stays_wide ? masters_.back()
                                              : masters_.back().to(placement_.dtype));
    }
  }
}

void Stepper::MakeWorkers() {
  const std::vector<at::Tensor> lengths = BaseLengths(layout_, compute_);
  workers_.resize(static_cast<size_t>(placement_.workers));
  for (Worker& worker : workers_) {
    worker.wide_gradients.resize(specs_.size());
    for (size_t i = 0; i < specs_.size(); ++i) {
      worker.leaves.push_back(compute_[i].detach().requires_grad_(!frozen_[i]));
    }
    worker.draw = std::make_shared<DropoutDraw>();
    worker.weights = ArrangeWeights(worker.leaves, config_.model);
    AttachAdapters(layout_, worker.leaves, lengths, worker.draw, &worker.weights);
  }
  for (int number = 0; buckets_ && number < placement_.workers; ++number) WatchGradients(number);
}

// Returns the first place from `wanted` on where a shard of the parameter may end.
int64_t Stepper::ShardEnd(size_t parameter, int64_t wanted) const {
  const int64_t size = masters_[parameter].numel();
  int64_t end = (wanted + kShardAlignment - 1) / kShardAlignment * kShardAlignment;
  while (end < size && moments_.NextCut(parameter, end) != end) end += kShardAlignment;
  return std::min(size, end);
}

// Cuts the sequence of all parameters into one range per member, nearly equal ones.
void Stepper::MakeShards() {
  int64_t total = 0;
  for (const size_t i : trained_) total += masters_[i].numel();
  const int64_t members = team_.size();
  const int64_t share = (total + members - 1) / members;
  shards_.resize(static_cast<size_t>(members));
  int64_t at = 0;
  for (const size_t i : trained_) {
    const int64_t size = masters_[i].numel();
    for (int64_t begin = 0; begin < size;) {
      const int64_t member = std::min(members - 1, (at + begin) / share);
      const int64_t end = member == members - 1 ? size : ShardEnd(i, (member + 1) * share - at);
      shards_[static_cast<size_t>(member)].push_back({i, begin, end});
      begin = end;
    }
    at += size;
  }
  for (const std::vector<Piece>& of_member : shards_) updates_.push_back(of_member);
  if (owned_.empty()) return;
  // The parts that this rank updates, cut anew for its members.
  const std::vector<ElementRange>& own = owned_[static_cast<size_t>(group_->rank())];
  int64_t held = 0, given = 0;
  for (const size_t i : trained_) held += own[i].end - own[i].begin;
  const int64_t part = std::max<int64_t>(1, (held + members - 1) / members);
  for (std::vector<Piece>& of_member : updates_) of_member.clear();
  for (const size_t i : trained_) {
    for (int64_t begin = own[i].begin; begin < own[i].end;) {
      const int64_t member = std::min(members - 1, given / part);
      const int64_t wanted = begin + std::max<int64_t>(1, (member + 1) * part - given);
      const int64_t end = member == members - 1
                              ? own[i].end
                              : std::min(own[i].end, ShardEnd(i, std::min(wanted, own[i].end)));
      updates_[static_cast<size_t>(member)].push_back({i, begin, end});
      given += end - begin;
      begin = end;
    }
  }
}

at::Tensor Stepper::Gradient(const Worker& worker, size_t parameter) const {
  return worker.adds ? worker.wide_gradients[parameter] : worker.leaves[parameter].grad();
}

void Stepper::RunMicroBatch(Worker& worker, const Batch& batch, int64_t first, int64_t rows) {
  *worker.draw = {config_.lora.dropout, static_cast<uint64_t>(config_.train.seed),
                  batch.first_window + first, batch.inputs_bt.size(1)};
  const bool pairs = !batch.reference.empty();
  const double factor = scale() / static_cast<double>(std::max<int64_t>(1, batch.scored));
  const at::Tensor loss = pairs ? RunPairs(worker, batch, first, rows)
                                : LossOfRows(shape_, worker.weights, batch, first, rows, factor);
  {
    const DeterministicScope scope(deterministic_);
    loss.backward();
  }
  worker.in_last = false;
  if (!pairs) worker.loss.add_(loss.detach());
  *worker.draw = {};
  const at::NoGradGuard no_grad;
  if (!worker.adds) return;
  for (const size_t i : trained_) {
    if (buckets_ && !worker.leaves[i].grad().defined()) continue;  // it is on its way
    worker.wide_gradients[i].add_(worker.leaves[i].grad());
    worker.leaves[i].mutable_grad().reset();
  }
}

// The loss of a pair depends on all of its tokens, so that its slope is known behind the head; the
// head then runs again for the gradient. Returns what has this gradient; it is not the loss.
at::Tensor Stepper::RunPairs(Worker& worker, const Batch& batch, int64_t first, int64_t rows) {
  const Answers answers = AnswersOfRows(shape_, worker.weights, batch, first, rows);
  PairSums sums;
  std::vector<double> factors =
      AddPairs(config_.dpo, LogProbabilities(shape_, worker.weights, answers),
               batch.reference.data() + first, &sums);
  worker.pairs.Add(sums);
  const double share = scale() / static_cast<double>(batch.inputs_bt.size(0) / 2);
  for (double& factor : factors) factor *= share;
  return WeightedLoss(shape_, worker.weights, answers, factors);
}

// Gradients in 16 bits are added in fp32.
void Stepper::MakeRoomForSums(Worker& worker) const {
  for (const size_t i : trained_) {
    at::Tensor& sum = worker.wide_gradients[i];
    const bool in_bucket = buckets_ && &worker == &workers_[0];
    if (!worker.adds) {
      sum = at::Tensor();
    } else if (!sum.defined()) {
      sum = in_bucket ? buckets_->Place(i) : at::zeros_like(compute_[i], at::kFloat);
    } else if (!in_bucket) {  // else it is 0 already
      sum.zero_();
    }
  }
}

// On the CPU in fp32 the gradients keep their memory, and the backward passes add to them.
void Stepper::ClearGradients(Worker& worker) {
  MakeRoomForSums(worker);
  for (const size_t i : trained_) {
    const bool in_bucket = buckets_ && &worker == &workers_[0];  // and 0 already
    if (wide()) {
      worker.leaves[i].mutable_grad().reset();
    } else if (in_bucket) {
      worker.leaves[i].mutable_grad() = buckets_->Place(i);
    } else if (!placement_.device.is_cpu()) {
      worker.leaves[i].mutable_grad().reset();
    } else if (!worker.leaves[i].grad().defined()) {
      worker.leaves[i].mutable_grad() = at::zeros_like(worker.leaves[i].detach());
    } else {
      float* values = worker.leaves[i].mutable_grad().data_ptr<float>();
      ForRanges(worker.leaves[i].numel(), RowGrain(1),
                [&](int64_t begin, int64_t end) { std::fill(values + begin, values + end, 0.0f); });
    }
  }
}

void Stepper::RunWorker(int number, const Batch& batch, const std::function<bool()>& stop) {
  Worker& worker = workers_[static_cast<size_t>(number)];
  const int64_t each = batch.reference.empty() ? 1 : 2, most = micro_batch_ * each;
  const auto [own_begin, own_end] = OwnRows(batch);
  const auto [begin, end] = ShareOf(number, team_.workers(), own_end - own_begin, each);
  worker.adds = wide() && (buckets_ || team_.workers() > 1 || end - begin > most);
  ClearGradients(worker);
  worker.loss = at::zeros({}, at::TensorOptions(at::kFloat).device(placement_.device));
  worker.stopped = false;
  worker.pairs = {};
  for (int64_t at = begin; at < end; at += most) {
    worker.stopped = stop();
    if (worker.stopped) return;
    worker.in_last = at + most >= end;
    RunMicroBatch(worker, batch, own_begin + at, std::min(most, end - at));
  }
  if (buckets_) buckets_->ReadyAll(number);
  if (each == 1) return;
  const double share = scale() / static_cast<double>(batch.inputs_bt.size(0) / 2);
  worker.loss.fill_(worker.pairs.loss * share);
}

GradientResult Stepper::Gradients(const Batch& batch, const std::function<bool()>& stop) {
  while (group_ != nullptr) {
    const int64_t before = micro_batch_;
    const bool was_deterministic = deterministic_;
    const GradientResult result = TryTogether(batch, stop);
    if (micro_batch_ == before && deterministic_ == was_deterministic) return result;
    Forget();
  }
  for (;;) {
    try {
      GradientResult result = TryGradients(batch, stop);
      for (const Worker& worker : workers_) result.pairs.Add(worker.pairs);
      return result;
    } catch (const std::exception& error) {
      // No graph is alive here, only the gradients of other micro-batches.
      if (deterministic_ && IsNotDeterministic(error)) {
        deterministic_ = false;
      } else if (IsOutOfMemory(error) && micro_batch_ > 1) {
        micro_batch_ = (micro_batch_ + 1) / 2;
      } else {
        throw;
      }
      Forget();
    }
  }
}

// Frees the gradients of a step that broke off.
void Stepper::Forget() {
  for (Worker& worker : workers_) {
    for (const size_t i : trained_) worker.leaves[i].mutable_grad().reset();
  }
}

GradientResult Stepper::TryGradients(const Batch& batch, const std::function<bool()>& stop) {
  ChooseDeterministicAttention(deterministic_);
  team_.RunWorkers([&](int worker) { RunWorker(worker, batch, stop); });
  for (const Worker& worker : workers_) {
    if (worker.stopped) return {};
  }
  if (!placement_.device.is_cpu() || wide()) return ReduceOnDevice();
  std::vector<std::vector<double>> squares(shards_.size());
  team_.Run([&](int member) { squares[static_cast<size_t>(member)] = ReduceShard(member); });
  GradientResult result{true, 0, 0, false, {}};
  for (const Worker& worker : workers_) result.loss += worker.loss.item<float>();
  for (const std::vector<double>& of_member : squares) {
    for (const double square : of_member) result.norm += square;
  }
  norm_ = result.norm = std::sqrt(result.norm);
  return result;
}

// Adds every worker's gradients of one shard into worker 0's. Returns the sums of their squares,
// one for each kShardAlignment elements of a parameter: the same ones with any number of members.
std::vector<double> Stepper::ReduceShard(int member) {
  std::vector<double> squares;
  for (const Piece& piece : shards_[static_cast<size_t>(member)]) {
    const int64_t count = piece.end - piece.begin;
    float* into = workers_[0].leaves[piece.parameter].grad().data_ptr<float>() + piece.begin;
    for (size_t other = 1; !buckets_ && other < workers_.size(); ++other) {
      AddInto(count, workers_[other].leaves[piece.parameter].grad().data_ptr<float>() + piece.begin,
              into);
    }
    for (int64_t at = 0; at < count; at += kShardAlignment) {
      squares.push_back(SumOfSquares(std::min(kShardAlignment, count - at), into + at));
    }
  }
  return squares;
}

// Copies loss and norm to the CPU in one transfer; the clipping itself stays on the device.
GradientResult Stepper::ReduceOnDevice() {
  const at::NoGradGuard no_grad;
  Worker& first = workers_[0];
  for (size_t other = 1; other < workers_.size(); ++other) {
    first.loss.add_(workers_[other].loss);
    for (const size_t i : trained_) {
      first.wide_gradients[i].add_(workers_[other].wide_gradients[i]);
    }
  }
  norm_on_device_ = NormOnDevice();
  const at::Tensor both = ToHost(at::stack({first.loss, norm_on_device_}));
  const float* values = both.data_ptr<float>();
  GradientResult result{true,
                        static_cast<double>(values[0]) / scale(),
                        static_cast<double>(values[1]) / scale(),
                        false,
                        {}};
  NoteOverflow(&result);
  return result;
}

at::Tensor Stepper::NormOnDevice() const {
  std::vector<at::Tensor> norms;
  for (const size_t i : trained_) {
    norms.push_back(WideNorm(Gradient(workers_[0], i)));
  }
  return at::linalg_vector_norm(at::stack(norms));
}

void Stepper::NoteOverflow(GradientResult* result) {
  if (!scales() || (std::isfinite(result->loss) && std::isfinite(result->norm))) return;
  loss_scale_.Overflowed();
  result->overflowed = !loss_scale_.exhausted();
}

AdamwStep Stepper::StepFor(size_t parameter, double lr, int64_t t) const {
  const OptimizerConfig& c = config_.optimizer;
  return {lr, c.beta1, c.beta2, c.eps, specs_[parameter].decay ? c.weight_decay : 0.0, t};
}

void Stepper::UpdateShard(int member, double lr, int64_t t, float clip) {
  for (const Piece& piece : updates_[static_cast<size_t>(member)]) {
    const size_t i = piece.parameter;
    moments_.UpdateCpu(i, StepFor(i, lr, t), piece.begin, piece.end, clip,
                       workers_[0].leaves[i].grad().data_ptr<float>(),
                       masters_[i].data_ptr<float>());
  }
}

void Stepper::UpdateOnDevice(double lr, int64_t t) {
  const at::NoGradGuard no_grad;
  if (side_ != nullptr) side_->HoldBackUntilDone();
  at::Tensor clip = at::ones_like(norm_on_device_);
  if (config_.optimizer.grad_clip > 0) {
    clip = norm_on_device_.div(scale())
               .add_(kClipEpsilon)
               .reciprocal_()
               .mul_(config_.optimizer.grad_clip);
    clip.clamp_max_(1.0);
  }
  if (scales()) {
    clip.div_(scale());
    loss_scale_.Updated();
  }
  const bool fused = (placement_.device.is_cuda() || placement_.device.is_cpu()) &&
                     TakesDeviceRoutes(norm_on_device_) && HasFusedAdamw();
  if (fused) UpdateInOneKernel(lr, t, clip);
  for (const size_t i : trained_) {
    if (fused && !moments_.in_8_bits(i)) continue;
    moments_.Update(i, StepFor(i, lr, t), masters_[i], Widen(Gradient(workers_[0], i)), clip);
  }
  if (divided()) return SendFromOwners(owned_);
  if (!wide()) return;
  for (const size_t i : trained_) compute_[i].copy_(masters_[i]);
}

// One call for the weights that decay, one for the others, and more where gradients are widened for
// it; not for moments in 8 bits.
void Stepper::UpdateInOneKernel(double lr, int64_t t, const at::Tensor& clip) {
  for (const bool decay : {true, false}) {
    AdamwTensors tensors;
    AdamwNumbers numbers{};
    int64_t widened = 0;
    const auto update = [&] {
      if (!tensors.parameters.empty()) FusedAdamw(tensors, numbers, clip);
      tensors = {};
      widened = 0;
    };
    for (const size_t i : trained_) {
      if (specs_[i].decay != decay || moments_.in_8_bits(i)) continue;
      const ElementRange& held = moments_.held(i);
      if (held.begin == held.end) continue;
      const auto held_of = [&](const at::Tensor& all) {
        return moments_.whole(i) ? all
                                 : all.view({-1}).narrow(0, held.begin, held.end - held.begin);
      };
      const AdamwStep step = StepFor(i, lr, t);
      numbers = {step.lr, step.beta1, step.beta2, step.weight_decay, step.eps, step.t};
      const at::Tensor gradient = Gradient(workers_[0], i);
      if (IsHalfWidth(gradient)) {
        if (widened + gradient.numel() > kMostWidened) update();
        widened += gradient.numel();
      }
      tensors.parameters.push_back(held_of(masters_[i]));
      tensors.gradients.push_back(held_of(Widen(gradient)));
      tensors.exp_avgs.push_back(moments_.exp_avg(i));
      tensors.exp_avg_sqs.push_back(moments_.exp_avg_sq(i));
    }
    update();
  }
}

void Stepper::Apply(double lr, int64_t t) {
  gathered_.reset();
  if (!placement_.device.is_cpu() || wide()) return UpdateOnDevice(lr, t);
  const double limit = config_.optimizer.grad_clip;
  const double clip = limit > 0 ? std::min(1.0, limit / (norm_ + kClipEpsilon)) : 1.0;
  team_.Run([&](int member) { UpdateShard(member, lr, t, static_cast<float>(clip)); });
  if (divided()) SendFromOwners(owned_);
}

std::function<void()> Stepper::CopiesArrived() const {
  if (side_ == nullptr) return nullptr;
  return [side = side_] { side->Wait(); };
}

double Stepper::SummedLossOf(const Batch& batch) {
  const auto weights = [this](int member) -> const GptWeights& {
    return workers_[static_cast<size_t>(member)].weights;
  };
  if (group_ == nullptr) return SummedLossOfBatch(team_, shape_, weights, batch, micro_batch_);
  const auto [begin, end] = ShareOf(static_cast<int>(group_->rank()),
                                    static_cast<int>(group_->size()), batch.inputs_bt.size(0));
  Batch part = batch;
  for (at::Tensor* all_bt : {&part.inputs_bt, &part.targets_bt, &part.starts_bt}) {
    *all_bt = RowsOf(*all_bt, begin, end - begin);
  }
  return group_->Sum(SummedLossOfBatch(team_, shape_, weights, part, micro_batch_));
}

std::vector<float> Stepper::LogProbabilitiesOf(const Batch& batch) {
  std::vector<float> found(static_cast<size_t>(batch.inputs_bt.size(0)));
  int64_t own_begin = 0, own_end = batch.inputs_bt.size(0);
  if (group_ != nullptr) {
    std::tie(own_begin, own_end) =
        ShareOf(static_cast<int>(group_->rank()), static_cast<int>(group_->size()), own_end);
  }
  team_.RunWorkers([&](int number) {
    const at::NoGradGuard no_grad;
    const GptWeights& weights = workers_[static_cast<size_t>(number)].weights;
    const int64_t most = micro_batch_ * config_.train.windows_per_example();
    const auto [begin, end] = ShareOf(number, team_.workers(), own_end - own_begin);
    for (int64_t at = begin; at < end; at += most) {
      const int64_t first = own_begin + at;
      const Answers answers =
          AnswersOfRows(shape_, weights, batch, first, std::min(most, end - at));
      const std::vector<float> of_rows = LogProbabilities(shape_, weights, answers);
      std::copy(of_rows.begin(), of_rows.end(), found.begin() + first);
    }
  });
  if (group_ != nullptr) {
    // Of each row one rank has the number, and the others have 0.
    const at::Tensor sum = at::zeros({static_cast<int64_t>(found.size())}, at::kFloat);
    std::copy(found.begin(), found.end(), sum.data_ptr<float>());
    group_->collectives().BeginSum(sum)->Wait();
    std::copy_n(sum.data_ptr<float>(), found.size(), found.begin());
  }
  return found;
}

NamedTensors Stepper::Weights() const {
  if (layout_.adapted()) return NameAdapter(layout_, masters_);
  NamedTensors named;
  AppendSlices(specs_, compute_, "", &named);
  return named;
}

NamedTensors Stepper::OptimizerState() const {
  NamedTensors named;
  (gathered_ ? *gathered_ : moments_).AppendTo(&named);
  // In bf16 frozen weights have no master.
  if (wide() && !layout_.adapted()) AppendSlices(specs_, masters_, "master.", &named);
  return named;
}

void Stepper::Load(std::map<std::string, at::Tensor> weights,
                   std::map<std::string, at::Tensor> optimizer, const std::string& what) {
  const at::NoGradGuard no_grad;
  const bool has_moments = !optimizer.empty();
  const bool has_masters = has_moments && optimizer.rbegin()->first.rfind("master.", 0) == 0;
  std::vector<at::Tensor> frozen(specs_.size()), trained(specs_.size());
  for (size_t i = 0; i < specs_.size(); ++i) {
    (frozen_[i] ? frozen[i] : trained[i]) = frozen_[i] ? compute_[i] : masters_[i];
  }
  if (!layout_.adapted()) LoadSlices(specs_, "", what, frozen, &weights);
  if (layout_.adapted()) {
    LoadAdapter(layout_, std::move(weights), what, masters_);
  } else if (has_masters) {
    weights.clear();
    LoadSlices(specs_, "master.", what, trained, &optimizer);
  } else {
    LoadSlices(specs_, "", what, trained, &weights);
  }
  if (wide()) {
    for (const size_t i : trained_) compute_[i].copy_(masters_[i]);
  }
  for (size_t i = 0; i < specs_.size(); ++i) CheckFinite(specs_[i], compute_[i], "load " + what);
  if (has_moments) moments_.Load(std::move(optimizer), what);
}

std::string Stepper::DescribeNotFinite() const {
  for (size_t i = 0; i < specs_.size(); ++i) {
    const std::string name = NameOfNotFinite(specs_[i], compute_[i]);
    if (!name.empty()) return "the weight " + name;
  }
  for (const size_t i : trained_) {
    const std::string name = NameOfNotFinite(specs_[i], Gradient(workers_[0], i));
    if (!name.empty()) return "the gradient of " + name;
  }
  return "";
}

std::vector<at::Tensor> Stepper::CurrentGradients() const {
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < specs_.size(); ++i) {
    const at::Tensor gradient = Gradient(workers_[0], i);
    gradients.push_back(scales() && gradient.defined() ? Widen(gradient).div(scale()) : gradient);
  }
  return gradients;
}

}  // namespace gpuctl::trainer
