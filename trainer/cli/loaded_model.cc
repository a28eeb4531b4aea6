#include "trainer/cli/loaded_model.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/checkpoint/base_digest.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/lora/adapter_files.h"
#include "trainer/lora/adapters.h"
#include "trainer/lora/layout.h"
#include "trainer/model/pretrained.h"

namespace gpuctl::trainer {
namespace {

// Returns the weights of the model with the adapter's merged into them.
std::vector<at::Tensor> ReadMerged(const ModelPaths& paths, const ModelConfig& model,
                                   const at::TensorOptions& options) {
  if (paths.adapter.empty()) return ReadPretrained(paths.model, model, options);
  Config config;
  config.model = model;
  config.lora = ReadAdapterConfig(paths.adapter, model);
  const AdapterLayout layout = MakeAdapterLayout(config);
  std::vector<at::Tensor> flat = ReadPretrained(paths.model, model, options);
  AppendInitialAdapters(layout, 1, &flat);
  ReadAdapterInto(paths.adapter, layout, flat);
  MergeAdapters(layout, &flat);
  return flat;
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
  if (args.Has("checkpoint")) VerifyCheckpoint(checkpoint);
  if (!adapted) return {args.Get("model", checkpoint), args.Get("adapter")};
  CheckBase(checkpoint, args.Get("model"), BaseDigest(args.Get("model")));
  return {args.Get("model"), checkpoint};
}

LoadedModel LoadModel(const ModelPaths& paths, const ModelFolder& folder, int64_t context,
                      const std::string& device) {
  ModelConfig model = folder.model;
  model.context = std::min(model.context, context);
  TrainConfig where;
  where.device = device;
  const Placement placement = ChoosePlacement(where);
  at::set_num_threads(1);
  const auto options = at::TensorOptions(placement.device);
  return {placement, MakeGptShape(model, options.dtype(at::kFloat)),
          ArrangeWeights(ReadMerged(paths, model, options.dtype(placement.dtype)), model)};
}

}  // namespace gpuctl::trainer
