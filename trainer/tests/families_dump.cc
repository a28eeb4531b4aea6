// Writes the data that families.py and lora.py check against their own models: for each model
// folder the loss and the gradients of the batch in it.
//
// usage: trainer_families_dump FOLDER…
//
// A folder has batch.safetensors beside the model, with "inputs" and "targets", int64 [rows, T],
// and "starts" where windows have several documents. The program writes gradients.safetensors and
// loss.json there. With "reference", fp32 [rows], the rows are pairs of answers, and "dpo" has
// beta and label_smoothing; the log-probability of each row is then in loss.json, too. With a PEFT
// adapter in adapter/ the gradients are those of what it trains, under its names; with a file "nf4"
// the model is packed. Then the program also writes the loss of the merged weights, and with
// dropout the factors of each adapter's inputs, dropout.safetensors. All of it is computed on
// $TRAINER_TEST_DEVICE (such as cuda:0), else on the CPU. There it also says whether recomputed
// activations give the same bits, and for a whole model with whole windows writes next.safetensors:
// the logits [T, V] after each beginning of the first window, with the keys and values kept.

#include <ATen/ATen.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "trainer/base/files.h"
#include "trainer/checkpoint/model_folder.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/linear/dropout.h"
#include "trainer/lora/adapter_files.h"
#include "trainer/lora/adapters.h"
#include "trainer/lora/layout.h"
#include "trainer/model/parameters.h"
#include "trainer/model/pretrained.h"
#include "trainer/model/transfer.h"
#include "trainer/step/stepper.h"
#include "trainer/train/generate.h"
#include "trainer/train/model_source.h"

