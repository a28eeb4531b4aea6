#include "trainer/adapters/adapter_export.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "trainer/adapters/adapter.h"
#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/text.h"
#include "trainer/checkpoint/folder_files.h"
#include "trainer/interchange/gguf_file.h"
#include "trainer/interchange/gguf_model.h"
#include "trainer/interchange/publish.h"
#include "trainer/interchange/weight_names.h"

namespace gpuctl::trainer {
namespace {

[[noreturn]] void RefuseExport(const Adapter& adapter, const std::string& why,
                               const std::string& hint = "") {
  throw DataError(Printable("export " + adapter.path + ": " + why), hint);
}

constexpr char kMergeHint[] = "gpuctl-trainer merge makes a model of it";

// Returns the names of the adapter's modules in the model, in the order of the modules. Refuses an
// adapter that is not of this model.
std::vector<WeightName> NamesOf(const Adapter& adapter, const ModelConfig& model) {
  if (!adapter.replaced.empty()) {
    RefuseExport(adapter,
                 adapter.replaced.begin()->first +
                     ": weights that are stored whole "
                     "cannot be in such an adapter",
                 kMergeHint);
  }
  std::map<std::string, WeightName> known;
  for (const WeightName& name : WeightNames(model)) known[name.stored] = name;
  std::vector<WeightName> names;
  for (const AdapterModule& module : adapter.modules) {
    const auto found = known.find(module.name + ".weight");
    if (found == known.end()) RefuseExport(adapter, "the model has no " + module.name);
    if (found->second.shape != std::vector<int64_t>{module.rows(), module.columns()}) {
      RefuseExport(adapter, module.name + " has another shape in the model");
    }
    if (found->second.stored == "model.embed_tokens.weight") {
      RefuseExport(adapter, module.name + ": a LoRA of the embedding cannot be written");
    }
    names.push_back(found->second);
  }
  return names;
}

// Returns the folder of the base model.
ModelFolder BaseOf(const AdapterExport& request, const Adapter& adapter) {
  if (!request.model.empty()) return ReadModelFolder(request.model);
  if (!IsFile(adapter.config.base + "/config.json")) {
    throw ConfigError(Printable("export " + adapter.path + ": its base model \"" +
                                adapter.config.base + "\" is no folder here"),
                      "--model DIR names the folder of the base model");
  }
  return ReadModelFolder(adapter.config.base);
}

std::string BytesOfNumbers(const std::vector<float>& numbers) {
  return std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float));
}

// Returns B [rows, rank] times `factor`, with the rows in the order of the GGUF file.
std::vector<float> GgufB(const AdapterModule& module, double factor, int64_t rotated_head_dim) {
  const std::vector<float> stored = ReadNumbers(module.b);
  std::vector<float> numbers(stored.size());
  for (int64_t row = 0; row < module.rows(); ++row) {
    const int64_t source = rotated_head_dim > 0 ? RotatedRow(row, rotated_head_dim) : row;
    for (int64_t k = 0; k < module.rank; ++k) {
      numbers[static_cast<size_t>(row * module.rank + k)] =
          static_cast<float>(stored[static_cast<size_t>(source * module.rank + k)] * factor);
    }
  }
  return numbers;
}

// Returns a matrix [rows, columns] as [columns, rows], with columns above `columns` or rows above
// `rows` as zeros: [wide_columns, wide_rows].
std::vector<float> Transposed(const std::vector<float>& numbers, int64_t rows, int64_t columns,
                              int64_t wide_rows, int64_t wide_columns, double factor) {
  std::vector<float> turned(static_cast<size_t>(wide_rows * wide_columns), 0.0f);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      turned[static_cast<size_t>(column * wide_rows + row)] =
          static_cast<float>(numbers[static_cast<size_t>(row * columns + column)] * factor);
    }
  }
  return turned;
}

// The layer of a module, and its name in it. Modules outside of layers have the layer -1.
std::pair<int64_t, std::string> LayerOf(const std::string& module) {
  const std::string prefix = "model.layers.";
  if (module.compare(0, prefix.size(), prefix) != 0) return {-1, module};
  const size_t dot = module.find('.', prefix.size());
  return {std::stoll(module.substr(prefix.size(), dot - prefix.size())), module.substr(dot + 1)};
}

