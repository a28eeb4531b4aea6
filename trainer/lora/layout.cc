#include "trainer/lora/layout.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace gpuctl::trainer {
namespace {

constexpr size_t kMatricesOfBlock = 4;
constexpr char kBlocks[] = "model.layers.";
constexpr char kAllLinear[] = "all-linear";
constexpr char kHead[] = "lm_head";

using Modules = std::set<std::string>;

// Returns the name of a weight without .weight or .bias.
std::string ModuleOf(const std::string& weight) { return weight.substr(0, weight.rfind('.')); }

std::string LastPart(const std::string& module) { return module.substr(module.rfind('.') + 1); }

bool Means(const std::string& name, const std::string& module) {
  return MatchesPattern(module, name) || MatchesPattern(module, "*." + name);
}

bool IsBlockMatrix(const ParameterSpec& spec) {
  return spec.shape.size() == 2 && spec.slices[0].name.rfind(kBlocks, 0) == 0;
}

// Returns the modules of some weights: of all, or only the linears of the blocks.
std::vector<std::string> ModulesOf(const std::vector<ParameterSpec>& specs, bool linears) {
  std::vector<std::string> modules;
  for (const ParameterSpec& spec : specs) {
    if (linears && !IsBlockMatrix(spec)) continue;
    for (const RowSlice& slice : spec.slices) modules.push_back(ModuleOf(slice.name));
  }
  return modules;
}

std::vector<std::string> LastParts(const std::vector<std::string>& modules) {
  std::vector<std::string> parts;
  for (const std::string& module : modules) {
    const std::string part = LastPart(module);
    if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
  }
  return parts;
}

// Returns those of `modules` that the names mean.
Modules Find(const std::vector<std::string>& names, const std::vector<std::string>& modules,
             const std::string& key) {
  Modules found;
  for (const std::string& name : names) {
    bool any = false;
    for (const std::string& module : modules) {
      if (name != kAllLinear && !Means(name, module)) continue;
      found.insert(module);
      any = true;
    }
    if (any) continue;
    std::string known;
    const std::vector<std::string> parts = LastParts(modules);
    for (const std::string& part : parts) known += (known.empty() ? "" : ", ") + part;
    throw ConfigError("find modules: " + key + " \"" + name + "\" means no module of the model" +
                          DidYouMean(name, parts),
                      "there are " + known + "; whole names look like " + modules[0]);
  }
  return found;
}

// Marks as trained what modules_to_save names.
std::vector<bool> FrozenBeside(const std::vector<ParameterSpec>& specs, const Modules& saved) {
  std::vector<bool> frozen;
  for (const ParameterSpec& spec : specs) {
    size_t matched = 0;
    for (const RowSlice& slice : spec.slices) matched += saved.count(ModuleOf(slice.name));
    if (matched > 0 && matched < spec.slices.size()) {
      throw ConfigError("find modules: lora.modules_to_save names a part of " +
                            ModuleOf(spec.slices[0].name) + " to " +
                            ModuleOf(spec.slices.back().name) + ", which are one matrix here",
                        "name all of them or none");
    }
    frozen.push_back(matched == 0);
  }
  return frozen;
}

std::vector<AdaptedMatrix> FindMatrices(const std::vector<ParameterSpec>& specs,
                                        const Modules& targets, const std::vector<bool>& packed) {
  std::vector<AdaptedMatrix> matrices;
  size_t count = 0;
  uint32_t number = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!IsBlockMatrix(specs[i])) continue;
    AdaptedMatrix matrix = {
        i, count / kMatricesOfBlock, count % kMatricesOfBlock, specs[i].shape[1], {}, {}, {}};
    ++count;
    for (const RowSlice& slice : specs[i].slices) {
      const uint32_t module_number = number++;
      if (packed[i]) matrix.packed_rows.push_back(slice.rows);
      if (targets.count(ModuleOf(slice.name)) == 0) continue;
      matrix.parts.push_back({slice.first_row, slice.rows, module_number});
      matrix.modules.push_back(ModuleOf(slice.name));
    }
    if (!matrix.parts.empty() || packed[i]) matrices.push_back(std::move(matrix));
  }
  return matrices;
}

