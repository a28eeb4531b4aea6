// Times optimizer steps on random tokens. A step is that of a run: batch, forward, backward,
// reduction, clipping, AdamW.

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/philox.h"
#include "trainer/cli/args.h"
#include "trainer/cli/commands.h"
#include "trainer/config/config.h"
#include "trainer/linear/matmul.h"
#include "trainer/lora/layout.h"
#include "trainer/model/parameters.h"
#include "trainer/ranks/group.h"
#include "trainer/step/device.h"
#include "trainer/step/memory.h"
#include "trainer/step/stepper.h"
#include "trainer/train/model_source.h"
#include "trainer/train/report.h"
#include "trainer/train/run_plan.h"

namespace gpuctl::trainer {
namespace {

// Returns the model of the regular comparison: 12.6 M parameters, 2048 tokens per step.
nlohmann::json BenchDefaults() {
  return {{"model",
           {{"layers", 6},
            {"d_model", 384},
            {"heads", 6},
            {"kv_heads", 2},
            {"ffn", 1024},
            {"vocab_size", 8192},
            {"context", 256}}},
          {"train", {{"batch", 8}, {"micro_batch", 4}}}};
}

bool IsAbout(const std::string& prefix, const std::string& override) {
  return override.rfind(prefix, 0) == 0;
}

// A model of random weights may have adapters here; those of a run need model.init.
Config ConfigOf(const std::vector<std::string>& overrides) {
  const auto about = [&](const std::string& prefix) {
    return std::any_of(overrides.begin(), overrides.end(),
                       [&](const std::string& word) { return IsAbout(prefix, word); });
  };
  if (about("model.init=")) {
    nlohmann::json defaults = BenchDefaults();
    defaults.erase("model");
    return OverrideConfig(defaults, overrides);
  }
  std::vector<std::string> lora, others;
  for (const std::string& word : overrides) {
    (IsAbout("lora.", word) ? lora : others).push_back(word);
  }
  Config config = OverrideConfig(BenchDefaults(), others);
  config.lora = OverrideConfig({{"model", {{"init", "random"}}}}, lora).lora;
  return config;
}

Batch RandomBatch(const Config& config, uint64_t step) {
  const auto vocabulary = static_cast<uint64_t>(config.model.vocab_size);
  return MakeBatch(config.train.batch, config.model.context, /*packed=*/false,
                   [&](int64_t row, const WindowSlot& slot) {
                     for (int64_t t = 0; t < config.model.context; ++t) {
                       const PhiloxBlock block =
                           RandomBlock(1, RandomStream::kBench, step,
                                       static_cast<uint64_t>(row * config.model.context + t));
                       slot.inputs[t] = static_cast<int64_t>(block[0] % vocabulary);
                       slot.targets[t] = static_cast<int64_t>(block[1] % vocabulary);
                     }
                     return config.model.context;
                   });
}

}  // namespace

int RunBench(const std::vector<std::string>& words) {
  const Args args(words, {"set", "steps", "warmup"}, {"set"}, 0);
  Config config = ConfigOf(args.All("set"));
  const int64_t steps = args.Integer("steps", 10, 1, 1e6);
  const int64_t warmup = args.Integer("warmup", 2, 0, 1e6);
  ChooseMatMul(config.train.matmul);
  const Ranks ranks = ReadRanks(Environment);
  std::unique_ptr<Group> group;
  if (ranks.size > 1) group = JoinRun(ranks, &config);
  const double peak_before = MeasureSgemm();
  ModelSource source;
  if (!config.model.init.empty()) {
    source = FindModel(config, "");
    config = WithModel(config, source);
  }
  const MemoryPlan plan = PlanRun(config);
  const Placement placement = plan.placement;
  Stepper stepper(config, placement, StartWeights(config, source, placement), group.get());
  stepper.SetMicroBatch(plan.micro_batch);
  std::vector<double> seconds;
  GradientResult result;
  for (int64_t step = 0; step < warmup + steps; ++step) {
    const auto start = std::chrono::steady_clock::now();
    result =
        stepper.Gradients(RandomBatch(config, static_cast<uint64_t>(step)), [] { return false; });
    if (!result.overflowed) stepper.Apply(config.optimizer.lr * 0.1, step + 1);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (step >= warmup) seconds.push_back(took.count());
  }
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  const auto tokens = static_cast<double>(config.train.batch * config.model.context);
  nlohmann::ordered_json line = {{"type", "bench"},
                                 {"tokens_per_s", tokens / median},
                                 {"median_step_s", median},
                                 {"fastest_step_s", seconds.front()},
                                 {"steps", steps},
                                 {"loss", result.loss},
                                 {"gflops", tokens / median * TrainingFlopsPerToken(config) * 1e-9},
                                 {"sgemm_gflops_per_core", {peak_before, MeasureSgemm()}},
                                 {"matmul", MatMulLibrary()},
                                 {"blas_kernels", BlasKernels()},
                                 {"processes", ranks.size},
                                 {"workers", placement.workers},
                                 {"threads", placement.workers * placement.threads},
                                 {"micro_batch", stepper.micro_batch()},
                                 {"device", Describe(placement)},
                                 {"parameters", CountParameters(config.model)},
                                 {"memory_bytes", UsedMemory(placement)},
                                 {"peak_bytes", PeakResidentBytes()},
                                 {"estimated_bytes", plan.estimate.total}};
  if (stepper.buckets() != nullptr) {
    // How many sums were on their way while the backward passes worked on the rest.
    line["buckets"] = stepper.buckets()->count();
    line["buckets_sent_early"] = stepper.buckets()->sent_early();
  }
  if (ranks.rank == 0) std::printf("%s\n", line.dump().c_str());
  if (group) group->Leave();
  return 0;
}

}  // namespace gpuctl::trainer