// Returns adapter_config.json of mlx_lm.
nlohmann::json MlxConfig(const Adapter& adapter, const ModelConfig& model, int64_t rank,
                         double scale, const std::string& base) {
  std::set<std::string> keys;
  int64_t first = model.layers;
  for (const AdapterModule& module : adapter.modules) {
    const auto [layer, key] = LayerOf(module.name);
    keys.insert(key);
    if (layer >= 0) first = std::min(first, layer);
  }
  return {
      {"fine_tune_type", adapter.config.dora ? "dora" : "lora"},
      {"model", base},
      {"num_layers", model.layers - first},  // counted from the last one
      {"lora_parameters",
       {{"rank", rank}, {"scale", scale}, {"dropout", adapter.config.dropout}, {"keys", keys}}}};
}

}  // namespace

size_t ExportGgufAdapter(const AdapterExport& request) {
  const Adapter adapter = ReadAdapter(request.adapter);
  const ModelFolder folder = BaseOf(request, adapter);
  if (adapter.config.dora) {
    RefuseExport(adapter, "llama.cpp has no DoRA", kMergeHint);
  }
  const std::vector<WeightName> names = NamesOf(adapter, folder.model);
  const std::string architecture = GgufArchitecture(folder);
  // llama.cpp multiplies B A with alpha / rank.
  const AdapterModule& first = adapter.modules.front();
  const double alpha = first.scale * static_cast<double>(first.rank);
  GgufMetadata metadata;
  metadata.AddText("general.architecture", architecture);
  metadata.AddText("general.type", "adapter");
  metadata.AddText("adapter.type", "lora");
  metadata.AddReal("adapter.lora.alpha", alpha);
  std::vector<GgufTensor> tensors;
  for (size_t i = 0; i < names.size(); ++i) {
    const AdapterModule& module = adapter.modules[i];
    const std::string name = names[i].gguf;
    tensors.push_back({name + ".lora_a", {module.rank, module.columns()}, NumberType::kF32});
    tensors.push_back({name + ".lora_b", {module.rows(), module.rank}, NumberType::kF32});
  }
  CheckGgufPlace(request.out);
  NewFile file(request.out);
  GgufWriter writer(&file, metadata, tensors);
  for (size_t i = 0; i < names.size(); ++i) {
    const AdapterModule& module = adapter.modules[i];
    const double factor = module.scale * static_cast<double>(module.rank) / alpha;
    const bool rotated = architecture == "llama" && names[i].rotated_heads > 0;
    writer.Write(BytesOfNumbers(ReadNumbers(module.a)));
    writer.EndTensor();
    writer.Write(BytesOfNumbers(GgufB(module, factor, rotated ? folder.model.head_dim() : 0)));
    writer.EndTensor();
  }
  file.Publish();
  return names.size();
}

size_t ExportMlxAdapter(const AdapterExport& request) {
  const Adapter adapter = ReadAdapter(request.adapter);
  const ModelFolder base = BaseOf(request, adapter);
  NamesOf(adapter, base.model);
  int64_t rank = 0;
  for (const AdapterModule& module : adapter.modules) rank = std::max(rank, module.rank);
  const double scale = adapter.modules.front().scale;
  std::vector<StoredTensor> tensors;
  for (const AdapterModule& module : adapter.modules) {
    tensors.push_back({module.name + ".lora_a", "F32", {module.columns(), rank}, 0, 0});
    tensors.push_back({module.name + ".lora_b", "F32", {rank, module.rows()}, 0, 0});
    if (module.magnitude) tensors.push_back({module.name + ".m", "F32", {module.rows()}, 0, 0});
  }
  const std::string header = BuildSafetensorsHeader(&tensors, {{"format", "mlx"}});
  NewFolder folder(request.out);
  OutputFile file(folder.temporary() + "/adapters.safetensors");
  const auto write = [&](const std::string& bytes) { file.Write(bytes.data(), bytes.size()); };
  write(header);
  for (const AdapterModule& module : adapter.modules) {
    write(BytesOfNumbers(Transposed(ReadNumbers(module.a), module.rank, module.columns(), rank,
                                    module.columns(), 1)));
    write(BytesOfNumbers(Transposed(ReadNumbers(module.b), module.rows(), module.rank,
                                    module.rows(), rank, module.scale / scale)));
    if (module.magnitude) write(BytesOfNumbers(ReadNumbers(*module.magnitude)));
  }
  file.Close();
  const nlohmann::json config = MlxConfig(adapter, base.model, rank, scale, adapter.config.base);
  WriteFileDurably(folder.temporary() + "/adapter_config.json", config.dump(2) + "\n");
  folder.Publish();
  return adapter.modules.size();
}

}  // namespace gpuctl::trainer
