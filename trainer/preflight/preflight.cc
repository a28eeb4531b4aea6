#include "trainer/preflight/preflight.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/text.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/stored_file.h"
#include "trainer/data/training_data.h"
#include "trainer/lora/layout.h"
#include "trainer/model/parameters.h"
#include "trainer/step/stepper.h"
#include "trainer/train/generate.h"
#include "trainer/train/model_source.h"
#include "trainer/train/run_plan.h"
#include "trainer/train/samples.h"
#include "trainer/train/schedule.h"

namespace gpuctl::trainer {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int64_t kWholeParameters = 150'000'000;  // larger models are cut to kBlocks
constexpr int64_t kBlocks = 2;
constexpr int64_t kTriedContext = 512;
constexpr int64_t kTriedWindows = 2;
constexpr int64_t kCheckedWindows = 64;
constexpr int64_t kTriedSteps = 6;
constexpr int64_t kTriedTokens = 8;
constexpr double kLongHere = 30 * 60;  // seconds after which a GPU is worth its money

std::string Duration(double seconds) {
  if (seconds < 90) return Format("%.0f s", std::max(1.0, seconds));
  if (seconds < 90 * 60) return Format("%.0f min", seconds / 60);
  if (seconds < 48 * 3600) return Format("%.1f h", seconds / 3600);
  return Format("%.0f days", seconds / 86400);
}

std::string Count(double count) {
  if (count < 1e6) return Format("%.0f", count);
  return count < 1e9 ? Format("%.1f M", count * 1e-6) : Format("%.2f G", count * 1e-9);
}

double TokensOf(const Config& config, int64_t steps) {
  return static_cast<double>(steps) * static_cast<double>(config.train.batch) *
         static_cast<double>(config.train.windows_per_example() * config.model.context);
}

// The part of the run that is tried.
Config SliceOf(const Config& config, const std::string& scratch) {
  Config slice = config;
  ModelConfig& m = slice.model;
  // An answer of a pair must not be cut off.
  if (!config.train.pairs) m.context = std::min(m.context, kTriedContext);
  if (!m.init.empty() && m.layers > kBlocks && CountParameters(m) > kWholeParameters) {
    m.layers = kBlocks;
    if (!m.windowed.empty()) m.windowed.resize(static_cast<size_t>(kBlocks));
    m.cut = true;
    // Patterns of other blocks would match nothing.
    slice.train.freeze.clear();
  }
  slice.train.batch = kTriedWindows;
  slice.train.micro_batch = 1;
  slice.checkpoint.dir = scratch;
  return slice;
}

// Returns the tensors on the CPU: those of a device are copied, all others are the live ones.
NamedTensors OnCpu(const NamedTensors& live) {
  NamedTensors here;
  for (const auto& [name, tensor] : live) here.emplace_back(name, tensor.cpu().contiguous());
  return here;
}

class Trial {
 public:
  Trial(const PreflightRequest& request, const Config& config, const ModelSource& source,
        const TrainingData& data)
      : request_(request),
        config_(config),
        slice_(SliceOf(config, request.scratch)),
        source_(source),
        data_(data),
        placement_(PlanRun(slice_).placement),
        stepper_(slice_, placement_, StartWeights(slice_, source, placement_)) {}

  int Run() {
    SayModel();
    CheckBatches();
    if (Stopped()) return request_.stop_signal();
    CheckLoss();
    if (Stopped()) return request_.stop_signal();
    CheckCheckpoint();
    CheckGeneration();
    return request_.stop_signal();
  }

  // Returns what the whole run takes here, from the time of the tried steps.
  double SecondsHere(int64_t steps) const {
    const double whole = TrainingFlopsPerToken(config_) * TokensOf(config_, steps);
    const double tried = TrainingFlopsPerToken(slice_) * TokensOf(slice_, 1);
    return step_seconds_ * whole / tried;
  }

 private:
  bool Stopped() const { return request_.stop_signal() != 0; }

  void SayModel() {
    std::string line =
        "ok  the model loads: " + Count(static_cast<double>(CountParameters(config_.model))) +
        " parameters";
    if (config_.lora.rank > 0)
      line += Format(", adapters of rank %lld", static_cast<long long>(config_.lora.rank));
    if (slice_.model.cut) {
      line += Format("; tried with its first %lld of %lld blocks",
                     static_cast<long long>(slice_.model.layers),
                     static_cast<long long>(config_.model.layers));
    }
    request_.say(line);
    request_.Note("parameters", CountParameters(config_.model));
    request_.Note("blocks_tried", slice_.model.layers);
  }

