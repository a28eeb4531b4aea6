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
#include "trainer/step/device.h"
#include "trainer/step/memory.h"
#include "trainer/step/stepper.h"
#include "trainer/train/report.h"

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
  const Config config = OverrideConfig(BenchDefaults(), args.All("set"));
  const auto steps = static_cast<int64_t>(args.Number("steps", 10, 1, 1e6));
  const auto warmup = static_cast<int64_t>(args.Number("warmup", 2, 0, 1e6));
  ChooseMatMul(config.train.matmul);
  const double peak_before = MeasureSgemm();
  const Placement placement = ChoosePlacement(config.train);
  Stepper stepper(config, placement, InitializeWeights(config.model, 1));
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
  const nlohmann::ordered_json line = {
      {"type", "bench"},
      {"tokens_per_s", tokens / median},
      {"median_step_s", median},
      {"fastest_step_s", seconds.front()},
      {"steps", steps},
      {"loss", result.loss},
      {"gflops", tokens / median * TrainingFlopsPerToken(config) * 1e-9},
      {"sgemm_gflops_per_core", {peak_before, MeasureSgemm()}},
      {"matmul", MatMulLibrary()},
      {"blas_kernels", BlasKernels()},
      {"workers", placement.workers},
      {"device", Describe(placement)},
      {"parameters", CountParameters(config.model)},
      {"memory_bytes", UsedMemory(placement)}};
  std::printf("%s\n", line.dump().c_str());
  return 0;
}

}  // namespace gpuctl::trainer