namespace gpuctl::trainer {
namespace {

constexpr int64_t kFirstWindow = 1000;

// Two workers on the CPU, or $TRAINER_TEST_DEVICE.
Placement ChosenPlacement() {
  const char* const device = std::getenv("TRAINER_TEST_DEVICE");
  if (device == nullptr) return {c10::Device(c10::kCPU), at::kFloat, 2};
  return {c10::Device(device), at::kFloat, 1};
}

const Placement kPlacement = ChosenPlacement();

// Returns the weights as a run gets them, with the adapter of the folder.
std::vector<at::Tensor> WeightsOf(const std::string& path, Config config,
                                  const AdapterLayout& layout) {
  config.model.init = path;
  std::vector<at::Tensor> flat = StartWeights(config, ModelSource(), kPlacement);
  if (layout.adapted()) ReadAdapterInto(path + "/adapter", layout, flat);
  return flat;
}

// Returns the loss of the model with merged adapters.
double MergedLoss(const std::string& path, Config config, const Batch& batch) {
  config.lora.base_dtype = "auto";
  const AdapterLayout layout = MakeAdapterLayout(config);
  std::vector<at::Tensor> flat =
      ReadPretrained(path, config.model, at::TensorOptions(kPlacement.device));
  AppendInitialAdapters(layout, /*seed=*/1, &flat);
  ReadAdapterInto(path + "/adapter", layout, flat);
  MergeAdapters(layout, &flat);
  config.lora = {};
  Stepper stepper(config, kPlacement, flat);
  return stepper.SummedLossOf(batch) / static_cast<double>(batch.scored);
}

void WriteDropout(const std::string& path, const Config& config, const Batch& batch) {
  const DropoutDraw draw = {config.lora.dropout, static_cast<uint64_t>(config.train.seed),
                            batch.first_window, batch.inputs_bt.size(1)};
  NamedTensors factors;
  for (const AdaptedMatrix& matrix : MakeAdapterLayout(config).matrices) {
    for (size_t i = 0; i < matrix.parts.size(); ++i) {
      factors.emplace_back(
          matrix.modules[i],
          ToHost(DropoutFactors(draw, matrix.parts[i].module, batch.inputs_bt.numel(),
                                matrix.inputs, kPlacement.device)));
    }
  }
  WriteSafetensors(path + "/dropout.safetensors", factors, {{"format", "pt"}});
}

// Returns whether loss and gradients have the same bits when no activations are kept.
bool RecomputesAlike(const std::string& path, Config config, const Batch& batch,
                     const GradientResult& kept, const std::vector<at::Tensor>& gradients) {
  config.train.recompute = true;
  Stepper stepper(config, kPlacement, WeightsOf(path, config, MakeAdapterLayout(config)));
  const GradientResult again = stepper.Gradients(batch, [] { return false; });
  const std::vector<at::Tensor> others = stepper.CurrentGradients();
  bool alike = again.loss == kept.loss && again.norm == kept.norm;
  for (size_t i = 0; i < gradients.size(); ++i) {
    alike = alike && others[i].defined() == gradients[i].defined() &&
            (!others[i].defined() || at::equal(others[i], gradients[i]));
  }
  return alike;
}

void WriteNextLogits(const std::string& path, const Stepper& stepper, const at::Tensor& inputs_t) {
  NextToken next(stepper.shape(), stepper.weights());
  std::vector<int64_t> tokens;
  std::vector<at::Tensor> logits;
  for (int64_t i = 0; i < inputs_t.size(0); ++i) {
    tokens.push_back(inputs_t[i].item<int64_t>());
    logits.push_back(next.Logits(tokens).clone());
  }
  WriteSafetensors(path + "/next.safetensors", {{"logits", at::stack(logits)}}, {});
}

void Dump(const std::string& path) {
  const ModelFolder folder = ReadModelFolder(path);
  const std::map<std::string, at::Tensor> stored = ReadSafetensors(path + "/batch.safetensors");
  const at::Tensor &inputs_bt = stored.at("inputs"), &targets_bt = stored.at("targets");
  Config config;
  config.model = folder.model;
  config.model.context = inputs_bt.size(1);
  config.train.batch = inputs_bt.size(0);
  config.train.micro_batch = 2;
  if (Exists(path + "/adapter")) config.lora = ReadAdapterConfig(path + "/adapter", config.model);
  if (Exists(path + "/nf4")) config.lora.base_dtype = "nf4";
  const auto starts = stored.find("starts");
  const auto reference = stored.find("reference");
  if (reference != stored.end()) {
    config.train.pairs = true;
    config.train.batch /= 2;
    config.train.micro_batch = 1;
    const double* dpo = stored.at("dpo").data_ptr<double>();
    config.dpo = {dpo[0], dpo[1]};
  }
  Batch batch = {inputs_bt, targets_bt, starts == stored.end() ? at::Tensor() : starts->second,
                 at::ge(targets_bt, 0).sum().item<int64_t>(), kFirstWindow};
  if (reference != stored.end()) {
    const float* begin = reference->second.data_ptr<float>();
    batch.reference.assign(begin, begin + inputs_bt.size(0));
  }
  Stepper stepper(config, kPlacement, WeightsOf(path, config, MakeAdapterLayout(config)));
  const GradientResult result = stepper.Gradients(batch, [] { return false; });
  NamedTensors live, gradients;
  nlohmann::json facts = {{"loss", result.loss}, {"norm", result.norm}};
  if (config.train.pairs) {
    facts["right"] = result.pairs.right;
    facts["margin"] = result.pairs.margin;
    facts["log_probabilities"] = stepper.LogProbabilitiesOf(batch);
  }
  if (stepper.layout().adapted()) {
    live = NameAdapter(stepper.layout(), stepper.CurrentGradients());
    facts["merged"] = MergedLoss(path, config, batch);
    facts["loss_without_dropout"] = stepper.SummedLossOf(batch) / static_cast<double>(batch.scored);
    if (config.lora.dropout > 0) WriteDropout(path, config, batch);
  } else {
    AppendSlices(ParameterSpecs(config.model), stepper.CurrentGradients(), "", &live);
  }
  if (kPlacement.device.is_cpu()) {
    facts["recomputes_alike"] =
        RecomputesAlike(path, config, batch, result, stepper.CurrentGradients());
    const bool plain = !stepper.layout().adapted() && !config.train.pairs;
    if (plain && !batch.starts_bt.defined()) WriteNextLogits(path, stepper, inputs_bt[0]);
  }
  for (const auto& [name, tensor] : live) gradients.emplace_back(name, ToHost(tensor).clone());
  WriteSafetensors(path + "/gradients.safetensors", gradients, {{"format", "pt"}});
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