  Batch WindowsOf(const TrainingData& data, int64_t context, int64_t first, int64_t rows) const {
    Batch batch = MakeBatch(rows, context, data.packed(), [&](int64_t row, const WindowSlot& slot) {
      return data.FillTraining(first + row, slot);
    });
    batch.first_window = first;
    return batch;
  }

  void CheckBatches() {
    const int64_t windows = std::min(kCheckedWindows, data_.windows_per_epoch());
    int64_t scored = 0;
    for (int64_t window = 0; window < windows; ++window) {
      scored += WindowsOf(data_, config_.model.context, window, 1).scored;
    }
    if (scored == 0) {
      throw DataError("preflight: nothing is learned from the first windows of the data",
                      "prepare it again, and look at the sample with its mask");
    }
    const double places = static_cast<double>(windows * config_.model.context);
    request_.say(
        Format("ok  the batches are valid: %lld windows looked at, %.0f %% of their tokens "
               "are learned",
               static_cast<long long>(windows), 100 * static_cast<double>(scored) / places));
    request_.Note("learned_share", static_cast<double>(scored) / places);
  }

  void CheckLoss() {
    const auto data = OpenTrainingData(slice_, TokenizerDigest(source_.files));
    batch_ = WindowsOf(*data, slice_.model.context, 0, kTriedWindows * data->windows_per_example());
    if (data->pairs()) batch_.reference = stepper_.LogProbabilitiesOf(batch_);
    double first = 0, last = 0;
    for (int64_t step = 0; step <= kTriedSteps && !Stopped(); ++step) {
      const SteadyClock::time_point start = SteadyClock::now();
      const GradientResult result = stepper_.Gradients(batch_, [this] { return Stopped(); });
      if (!result.finished) return;
      if (result.overflowed) {  // the loss scale is smaller now
        --step;
        continue;
      }
      if (!std::isfinite(result.loss) || !std::isfinite(result.norm)) {
        throw Error(ExitCode::kDiverged,
                    Format("preflight: after %lld steps the loss is %g, the gradient norm %g",
                           static_cast<long long>(step), result.loss, result.norm),
                    "lower optimizer.lr, or look for weights that are not finite");
      }
      (step == 0 ? first : last) = result.loss;
      if (step < kTriedSteps) stepper_.Apply(config_.optimizer.lr, step + 1);
      const double seconds = std::chrono::duration<double>(SteadyClock::now() - start).count();
      // The first step also warms up.
      if (step == 1 || (step > 1 && seconds < step_seconds_)) step_seconds_ = seconds;
    }
    if (Stopped()) return;
    if (!(last < first)) {
      throw Error(ExitCode::kDiverged,
                  Format("preflight: the loss of one batch %s from %.4f to %.4f in %lld steps "
                         "with optimizer.lr %g",
                         last > first ? "rises" : "does not fall:", first, last,
                         static_cast<long long>(kTriedSteps), config_.optimizer.lr),
                  last > first ? "lower optimizer.lr" : "raise optimizer.lr");
    }
    request_.say(Format("ok  the loss falls: from %.4f to %.4f on one batch in %lld steps", first,
                        last, static_cast<long long>(kTriedSteps)));
    request_.Note("loss", {{"first", first}, {"last", last}});
  }

  void CheckCheckpoint() {
    Snapshot snapshot;
    snapshot.step = kTriedSteps;
    snapshot.adapter = stepper_.layout().adapted();
    snapshot.model_config = source_.config;
    snapshot.state = {{"step", kTriedSteps}};
    snapshot.weights = OnCpu(stepper_.Weights());
    snapshot.optimizer = OnCpu(stepper_.OptimizerState());
    const std::string path = WriteCheckpoint(request_.scratch, snapshot);
    VerifyCheckpoint(path);
    // A run needs no second model in memory, so there is none here.
    const CheckpointFiles files = FilesOfCheckpoint(snapshot.adapter);
    CheckComesBack(path + "/" + files.tensors, snapshot.weights);
    CheckComesBack(path + "/" + kOptimizerName, snapshot.optimizer);
    request_.say("ok  a checkpoint saves and loads to the same bits");
  }