// Appends the specs of one matrix's adapters. All of them decay: in transformers' AdamW only norms
// and biases do not.
void AppendSpecs(const AdaptedMatrix& matrix, const LoraConfig& lora,
                 std::vector<ParameterSpec>* specs) {
  const auto parts = static_cast<int64_t>(matrix.parts.size());
  ParameterSpec a = {{parts * lora.rank, matrix.inputs}, true, 0, 0, {}};
  ParameterSpec b = {{matrix.rows(), lora.rank}, true, 0, 0, {}};
  ParameterSpec magnitude = {{matrix.rows()}, true, 0, 0, {}, /*stays_wide=*/true};
  int64_t first_b = 0;
  for (int64_t i = 0; i < parts; ++i) {
    const std::string& module = matrix.modules[static_cast<size_t>(i)];
    const int64_t rows = matrix.parts[static_cast<size_t>(i)].rows;
    a.slices.push_back({module + ".lora_A.weight", i * lora.rank, lora.rank});
    b.slices.push_back({module + ".lora_B.weight", first_b, rows});
    magnitude.slices.push_back({module + ".lora_magnitude_vector", first_b, rows});
    first_b += rows;
  }
  specs->push_back(std::move(a));
  specs->push_back(std::move(b));
  if (lora.dora) specs->push_back(std::move(magnitude));
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// Returns the shortest list of names that PEFT reads as `wanted`. It compares the ends of names:
// those of targets behind a dot, those of modules_to_save anywhere.
std::vector<std::string> ShortNames(const std::vector<std::string>& wanted,
                                    const std::vector<std::string>& all,
                                    const std::string& before) {
  const Modules wanted_set(wanted.begin(), wanted.end());
  std::map<std::string, bool> just_these;  // by the last part of a name
  std::vector<std::string> names;
  for (const std::string& module : wanted) {
    const std::string part = LastPart(module);
    const auto [found, is_new] = just_these.emplace(part, false);
    if (is_new) {
      found->second = std::all_of(all.begin(), all.end(), [&](const std::string& other) {
        return (other != part && !EndsWith(other, before + part)) || wanted_set.count(other) > 0;
      });
    }
    if (found->second && !is_new) continue;
    names.push_back(found->second ? part : module);
  }
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace

int64_t AdaptedMatrix::rows() const {
  int64_t sum = 0;
  for (const LoraPart& part : parts) sum += part.rows;
  return sum;
}

int64_t AdapterLayout::TrainedElements() const {
  int64_t sum = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!frozen[i]) sum += CountOf(specs[i]);
  }
  return sum;
}

AdapterLayout MakeAdapterLayout(const Config& config) {
  AdapterLayout layout;
  layout.lora = config.lora;
  layout.tied_head = config.model.tied_head;
  layout.specs = ParameterSpecs(config.model);
  layout.model_specs = layout.specs.size();
  if (config.lora.rank == 0) {
    layout.frozen = FrozenParameters(layout.specs, config.train.freeze);
    return layout;
  }
  const Modules targets =
      Find(config.lora.targets, ModulesOf(layout.specs, /*linears=*/true), "lora.targets");
  std::vector<std::string> known = ModulesOf(layout.specs, /*linears=*/false);
  if (layout.tied_head) known.emplace_back(kHead);
  Modules saved = Find(config.lora.modules_to_save, known, "lora.modules_to_save");
  if (layout.tied_head && saved.count(kHead) > 0) saved.insert(known[0]);
  for (const std::string& module : targets) {
    if (saved.count(module) == 0) continue;
    throw ConfigError("find modules: lora.targets and lora.modules_to_save both name " + module);
  }
  layout.frozen = FrozenBeside(layout.specs, saved);
  const std::vector<bool> none(layout.specs.size(), false);
  layout.matrices =
      FindMatrices(layout.specs, targets, config.lora.PacksBase() ? layout.frozen : none);
  for (const AdaptedMatrix& matrix : layout.matrices) {
    if (!matrix.parts.empty()) AppendSpecs(matrix, config.lora, &layout.specs);
  }
  layout.frozen.resize(layout.specs.size(), false);
  return layout;
}

LoraConfig PeftNames(const AdapterLayout& layout) {
  const std::vector<ParameterSpec> model(
      layout.specs.begin(), layout.specs.begin() + static_cast<int64_t>(layout.model_specs));
  std::vector<std::string> all = ModulesOf(model, /*linears=*/false), targets, saved;
  if (layout.tied_head) all.emplace_back(kHead);
  for (const AdaptedMatrix& matrix : layout.matrices) {
    targets.insert(targets.end(), matrix.modules.begin(), matrix.modules.end());
  }
  for (size_t i = 0; i < model.size(); ++i) {
    if (layout.frozen[i]) continue;
    for (const RowSlice& slice : model[i].slices) saved.push_back(ModuleOf(slice.name));
  }
  if (layout.SavesTiedHead()) saved.emplace_back(kHead);
  LoraConfig lora = layout.lora;
  lora.targets = ShortNames(targets, all, ".");
  lora.modules_to_save = ShortNames(saved, all, "");
  return lora;
}

double TrainingFlopsPerToken(const Config& config) {
  if (config.lora.rank == 0) return FlopsPerToken(config.model, config.train.freeze);
  const AdapterLayout layout = MakeAdapterLayout(config);
  double flops = FlopsPerToken(config.model);
  for (size_t i = config.model.tied_head ? 0 : 1; i < layout.specs.size(); ++i) {
    const double more = i >= layout.model_specs ? 6 : layout.frozen[i] ? -2 : 0;
    flops += more * static_cast<double>(CountOf(layout.specs[i]));
  }
  return flops;
}

double TrainingFlops(const Config& config, double tokens, double scored) {
  const AdapterLayout layout = MakeAdapterLayout(config);
  // The last of the model's weights, or the embedding where both are one.
  const size_t head = layout.tied_head ? 0 : layout.model_specs - 1;
  const double head_flops =
      (layout.frozen[head] ? 4.0 : 6.0) * static_cast<double>(CountOf(layout.specs[head]));
  return tokens * TrainingFlopsPerToken(config) - (tokens - scored) * head_flops;
}

}  // namespace gpuctl::trainer
