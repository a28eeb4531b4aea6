#include "trainer/train/model_source.h"

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/text.h"
#include "trainer/checkpoint/base_digest.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/paged_tensor.h"
#include "trainer/config/adapter_config.h"
#include "trainer/config/families.h"
#include "trainer/data/bytes_of_text.h"
#include "trainer/data/corpus.h"
#include "trainer/data/training_data.h"
#include "trainer/lora/adapter_files.h"
#include "trainer/lora/adapters.h"
#include "trainer/lora/layout.h"
#include "trainer/model/parameters.h"
#include "trainer/model/pretrained.h"

namespace gpuctl::trainer {
namespace {

using nlohmann::json;

void FindCheckpoint(const std::string& root, const std::string& resume, ModelSource* source) {
  if (!root.empty()) RemoveLeftovers(root);
  if (resume.empty()) return;
  if (resume != "auto") {
    source->loaded = std::make_shared<LoadedCheckpoint>(LoadCheckpoint(resume));
  } else if (root.empty()) {
    throw ConfigError("resume auto: no checkpoint directory", "give --checkpoint-dir DIR");
  } else {
    source->loaded = LoadNewestCheckpoint(root, &source->skipped);
  }
  if (source->loaded) source->checkpoint = source->loaded->path;
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

void CheckFits(const ModelConfig& model, const Config& config, const std::string& path,
               bool resumes) {
  const int64_t context = config.model.context;
  if (context > model.context) {
    throw ConfigError(
        Format("start from %s: model.context %lld is longer than the model's %lld", path.c_str(),
               static_cast<long long>(context), static_cast<long long>(model.context)),
        "set model.context");
  }
  if (UsesPreparedData(config.data)) return;
  if (!resumes) CheckBytesAreMeant(path, config.data);
  if (model.vocab_size < kByteVocabulary) {
    throw ConfigError(
        Format("start from %s: text is trained as bytes, which need %lld tokens; the "
               "model has %lld",
               path.c_str(), static_cast<long long>(kByteVocabulary),
               static_cast<long long>(model.vocab_size)));
  }
}

// Refuses a checkpoint of the other kind: adapters, or a whole model.
void CheckKind(const Config& config, const std::string& checkpoint) {
  const bool adapted = config.lora.rank > 0 || !config.lora.init.empty();
  if (checkpoint.empty() || HoldsAdapter(checkpoint) == adapted) return;
  throw ConfigError("resume from " + checkpoint +
                        (adapted ? ": it holds a whole model, and this run trains "
                                   "adapters"
                                 : ": it holds adapters, and this run trains the whole "
                                   "model"),
                    adapted ? "set lora.rank to 0" : "set lora.rank as it was");
}

// Completes a source that has the model, for a run with adapters.
void FindAdapters(const Config& config, ModelSource* source) {
  source->lora = config.lora;
  if (!config.lora.init.empty()) {
    source->lora = ReadAdapterConfig(
        source->checkpoint.empty() ? config.lora.init : source->checkpoint, source->model);
    source->lora.init = config.lora.init;
    source->lora.base_dtype = config.lora.base_dtype;
  }
  Config resolved = config;
  resolved.model = source->model;
  resolved.lora = source->lora;
  source->config = LoraToPeft(PeftNames(MakeAdapterLayout(resolved)), config.model.init);
  source->checks_base = !source->checkpoint.empty();
}

// Returns a weight as it stays: packed or in strips, or in the dtype and on the device of the run.
// May change `weight` and return its memory: the caller does not use it any more.
at::Tensor Frozen(const AdapterLayout& layout, size_t spec, const at::Tensor& weight,
                  const Placement& placement) {
  for (const AdaptedMatrix& matrix : layout.matrices) {
    if (matrix.spec != spec || matrix.packed_rows.empty()) continue;
    return FrozenMatrix::Pack(weight, matrix.packed_rows, layout.specs[spec].slices[0].name)
        .to(placement.device);
  }
  const at::Tensor placed = weight.to(placement.device, placement.dtype);
  return FrozenMatrix::GainsByStrips(placed) ? FrozenMatrix::PutInStrips(placed) : placed;
}

// Reads the model that the adapters lie beside, and what StartWeights says of its digest.
std::vector<at::Tensor> ReadBase(const Config& config, const ModelSource& source,
                                 const AdapterLayout& layout, const Placement& placement,
                                 std::unique_ptr<BackgroundBaseDigest>* base_digest) {
  const std::string& init = config.model.init;
  const bool checks = source.checks_base;
  const auto keep = [&](size_t spec, const at::Tensor& weight) {
    return layout.frozen[spec] ? Frozen(layout, spec, weight, placement) : weight;
  };
  if (!checks && base_digest != nullptr) {
    *base_digest = std::make_unique<BackgroundBaseDigest>(init);
  }
  FileDigests digests;
  std::vector<at::Tensor> flat;
  try {
    flat = ReadPretrained(init, config.model, keep, checks ? &digests : nullptr);
  } catch (const Error& error) {
    // That it is another model says more than what is wrong in it.
    if (checks && error.code() == ExitCode::kBadData) {
      CheckBase(source.checkpoint, init, BaseDigest(init));
    }
    throw;
  }
  const std::string digest = checks ? BaseDigest(init, digests) : "";
  if (!source.base_stamp.empty()) CheckUnchanged(init, source.base_stamp);
  if (checks) {
    CheckBase(source.checkpoint, init, digest);
    if (base_digest != nullptr) *base_digest = BackgroundBaseDigest::Known(digest);
  }
  return flat;
}

ModelSource Complete(const Config& config, ModelSource source) {
  CheckKind(config, source.checkpoint);
  const std::string& init = config.model.init;
  if (init.empty()) {
    source.model = config.model;
    source.config = ModelToHuggingFace(config.model);
    return source;
  }
  const bool adapted = config.lora.rank > 0 || !config.lora.init.empty();
  const std::string& path = source.checkpoint.empty() || adapted ? init : source.checkpoint;
  if (adapted) {
    ReadModelFolder(init);  // says first what is wrong with it
    source.base_stamp = BaseStamp(init);
  }
  const ModelFolder folder = ReadModelFolder(path);
  if (!source.checkpoint.empty() && !adapted) CheckSameModel(init, folder);
  CheckFits(folder.model, config, path, /*resumes=*/!source.checkpoint.empty());
  if (path == init) CheckPretrained(path, folder.model);
  source.model = folder.model;
  source.model.context = ContextOf(config.model, folder.model);
  source.model.init = init;
  source.config = folder.config;
  source.files = ReadKeptFiles(path);
  if (adapted) FindAdapters(config, &source);
  return source;
}

}  // namespace

ModelSource FindModel(const Config& config, const std::string& resume) {
  ModelSource source;
  FindCheckpoint(config.checkpoint.dir, resume, &source);
  return Complete(config, std::move(source));
}

ModelSource FindModelOf(const Config& config, const std::string& checkpoint) {
  ModelSource source;
  source.checkpoint = checkpoint;
  return Complete(config, std::move(source));
}

std::vector<at::Tensor> StartWeights(const Config& config, const ModelSource& source,
                                     const Placement& placement,
                                     std::unique_ptr<BackgroundBaseDigest>* base_digest) {
  const at::TensorOptions wide(at::kFloat);
  const auto seed = static_cast<uint64_t>(config.train.seed);
  if (config.lora.rank == 0 && !source.checkpoint.empty()) {
    std::vector<at::Tensor> zeros;
    for (const ParameterSpec& spec : ParameterSpecs(config.model)) {
      zeros.push_back(PagedZeros(spec.shape, wide));
    }
    return zeros;
  }
  if (config.model.init.empty()) {
    std::vector<at::Tensor> flat = InitializeWeights(config.model, seed);
    if (config.lora.rank == 0) return flat;
    const AdapterLayout layout = MakeAdapterLayout(config);
    for (size_t spec = 0; spec < flat.size(); ++spec) {
      if (layout.frozen[spec]) flat[spec] = Frozen(layout, spec, flat[spec], placement);
    }
    AppendInitialAdapters(layout, seed, &flat);
    return flat;
  }
  if (config.lora.rank > 0) {
    const AdapterLayout layout = MakeAdapterLayout(config);
    std::vector<at::Tensor> flat = ReadBase(config, source, layout, placement, base_digest);
    AppendInitialAdapters(layout, seed, &flat);
    const bool reads = !config.lora.init.empty() && source.checkpoint.empty();
    if (reads) ReadAdapterInto(config.lora.init, layout, flat);
    return flat;
  }
  return ReadPretrained(config.model.init, config.model, wide);
}

}  // namespace gpuctl::trainer