  void CheckComesBack(const std::string& path, const NamedTensors& saved) const {
    const StoredFile file(path);
    std::map<std::string, StoredTensor> stored;
    for (const StoredTensor& tensor : file.tensors()) stored.emplace(tensor.name, tensor);
    for (const auto& [name, tensor] : saved) {
      const auto found = stored.find(name);
      const at::Tensor read = at::empty_like(tensor);
      const bool there =
          found != stored.end() && at::IntArrayRef(found->second.shape) == tensor.sizes();
      if (there) ReadInto(file, found->second, read, nullptr);
      if (there && at::equal(read, tensor)) continue;
      throw Error(ExitCode::kIo, "preflight: a checkpoint comes back changed: " + name,
                  "look at the disk of " + request_.scratch);
    }
  }

  void CheckGeneration() {
    GenerateRequest request;
    const int64_t given = std::min<int64_t>(16, slice_.model.context / 2);
    const auto* tokens = batch_.inputs_bt.data_ptr<int64_t>();
    request.prompt.assign(tokens, tokens + given);
    request.tokens = std::min(kTriedTokens, slice_.model.context - given);
    const std::vector<int64_t> made = GenerateTokens(
        stepper_.shape(), stepper_.weights(), request, [](int64_t) {},
        [this] { return Stopped(); });
    request_.say(Format("ok  it generates: %zu tokens", made.size()));
  }

  const PreflightRequest& request_;
  const Config& config_;  // of the whole run
  const Config slice_;
  const ModelSource& source_;
  const TrainingData& data_;
  const Placement placement_;
  Stepper stepper_;
  Batch batch_;
  double step_seconds_ = 0;  // of the fastest tried step
};

struct NeedHere {
  bool fits = false;
  std::string words;
};

// Finds out what the run needs here, before the trial takes memory. It will write checkpoints.
NeedHere MemoryHere(Config config, const std::string& scratch) {
  if (config.checkpoint.dir.empty()) config.checkpoint.dir = scratch;
  try {
    const MemoryPlan plan = PlanRun(config);
    return {true, Describe(plan.placement) + ": " + Describe(plan)};
  } catch (const Error& error) {
    if (error.code() != ExitCode::kBadConfig) throw;
    return {false,
            Describe(ChoosePlacement(config.train)) + ": " + error.what() + "; " + error.hint()};
  }
}

// Before the first step a model reads all pairs: without backward pass, which is at most half of a
// step's time. Returns how many steps take so long.
int64_t StepsOfFirstPass(const Config& config, const TrainingData& data) {
  if (!data.pairs()) return 0;
  const int64_t pairs = (data.rows(/*held_out=*/false) + data.rows(/*held_out=*/true)) / 2;
  return (pairs + 2 * config.train.batch - 1) / (2 * config.train.batch);
}

// Returns the plan for the first GPU that fits, of those that are asked for or of all; for the
// largest when none fits.
GpuPlan ChooseGpu(const PreflightRequest& request, const Config& config, int64_t steps) {
  std::optional<GpuPlan> largest;
  for (const Gpu& gpu : request.gpus.empty() ? KnownGpus() : request.gpus) {
    GpuPlan plan = PlanForGpu(config, gpu, steps, request.processes);
    if (plan.fits) return plan;
    if (!largest || plan.gpu.memory_gb > largest->gpu.memory_gb) largest = std::move(plan);
  }
  return *std::move(largest);
}

nlohmann::ordered_json ToJson(const GpuPlan& plan) {
  nlohmann::ordered_json json = {
      {"name", plan.gpu.name}, {"memory_gb", plan.gpu.memory_gb}, {"fits", plan.fits}};
  if (plan.processes > 1) json["processes"] = plan.processes;
  if (!plan.fits) {
    json["advice"] = plan.advice;
    return json;
  }
  json["bytes"] = plan.bytes;
  json["micro_batch"] = plan.micro_batch;
  json["accumulation"] = plan.accumulation;
  json["seconds"] = plan.seconds;
  return json;
}

// `fits`: here, where all steps take so many seconds.
void SayVerdict(const PreflightRequest& request, const Config& config, int64_t steps, bool fits,
                double seconds) {
  const GpuPlan plan = ChooseGpu(request, config, steps);
  const std::string count =
      plan.processes > 1 ? std::to_string(plan.processes) + " x " : std::string();
  if (!plan.fits) {
    request.say("gpu     " + count + plan.gpu.name +
                Format(", %.0f GB: does not fit; ", plan.gpu.memory_gb) + plan.advice);
  } else {
    request.say(
        Format("gpu     %s%s, %.0f GB: about %.1f GB with %lld x %lld %s a step; all steps "
               "take about %s at %.0f %% of its peak",
               count.c_str(), plan.gpu.name.c_str(), plan.gpu.memory_gb,
               static_cast<double>(plan.bytes) * 1e-9, static_cast<long long>(plan.micro_batch),
               static_cast<long long>(plan.accumulation),
               config.train.pairs ? "pairs of windows" : "windows", Duration(plan.seconds).c_str(),
               100 * kAssumedMfu));
  }
  request.Note("gpu", ToJson(plan));
  const bool here = fits && seconds <= kLongHere;
  const std::string not_here =
      fits ? Duration(seconds) + " here" : "too little memory here as it is";
  request.Note("verdict", here ? "here" : plan.fits ? "rent" : "too-large");
  if (here) {
    request.say("verdict this machine is enough: " + Duration(seconds));
  } else if (plan.fits) {
    request.say("verdict rent a GPU: " + not_here + ", about " + Duration(plan.seconds) + " on a " +
                plan.gpu.name);
  } else {
    request.say("verdict too large for one GPU as it is, and " + not_here);
  }
}

}  // namespace

