#include "trainer/lora/adapter_files.h"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <memory>
#include <set>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/text.h"
#include "trainer/checkpoint/folder_files.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/stored_file.h"
#include "trainer/config/adapter_config.h"
#include "trainer/model/finite.h"
#include "trainer/model/pretrained.h"

namespace gpuctl::trainer {
namespace {

using Shapes = std::map<std::string, std::vector<int64_t>>;

constexpr char kPrefix[] = "base_model.model.";
constexpr char kEmbedding[] = "model.embed_tokens";
constexpr char kHeadWeight[] = "lm_head.weight";
constexpr char kTiedHead[] = "base_model.model.lm_head.weight";
constexpr const char* kKinds[] = {".lora_A.weight", ".lora_B.weight", ".lora_magnitude_vector"};

std::string ConfigPath(const std::string& folder) { return folder + "/adapter_config.json"; }
std::string TensorsPath(const std::string& folder) { return folder + "/adapter_model.safetensors"; }

// Opens the tensors, of the dtypes that weights have.
std::unique_ptr<const StoredFile> OpenTensors(const std::string& folder) {
  const std::string path = TensorsPath(folder);
  if (!Exists(path)) {
    throw DataError("read adapter " + path + ": no such file",
                    "adapters of other formats (.bin) cannot be read");
  }
  auto file = std::make_unique<const StoredFile>(path);
  CheckFloats(*file);
  return file;
}

// Returns a tensor's name without PEFT's prefix, or "" if it has none.
std::string WithoutPrefix(const std::string& name) {
  return name.rfind(kPrefix, 0) == 0 ? name.substr(sizeof kPrefix - 1) : "";
}

// Returns the module of an adapter's tensor, or "" for another tensor.
std::string AdaptedModule(const std::string& tensor) {
  const std::string name = WithoutPrefix(tensor);
  for (const std::string kind : kKinds) {
    if (name.size() <= kind.size()) continue;
    const size_t module = name.size() - kind.size();
    if (name.compare(module, kind.size(), kind) == 0) return name.substr(0, module);
  }
  return "";
}

std::vector<ParameterSpec> TrainedSpecs(const AdapterLayout& layout) {
  std::vector<ParameterSpec> trained;
  for (size_t i = 0; i < layout.specs.size(); ++i) {
    if (!layout.frozen[i]) trained.push_back(layout.specs[i]);
  }
  return trained;
}

// Throws unless the file has just the tensors of the layout.
void CheckTensors(const StoredFile& file, const AdapterLayout& layout, const std::string& folder) {
  Shapes shapes;
  for (const auto& [name, shape] : StoredShapes(TrainedSpecs(layout))) {
    shapes[kPrefix + name] = shape;
  }
  if (layout.SavesTiedHead()) shapes[kTiedHead] = layout.specs[0].shape;
  std::map<std::string, StoredTensor> stored;
  for (const StoredTensor& tensor : file.tensors()) stored[tensor.name] = tensor;
  CheckStoredShapes(
      shapes, stored, [](const std::string&) { return false; },
      "read adapter " + TensorsPath(folder) + ": its tensors are not those of the adapter");
}

// Sets targets and modules_to_save to the modules of the tensors.
void NameModules(const StoredFile& file, const ModelConfig& model, const std::string& path,
                 LoraConfig* lora) {
  std::set<std::string> weights, targets, saved;
  for (const auto& [name, shape] : StoredShapes(ParameterSpecs(model))) weights.insert(name);
  if (model.tied_head) weights.insert(kHeadWeight);
  for (const StoredTensor& tensor : file.tensors()) {
    const std::string module = AdaptedModule(tensor.name);
    const std::string weight = module.empty() ? WithoutPrefix(tensor.name) : module + ".weight";
    if (weights.count(weight) == 0) {
      throw DataError("read adapter " + path + ": " + Printable(tensor.name) +
                      " belongs to nothing in the model that can be trained here");
    }
    (module.empty() ? saved : targets).insert(weight.substr(0, weight.rfind('.')));
  }
  if (targets.empty()) throw DataError("read adapter " + path + ": it has no lora_A");
  // PEFT would have changed the one, and left the other as it was.
  if (model.tied_head && saved.count(kEmbedding) != saved.count("lm_head")) {
    throw DataError("read adapter " + path + ": it has only one of " + kEmbedding +
                    " and lm_head, which are one matrix in the model");
  }
  lora->targets.assign(targets.begin(), targets.end());
  lora->modules_to_save.assign(saved.begin(), saved.end());
}

}  // namespace

LoraConfig ReadAdapterConfig(const std::string& folder, const ModelConfig& model) {
  if (!IsDirectory(folder)) throw DataError("read adapter " + folder + ": no such directory");
  if (!Exists(ConfigPath(folder))) {
    throw DataError("read adapter " + ConfigPath(folder) + ": no such file");
  }
  Config config;
  config.model = model;
  const nlohmann::json peft = ReadJsonObject(ConfigPath(folder));
  config.lora = LoraFromPeft(peft, ConfigPath(folder));
  const std::unique_ptr<const StoredFile> file = OpenTensors(folder);
  NameModules(*file, model, TensorsPath(folder), &config.lora);
  CheckSaved(ParseAdapterConfig(peft, ConfigPath(folder)), config.lora.modules_to_save, folder);
  try {
    const AdapterLayout layout = MakeAdapterLayout(config);
    CheckTensors(*file, layout, folder);
    return PeftNames(layout);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kBadConfig) throw;
    throw DataError("read adapter " + TensorsPath(folder) + ": " + error.what(), error.hint());
  }
}

void ReadAdapterInto(const std::string& folder, const AdapterLayout& layout,
                     const std::vector<at::Tensor>& flat, std::string* sha256) {
  CheckTensors(*OpenTensors(folder), layout, folder);
  LoadAdapter(layout, ReadSafetensors(TensorsPath(folder), sha256),
              "adapter " + TensorsPath(folder), flat);
}

NamedTensors NameAdapter(const AdapterLayout& layout, const std::vector<at::Tensor>& flat) {
  std::vector<at::Tensor> trained(flat.size());
  for (size_t i = 0; i < flat.size(); ++i) {
    if (!layout.frozen[i]) trained[i] = flat[i];
  }
  NamedTensors named;
  AppendSlices(layout.specs, trained, kPrefix, &named);
  if (layout.SavesTiedHead()) named.emplace_back(kTiedHead, flat[0]);
  return named;
}

void LoadAdapter(const AdapterLayout& layout, std::map<std::string, at::Tensor> stored,
                 const std::string& what, const std::vector<at::Tensor>& flat) {
  std::vector<at::Tensor> trained(flat.size());
  for (size_t i = 0; i < flat.size(); ++i) {
    if (!layout.frozen[i]) trained[i] = flat[i];
  }
  const auto head = stored.find(kTiedHead);
  const at::Tensor tied =
      layout.SavesTiedHead() && head != stored.end() ? head->second : at::Tensor();
  const auto embedded = stored.find(std::string(kPrefix) + layout.specs[0].slices[0].name);
  const at::Tensor embedding =
      layout.SavesTiedHead() && embedded != stored.end() ? embedded->second : at::Tensor();
  LoadSlices(layout.specs, kPrefix, what, trained, &stored);
  for (size_t i = 0; i < flat.size(); ++i) CheckFinite(layout.specs[i], trained[i], "load " + what);
  if (!layout.SavesTiedHead()) return;
  if (tied.defined() && at::equal(tied, embedding)) return;
  throw DataError("load " + what + ": embed_tokens and lm_head differ, but are one in the model");
}

}  // namespace gpuctl::trainer
