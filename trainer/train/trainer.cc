#include "trainer/train/trainer.h"

#include <ATen/ops/eq.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/linear/matmul.h"
#include "trainer/lora/layout.h"
#include "trainer/model/parameters.h"
#include "trainer/step/out_of_memory.h"
#include "trainer/train/evaluate.h"
#include "trainer/train/resume.h"
#include "trainer/train/run_plan.h"
#include "trainer/train/schedule.h"

namespace gpuctl::trainer {
namespace {

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

RunOptions Resolved(RunOptions options, const ModelSource& source, const TrainingData& data) {
  options.config = InSteps(WithModel(options.config, source), data);
  return options;
}

// Returns what a checkpoint takes in memory until it is resumed.
int64_t HeldBytes(const ModelSource& source) {
  return source.loaded ? TensorBytes(*source.loaded) : 0;
}

// A run that ends early would be of no use without its best checkpoint.
int64_t BestOnesToKeep(const Config& config) {
  return std::max<int64_t>(config.checkpoint.keep_best, config.train.patience > 0 ? 1 : 0);
}

}  // namespace

Trainer::Trainer(RunOptions options)
    : lock_(options.config.checkpoint.dir),
      source_(FindModelTogether(options.config, options.resume, options.group)),
      data_(OpenTrainingData(WithModel(options.config, source_), TokenizerDigest(source_.files))),
      options_(Resolved(std::move(options), source_, *data_)),
      config_(options_.config),
      sampler_(config_),
      reporter_(options_.metrics_path, !speaks()),
      sgemm_gflops_(MeasureSgemm()),
      memory_(PlanRun(config_, HeldBytes(source_),
                      HeldOnMachine(config_, HeldBytes(source_), options_.group))),
      placement_(memory_.placement),
      agreement_(Agree(config_, placement_, *data_, memory_.micro_batch, options_.group)),
      stepper_(config_, placement_,
               StartWeights(config_, source_, placement_,
                            writes() && !config_.checkpoint.dir.empty() ? &base_digest_ : nullptr),
               options_.group),
      // On the CPU all cores train.
      batches_([this](int64_t first) { return MakeTrainingBatch(first); },
               !placement_.device.is_cpu()),
      copies_checkpoints_(memory_.copies_checkpoints) {
  stepper_.SetMicroBatch(agreement_.micro_batch);
  lock_.MakeAndTake();
  if (!config_.checkpoint.dir.empty()) CheckTakesCheckpoints(config_.checkpoint.dir);
  Resume();
  if (!config_.checkpoint.dir.empty()) {
    checkpointer_ = std::make_unique<Checkpointer>(
        config_.checkpoint.dir, config_.checkpoint.keep_last, BestOnesToKeep(config_));
  }
}

int Trainer::Train() {
  Announce();
  started_ = Clock::now();
  if (!FindReferences()) return Leave("stopped");
  // What a signal broke off counts as if it had not.
  if (progress_.step > 0 && EvalDue() && !progress_.held_out_loss) Evaluate();
  while (progress_.step < config_.train.steps && !OutOfPatience()) {
    step_started_ = Clock::now();
    const int64_t window = progress_.next_window;
    const int64_t windows = config_.train.batch * config_.train.windows_per_example();
    const Batch batch = batches_.Take(window, window + windows);
    const GradientResult gradients = StepGradients(batch);
    if (!gradients.finished) return Leave("stopped");
    RefuseIfNotFinite(gradients);
    DivideBySpeed();
    const double lr = LearningRate(config_.optimizer, progress_.step, config_.train.steps);
    if (!gradients.overflowed) stepper_.Apply(lr, progress_.step + 1 - progress_.skipped);
    Advance(batch, gradients);
    ReportStep(gradients, lr);
    if (EvalDue()) Evaluate();
    MakeRoomForCopies();
    if (CheckpointDue()) SaveCheckpoint();
    ReportCheckpoints();
    if (base_digest_) base_digest_->Check();
    if (EvalDue() && progress_.step < config_.train.steps) ShowSamples();
  }
  if (!progress_.held_out_loss) Evaluate();
  return Leave(OutOfPatience() ? "early_stop" : "finished");
}

void Trainer::Announce() {
  const ModelConfig& m = config_.model;
  reporter_.Say(
      Format("model   %.2f M parameters: %lld layers, d %lld, %lld/%lld heads, ffn %lld, "
             "context %lld",
             static_cast<double>(CountParameters(m)) * 1e-6, static_cast<long long>(m.layers),
             static_cast<long long>(m.d_model), static_cast<long long>(m.heads),
             static_cast<long long>(m.kv_heads), static_cast<long long>(m.ffn),
             static_cast<long long>(m.context)));
  if (!m.init.empty()) reporter_.Say("init    from " + m.init);
  AnnounceAdapters();
  reporter_.Say("data    " + data_->Describe());
  reporter_.Say(Format("device  %s; one core multiplies at %.0f GFLOP/s (%s)",
                       Describe(placement_).c_str(), sgemm_gflops_, MatMulLibrary().c_str()));
  if (options_.group != nullptr) {
    reporter_.Say(Format("ranks   %lld processes, %lld on this machine, over %s%s",
                         static_cast<long long>(config_.train.processes),
                         static_cast<long long>(config_.train.local_processes),
                         options_.group->collectives().name().c_str(),
                         stepper_.divided() ? "; each holds a part of AdamW's state" : ""));
  }
  reporter_.Say("memory  " + Describe(memory_));
  const std::string slow = SlowBlasWarning(sgemm_gflops_);
  if (placement_.device.is_cpu() && !slow.empty()) reporter_.Warn(slow);
  if (!writes()) {
    reporter_.Warn("warning: no checkpoints are written; give --checkpoint-dir DIR");
  }
  const std::string warmup = WarmupProblem(config_.optimizer, config_.train.steps);
  if (!warmup.empty()) reporter_.Warn("warning: " + warmup);
}

// Of pairs, what the model says of them before it learns. Returns false when it was stopped.
bool Trainer::FindReferences() {
  if (!data_->pairs() || references_.known()) return true;
  reporter_.Say(Format("dpo     beta %g; the first model reads %lld pairs", config_.dpo.beta,
                       static_cast<long long>((data_->rows(false) + data_->rows(true)) / 2)));
  return references_.Compute(
      *data_, config_.model.context,
      [this](const Batch& batch) { return stepper_.LogProbabilitiesOf(batch); },
      [this] { return AgreedStop() != 0; });
}

Batch Trainer::MakeTrainingBatch(int64_t first_window) const {
  if (data_->pairs()) {
    const int64_t windows = 2 * config_.train.batch;
    const auto row_of = [&](int64_t window) { return data_->TrainingRow(first_window + window); };
    Batch batch = MakePairs(*data_, /*held_out=*/false, config_.model.context, windows, row_of);
    for (int64_t i = 0; i < windows; ++i) {
      batch.reference.push_back(references_.Of(/*held_out=*/false, row_of(i)));
    }
    batch.first_window = first_window;
    return batch;
  }
  Batch batch = MakeBatch(config_.train.batch, config_.model.context, data_->packed(),
                          [&](int64_t row, const WindowSlot& slot) {
                            return data_->FillTraining(first_window + row, slot);
                          });
  batch.first_window = first_window;
  return batch;
}

GradientResult Trainer::StepGradients(const Batch& batch) {
  const int64_t before = stepper_.micro_batch();
  const bool was_deterministic = stepper_.deterministic();
  const GradientResult gradients = stepper_.Gradients(batch, [this] { return Stopping(); });
  progress_.micro_batch = stepper_.micro_batch();
  if (stepper_.deterministic() != was_deterministic) {
    reporter_.Warn(
        "warning: LibTorch has no way for this model to add in a fixed order on this device; a run "
        "that is stopped goes on to nearly the same numbers, not to the same bits");
  }
  if (progress_.micro_batch != before) {
    reporter_.Warn(Format(
        "warning: out of memory; from step %lld on a worker runs %lld instead of "
        "%lld %s at once; the batch stays the same",
        static_cast<long long>(progress_.step + 1), static_cast<long long>(progress_.micro_batch),
        static_cast<long long>(before), data_->pairs() ? "pairs" : "windows"));
  }
  return gradients;
}

void Trainer::RefuseIfNotFinite(const GradientResult& gradients) const {
  if (gradients.overflowed) return;
  const char* what = !std::isfinite(gradients.loss)   ? "the loss"
                     : !std::isfinite(gradients.norm) ? "the gradient norm"
                                                      : nullptr;
  if (what == nullptr) return;
  const std::string where = stepper_.DescribeNotFinite();
  throw Error(ExitCode::kDiverged,
              Format("step %lld: %s is not finite (loss %g, gradient norm %g)%s; the weights are "
                     "those after step %lld",
                     static_cast<long long>(progress_.step) + 1, what, gradients.loss,
                     gradients.norm, where.empty() ? "" : (", and so is " + where).c_str(),
                     static_cast<long long>(progress_.step)),
              "lower optimizer.lr, or raise optimizer.warmup_steps");
}

void Trainer::Advance(const Batch& batch, const GradientResult& gradients) {
  ++progress_.step;
  progress_.tokens += batch.scored;
  progress_.next_window += batch.inputs_bt.size(0);
  progress_.held_out_loss.reset();
  progress_.loss_scale = stepper_.loss_scale();
  if (gradients.overflowed) {
    ++progress_.skipped;
    reporter_.Warn(
        Format("warning: step %lld: fp16 overflowed; the weights stay as they are, and "
               "the loss scale is %g now",
               static_cast<long long>(progress_.step), progress_.loss_scale.scale));
  } else {
    progress_.loss = gradients.loss;
  }
  interval_seconds_ += SecondsSince(step_started_);
  interval_scored_ += batch.scored;
  // Places without a token are no work that anybody wants.
  interval_tokens_ +=
      data_->pairs()
          ? at::eq(batch.starts_bt, 0).sum().item<int64_t>()
          : std::llround(data_->filled_share() * static_cast<double>(batch.inputs_bt.numel()));
}

void Trainer::ReportStep(const GradientResult& gradients, double lr) {
  const bool last = progress_.step == config_.train.steps;
  if (gradients.overflowed || (progress_.step % config_.train.log_every != 0 && !last)) return;
  StepEvent event;
  event.step = progress_.step;
  event.total_steps = config_.train.steps;
  event.loss = gradients.loss;
  event.lr = lr;
  event.grad_norm = gradients.norm;
  event.pairs = gradients.pairs;
  event.tokens_per_s = static_cast<double>(interval_tokens_) / interval_seconds_;
  event.tokens = progress_.tokens;
  event.memory_bytes = UsedMemory(placement_);
  double peak_flops = config_.train.peak_tflops * 1e12;
  if (peak_flops == 0 && placement_.device.is_cpu()) {
    peak_flops = sgemm_gflops_ * 1e9 * placement_.workers * placement_.threads;
  }
  peak_flops *= static_cast<double>(config_.train.processes);
  if (peak_flops > 0) {
    event.mfu = TrainingFlops(config_, static_cast<double>(interval_tokens_),
                              static_cast<double>(interval_scored_)) /
                (interval_seconds_ * peak_flops);
  }
  reporter_.Step(event);
  interval_seconds_ = 0;
  interval_tokens_ = interval_scored_ = 0;
}

// Of several processes all stop when one is told to.
int Trainer::AgreedStop() const {
  const int signal = options_.stop_signal();
  if (options_.group == nullptr) return signal;
  return static_cast<int>(options_.group->Max(signal));
}

// True when it is so on any of the processes.
bool Trainer::AgreedOn(bool mine) const {
  return options_.group == nullptr ? mine : options_.group->Max(mine ? 1 : 0) > 0;
}

void Trainer::DivideBySpeed() {
  if (!config_.train.heterogeneous || options_.group == nullptr || !progress_.shares.empty())
    return;
  const int64_t own = EqualRows(config_.train.batch,
                                config_.train.processes)[static_cast<size_t>(config_.train.rank)];
  if (!speeds_.Add(own, stepper_.work_seconds())) return;
  std::vector<double> speeds;
  for (const std::vector<double>& of_rank : options_.group->Share({speeds_.speed()})) {
    speeds.push_back(of_rank[0]);
  }
  progress_.shares = DivideRows(config_.train.batch, speeds);
  stepper_.SetShares(progress_.shares);
  std::string list;
  for (const int64_t share : progress_.shares) {
    list += (list.empty() ? "" : ", ") + std::to_string(share);
  }
  reporter_.Say("ranks   by their speed they take " + list + " of each batch");
}

bool Trainer::EvalDue() const {
  const int64_t every = config_.train.eval_every;
  return progress_.step == config_.train.steps || (every > 0 && progress_.step % every == 0);
}

void Trainer::Evaluate() {
  EvalEvent event;
  event.step = progress_.step;
  event.bigram_entropy = data_->bigram_entropy();
  const auto stop = [this] { return AgreedStop() != 0; };
  const HeldOutLoss loss =
      data_->pairs()
          ? MeanHeldOutPairLoss(
                *data_, config_.model.context, config_.dpo, references_,
                [this](const Batch& batch) { return stepper_.LogProbabilitiesOf(batch); }, stop)
          : MeanHeldOutLoss(
                *data_, config_.model.context,
                [this](const Batch& batch) { return stepper_.SummedLossOf(batch); }, stop);
  if (!loss.finished) return;
  event.loss = loss.mean;
  event.tokens = loss.tokens;
  event.pairs = loss.pairs;
  progress_.held_out_loss = event.loss;
  reporter_.Eval(event);
  if (progress_.step > 0) CompareWithBest();
}

void Trainer::CompareWithBest() {
  if (progress_.best_loss && *progress_.held_out_loss >= *progress_.best_loss) {
    ++progress_.worse_evaluations;
    return;
  }
  progress_.best_loss = progress_.held_out_loss;
  progress_.best_step = progress_.step;
  progress_.worse_evaluations = 0;
}

bool Trainer::OutOfPatience() const {
  const int64_t patience = config_.train.patience;
  return patience > 0 && progress_.worse_evaluations >= patience;
}

// Besides each `every` steps, a new best one is saved where the best ones are kept.
bool Trainer::CheckpointDue() const {
  const int64_t every = config_.checkpoint.every;
  if (every > 0 && progress_.step % every == 0) return true;
  return BestOnesToKeep(config_) > 0 && progress_.best_step == progress_.step;
}

void Trainer::ReportCheckpoints() {
  if (!checkpointer_) return;
  while (const auto report = checkpointer_->TakeReport()) {
    checkpoint_failure_ = report->failure;
    checkpoint_code_ = report->code;
    if (report->failure.empty()) last_checkpoint_ = report->path;
    reporter_.Checkpoint(*report);
  }
}

// Saves the last checkpoint. An earlier failed checkpoint is only reported, because the next one
// may find room. A failure of the last one is an error, because the work would be lost.
void Trainer::SaveLastCheckpoint() {
  if (!writes()) return;
  SaveCheckpoint();
  if (checkpointer_) checkpointer_->Wait();
  ReportCheckpoints();
  if (!AgreedOn(!checkpoint_failure_.empty())) return;
  saved_step_ = -1;  // try again: pruning or the user may have freed space
  checkpoint_failure_.clear();
  SaveCheckpoint();
  if (checkpointer_) checkpointer_->Wait();
  ReportCheckpoints();
  if (!checkpoint_failure_.empty()) throw Error(checkpoint_code_, checkpoint_failure_);
}

// A sample that fails does no harm to the run.
void Trainer::ShowSamples() {
  if (!speaks() || sampled_step_ == progress_.step || Stopping()) return;
  sampled_step_ = progress_.step;
  try {
    sampler_.Run(
        stepper_.shape(), stepper_.weights(), [this] { return Stopping(); },
        [this](const SampleText& sample) { reporter_.Sample(sample, progress_.step); });
  } catch (const Error& error) {
    reporter_.Warn(std::string("warning: no sample: ") + error.what());
  } catch (const std::exception& error) {
    if (!IsOutOfMemory(error)) throw;
    reporter_.Warn("warning: no sample: memory ran out");
  }
}

int Trainer::Leave(const char* outcome) {
  const int signal = progress_.step < config_.train.steps ? AgreedStop() : 0;
  SaveLastCheckpoint();
  if (signal == 0) ShowSamples();
  DoneEvent event;
  event.step = progress_.step;
  event.outcome = outcome;
  event.loss = progress_.loss;
  event.held_out_loss = progress_.held_out_loss;
  event.bigram_entropy = data_->bigram_entropy();
  event.tokens = progress_.tokens;
  event.seconds = SecondsSince(started_);
  event.checkpoint = last_checkpoint_;
  event.best_loss = progress_.best_loss;
  event.best_step = progress_.best_step;
  reporter_.Done(event);
  return signal;
}

}  // namespace gpuctl::trainer
