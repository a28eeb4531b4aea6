// Writes the data that families.py checks against its own models: for each model folder the loss
// and the gradients of the batch in it.
//
// usage: trainer_families_dump FOLDER…
//
// A folder has batch.safetensors beside the model, with "inputs" and "targets", int64 [rows, T],
// and "starts" where windows have several documents. The program writes gradients.safetensors and
// loss.json there.

#include <ATen/ATen.h>

#include <cstdio>
#include <string>

#include "trainer/base/files.h"
#include "trainer/checkpoint/model_folder.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/model/parameters.h"
#include "trainer/model/pretrained.h"
#include "trainer/train/stepper.h"

namespace gpuctl::trainer {
namespace {

void Dump(const std::string& path) {
  const ModelFolder folder = ReadModelFolder(path);
  const std::map<std::string, at::Tensor> stored = ReadSafetensors(path + "/batch.safetensors");
  const at::Tensor &inputs_bt = stored.at("inputs"), &targets_bt = stored.at("targets");
  Config config;
  config.model = folder.model;
  config.model.context = inputs_bt.size(1);
  config.train.batch = inputs_bt.size(0);
  config.train.micro_batch = 2;
  const auto starts = stored.find("starts");
  const Batch batch = {inputs_bt, targets_bt,
                       starts == stored.end() ? at::Tensor() : starts->second,
                       at::ge(targets_bt, 0).sum().item<int64_t>()};
  Stepper stepper(config, {c10::Device(c10::kCPU), at::kFloat, 2},
                  ReadPretrained(path, config.model, at::TensorOptions(at::kFloat)));
  const GradientResult result = stepper.Gradients(batch, [] { return false; });
  NamedTensors live, gradients;
  AppendSlices(ParameterSpecs(config.model), stepper.CurrentGradients(), "", &live);
  for (const auto& [name, tensor] : live) gradients.emplace_back(name, tensor.clone());
  WriteSafetensors(path + "/gradients.safetensors", gradients, {{"format", "pt"}});
  const nlohmann::json facts = {{"loss", result.loss}, {"norm", result.norm}};
  WriteFileDurably(path + "/loss.json", facts.dump());
}

}  // namespace
}  // namespace gpuctl::trainer

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s FOLDER…\n", argv[0]);
    return 64;
  }
  for (int i = 1; i < argc; ++i) gpuctl::trainer::Dump(argv[i]);
  return 0;
}
