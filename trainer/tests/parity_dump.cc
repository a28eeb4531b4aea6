// Writes the data that parity.py checks against PyTorch: weights, a batch, its loss and gradients,
// and some optimizer steps with their gradients.
//
// usage: trainer_parity_dump DIRECTORY

#include <ATen/ATen.h>

#include <cstdio>
#include <string>

#include "trainer/base/files.h"
#include "trainer/base/philox.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/config/families.h"
#include "trainer/data/windows.h"
#include "trainer/step/stepper.h"

namespace gpuctl::trainer {
namespace {

constexpr int64_t kSteps = 5;

Config ParityConfig() {
  Config config;
  config.model = {3, 48, 6, 2, 80, 150, 300, 10000.0, 1e-5};  // longer than one attention block
  config.optimizer.grad_clip = 0.5;
  config.train.batch = 5;
  config.train.micro_batch = 2;
  return config;
}

Batch ParityBatch(const Config& config) {
  return MakeBatch(config.train.batch, config.model.context, /*packed=*/false,
                   [&](int64_t row, const WindowSlot& slot) {
                     int64_t scored = 0;
                     for (int64_t t = 0; t < config.model.context; ++t) {
                       const PhiloxBlock block =
                           RandomBlock(2, RandomStream::kBench, 0,
                                       static_cast<uint64_t>(row * config.model.context + t));
                       slot.inputs[t] = block[0] % 300;
                       slot.targets[t] = block[1] % 5 == 0 ? kIgnore : int64_t{block[2] % 300};
                       scored += slot.targets[t] >= 0;
                     }
                     return scored;
                   });
}

NamedTensors Copies(const NamedTensors& live) {
  NamedTensors copies;
  for (const auto& [name, tensor] : live) copies.emplace_back(name, tensor.clone());
  return copies;
}

// Returns weights far from their usual initial values, so that no term of a gradient is nearly 0.
std::vector<at::Tensor> LargeWeights(const Config& config) {
  std::vector<at::Tensor> weights = InitializeWeights(config.model, 5);
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i].dim() == 2) weights[i].mul_(8.0);
    if (weights[i].dim() == 1) weights[i].add_(weights[0].view({-1}).narrow(0, 0, 48));
  }
  return weights;
}

void Dump(const std::string& directory) {
  MakeDirectories(directory);
  const Config config = ParityConfig();
  const std::vector<ParameterSpec> specs = ParameterSpecs(config.model);
  Stepper stepper(config, {c10::Device(c10::kCPU), at::kFloat, 2}, LargeWeights(config));
  const Batch batch = ParityBatch(config);
  NamedTensors tensors = {{"inputs", batch.inputs_bt}, {"targets", batch.targets_bt}};
  nlohmann::json steps = nlohmann::json::array();
  for (int64_t t = 1; t <= kSteps; ++t) {
    const std::string prefix = std::to_string(t) + ".";
    for (const auto& [name, tensor] : Copies(stepper.Weights())) {
      tensors.emplace_back(prefix + "before." + name, tensor);
    }
    const GradientResult result = stepper.Gradients(batch, [] { return false; });
    NamedTensors gradients;
    AppendSlices(specs, stepper.CurrentGradients(), prefix + "gradient.", &gradients);
    for (const auto& entry : Copies(gradients)) tensors.push_back(entry);
    const double lr = 1e-3 * static_cast<double>(t);
    stepper.Apply(lr, t);
    for (const auto& [name, tensor] : Copies(stepper.Weights())) {
      tensors.emplace_back(prefix + "after." + name, tensor);
    }
    steps.push_back({{"loss", result.loss}, {"norm", result.norm}, {"lr", lr}});
  }
  WriteSafetensors(directory + "/parity.safetensors", tensors, {{"format", "pt"}});
  const nlohmann::json facts = {{"model", ModelToHuggingFace(config.model)},
                                {"optimizer", ConfigToJson(config)["optimizer"]},
                                {"steps", steps}};
  WriteFileDurably(directory + "/parity.json", facts.dump(2));
}

}  // namespace
}  // namespace gpuctl::trainer

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
    return 64;
  }
  gpuctl::trainer::Dump(argv[1]);
  return 0;
}