GpuPlan PlanForGpu(const Config& config, const Gpu& gpu, int64_t steps, int64_t processes) {
  GpuPlan found;
  found.gpu = gpu;
  Config there = config;
  // Part of the memory is CUDA's own, and some is lost between the tensors.
  const auto available = static_cast<int64_t>(gpu.memory_gb * 0.92e9);
  there.train.micro_batch = 0;
  there.train.processes = found.processes = processes;
  const Placement placement = {c10::Device(c10::kCUDA, 0), c10::kBFloat16, 1};
  try {
    const MemoryPlan plan = PlanMemory(there, placement, available, 0);
    found.fits = true;
    found.micro_batch = plan.micro_batch;
    found.accumulation = (there.train.share() + plan.micro_batch - 1) / plan.micro_batch;
    found.bytes = plan.estimate.total;
  } catch (const Error& error) {
    if (error.code() != ExitCode::kBadConfig) throw;
    found.advice = error.hint();
  }
  found.seconds = TrainingFlopsPerToken(config) * TokensOf(config, steps) /
                  (kAssumedMfu * gpu.tflops * 1e12 * static_cast<double>(processes));
  return found;
}

int Preflight(const PreflightRequest& request) {
  const ModelSource source = FindModel(request.config, "");
  const auto data =
      OpenTrainingData(WithModel(request.config, source), TokenizerDigest(source.files));
  const Config config = InSteps(WithModel(request.config, source), *data);
  const Sampler prompts_are_there(config);
  Config shared = config;
  shared.train.processes = request.processes;
  CheckProcesses(shared);
  request.say("data    " + data->Describe());
  request.Note("data", data->Describe());
  const NeedHere here = MemoryHere(config, request.scratch);
  request.say("here    " + here.words);
  Trial trial(request, config, source, *data);
  if (const int signal = trial.Run(); signal != 0) return signal;
  const int64_t steps = config.train.steps + StepsOfFirstPass(config, *data);
  const double seconds = trial.SecondsHere(steps);
  request.say(Format(
      "run     %lld steps of %lld %s of %lld tokens", static_cast<long long>(config.train.steps),
      static_cast<long long>(config.train.batch), data->pairs() ? "pairs of windows" : "windows",
      static_cast<long long>(config.model.context)));
  request.Note("run", {{"steps", config.train.steps},
                       {"batch", config.train.batch},
                       {"context", config.model.context}});
  request.Note("here", {{"needs", here.words}, {"seconds", seconds}});
  request.say("        all steps take about " + Duration(seconds) + " here");
  const std::string warmup = WarmupProblem(config.optimizer, config.train.steps);
  if (!warmup.empty()) request.say("note    " + warmup);
  SayVerdict(request, config, steps, here.fits, seconds);
  return 0;
}

}  // namespace gpuctl::trainer
