#include "trainer/train/model_source.h"

#include <ATen/ops/zeros.h>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/text.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/families.h"
#include "trainer/data/corpus.h"
#include "trainer/data/training_data.h"
#include "trainer/model/parameters.h"
#include "trainer/model/pretrained.h"

namespace gpuctl::trainer {
namespace {

using nlohmann::json;

void FindCheckpoint(const std::string& root, const std::string& resume, ModelSource* source) {
  if (!root.empty()) RemoveLeftovers(root);
  source->checkpoint = resume;
  if (resume != "auto") return;
  if (root.empty()) {
    throw ConfigError("resume auto: no checkpoint directory", "give --checkpoint-dir DIR");
  }
  source->checkpoint = FindNewestCheckpoint(root, &source->skipped);
}

// Returns config.json without what a run changes in it.
json Lasting(json config) {
  for (const char* key : {"dtype", "torch_dtype"}) config.erase(key);
  return config;
}

void CheckSameModel(const std::string& init, const ModelFolder& folder) {
  if (!Exists(init + "/config.json")) return;
  if (Lasting(ReadModelFolder(init).config) == Lasting(folder.config)) return;
  throw ConfigError("resume from " + folder.path +
                    ": another model: its config.json is not that of " + init);
}

void CheckFits(const ModelConfig& model, const Config& config, const std::string& path) {
  const int64_t context = config.model.context;
  if (context > model.context) {
    throw ConfigError(
        Format("start from %s: model.context %lld is longer than the model's %lld", path.c_str(),
               static_cast<long long>(context), static_cast<long long>(model.context)),
        "set model.context");
  }
  if (UsesPreparedData(config.data)) return;
  const bool has_tokenizer = Exists(path + "/tokenizer.json") || Exists(path + "/tokenizer.model");
  if (has_tokenizer && config.data.tokens != "bytes") {
    throw ConfigError(
        "start from " + path + ": the model has a tokenizer, and the data is no tokens yet",
        "gpuctl-trainer prepare --model " + path +
            " --data FILE --out FOLDER makes them; data.tokens=bytes trains on bytes all the same");
  }
  if (model.vocab_size < kByteVocabulary) {
    throw ConfigError(
        Format("start from %s: text is trained as bytes, which need %lld tokens; the "
               "model has %lld",
               path.c_str(), static_cast<long long>(kByteVocabulary),
               static_cast<long long>(model.vocab_size)));
  }
}

}  // namespace

ModelSource FindModel(const Config& config, const std::string& resume) {
  ModelSource source;
  FindCheckpoint(config.checkpoint.dir, resume, &source);
  const std::string& init = config.model.init;
  if (init.empty()) {
    source.model = config.model;
    source.config = ModelToHuggingFace(config.model);
    return source;
  }
  if (!source.checkpoint.empty() && resume != "auto") VerifyCheckpoint(source.checkpoint);
  const std::string& path = source.checkpoint.empty() ? init : source.checkpoint;
  const ModelFolder folder = ReadModelFolder(path);
  if (!source.checkpoint.empty()) CheckSameModel(init, folder);
  CheckFits(folder.model, config, path);
  source.model = folder.model;
  source.model.context = config.model.context;
  source.model.init = init;
  source.config = folder.config;
  source.files = ReadKeptFiles(path);
  return source;
}

std::vector<at::Tensor> StartWeights(const Config& config, const ModelSource& source) {
  if (config.model.init.empty()) {
    return InitializeWeights(config.model, static_cast<uint64_t>(config.train.seed));
  }
  if (source.checkpoint.empty()) {
    return ReadPretrained(config.model.init, config.model, at::TensorOptions(at::kFloat));
  }
  std::vector<at::Tensor> zeros;
  for (const ParameterSpec& spec : ParameterSpecs(config.model)) {
    zeros.push_back(at::zeros(spec.shape, at::kFloat));
  }
  return zeros;
}

}  // namespace gpuctl::trainer
