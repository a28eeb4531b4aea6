#include "trainer/cli/loaded_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/sha256.h"
#include "trainer/base/text.h"
#include "trainer/checkpoint/base_digest.h"
#include "trainer/checkpoint/model_folder.h"
#include "trainer/linear/threads.h"
#include "trainer/lora/adapter_files.h"
#include "trainer/lora/adapters.h"
#include "trainer/lora/layout.h"
#include "trainer/model/parameters.h"
#include "trainer/model/pretrained.h"
#include "trainer/step/memory.h"

namespace gpuctl::trainer {
namespace {

std::string TensorsPath(const ModelPaths& paths) {
  return paths.checkpoint + "/" + paths.tensors.path;
}

// The weights of the model, and those of the adapter behind them.
struct Weights {
  AdapterLayout layout;
  std::vector<at::Tensor> flat;
};

// Puts the digests of a checkpoint's tensors, and of those of its adapters' model, into `digests`.
Weights Read(const ModelPaths& paths, const ModelConfig& model, const at::TensorOptions& options,
             FileDigests* digests) {
  const bool verifies = !paths.checkpoint.empty();
  const auto pretrained = [&] {
    return ReadPretrained(paths.model, model, options, verifies ? digests : nullptr);
  };
  Weights weights;
  if (paths.adapter.empty()) {
    weights.flat = pretrained();
    return weights;
  }
  Config config;
  config.model = model;
  config.lora = ReadAdapterConfig(paths.adapter, model);
  weights.layout = MakeAdapterLayout(config);
  weights.flat = pretrained();
  AppendInitialAdapters(weights.layout, 1, &weights.flat);
  ReadAdapterInto(paths.adapter, weights.layout, weights.flat,
                  verifies ? &(*digests)[TensorsPath(paths)] : nullptr);
  return weights;
}

// Throws unless the files are those of the checkpoint, and of its model.
void Check(const ModelPaths& paths, FileDigests digests) {
  const std::string tensors = TensorsPath(paths);
  CheckDigest(paths.checkpoint, paths.tensors, digests[tensors]);
  if (paths.adapter.empty()) return;
  digests.erase(tensors);
  CheckBase(paths.checkpoint, paths.model, BaseDigest(paths.model, digests));
}

Weights ReadAndCheck(const ModelPaths& paths, const ModelConfig& model,
                     const at::TensorOptions& options) {
  FileDigests digests;
  Weights weights;
  try {
    weights = Read(paths, model, options, &digests);
  } catch (const Error& error) {
    if (paths.checkpoint.empty() || error.code() != ExitCode::kBadData) throw;
    // That a file is damaged, or another, says more than what is wrong in it.
    const std::string tensors = TensorsPath(paths);
    CheckDigest(paths.checkpoint, paths.tensors, Sha256HexOfFile(tensors));
    if (!paths.adapter.empty()) CheckBase(paths.checkpoint, paths.model, BaseDigest(paths.model));
    throw;
  }
  if (!paths.checkpoint.empty()) Check(paths, std::move(digests));
  return weights;
}

// Returns the weights of the model with the adapter's merged into them.
std::vector<at::Tensor> ReadMerged(const ModelPaths& paths, const ModelConfig& model,
                                   const at::TensorOptions& options) {
  Weights weights = ReadAndCheck(paths, model, options);
  if (!paths.adapter.empty()) MergeAdapters(weights.layout, &weights.flat);
  return std::move(weights.flat);
}

// Throws where not even the weights fit: the system would end the process in the midst of a load.
void CheckWeightsFit(const std::string& path, const ModelConfig& model,
                     const Placement& placement) {
  const int64_t bytes =
      CountParameters(model) * static_cast<int64_t>(c10::elementSize(placement.dtype));
  const std::optional<int64_t> available = AvailableMemory(placement);
  if (!available || bytes <= *available) return;
  throw ConfigError(
      Format("load %s: its weights need %.1f GB in %s, and %.1f GB of memory are free",
             path.c_str(), static_cast<double>(bytes) / 1e9,
             placement.dtype == at::kFloat ? "fp32" : "16 bits a weight",
             static_cast<double>(*available) / 1e9),
      "take a machine with more memory, or a smaller model");
}

}  // namespace

ModelPaths PathsOf(const Args& args, const std::string& command) {
  const std::string checkpoint = args.Get("checkpoint");
  const bool adapted = args.Has("checkpoint") && HoldsAdapter(checkpoint);
  if (args.Has("checkpoint") && args.Has("adapter")) {
    throw ConfigError(command + ": --adapter belongs to --model, not to --checkpoint");
  }
  if (args.Has("adapter") && args.Get("adapter").empty()) {
    throw ConfigError(command + ": --adapter names no folder");
  }
  if (adapted && !args.Has("model")) {
    throw ConfigError(command + ": " + checkpoint + " holds adapters and not their model",
                      "give the model's folder as --model, too");
  }
  if (args.Has("checkpoint") == args.Has("model") && !adapted) {
    throw ConfigError(command + ": give one of --checkpoint and --model");
  }
  if (!args.Has("checkpoint")) return {args.Get("model"), args.Get("adapter"), "", {}};
  const ManifestEntry tensors = VerifyButTensors(checkpoint);
  if (!adapted) return {checkpoint, "", checkpoint, tensors};
  return {args.Get("model"), checkpoint, checkpoint, tensors};
}

LoadedModel LoadModel(const ModelPaths& paths, const ModelFolder& folder, int64_t context,
                      const std::string& device) {
  ModelConfig model = folder.model;
  model.context = std::min(model.context, context);
  TrainConfig where;
  where.device = device;
  const Placement placement = ChoosePlacement(where);
  CheckWeightsFit(paths.model, model, placement);
  UseOneThreadOfTorch();
  const auto options = at::TensorOptions(placement.device);
  return {placement, MakeGptShape(model, options.dtype(at::kFloat)),
          ArrangeWeights(ReadMerged(paths, model, options.dtype(placement.dtype)), model)};
}

}  // namespace gpuctl::trainer
