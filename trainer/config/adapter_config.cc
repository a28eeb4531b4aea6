#include "trainer/config/adapter_config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "trainer/base/error.h"
#include "trainer/base/json_at.h"

namespace gpuctl::trainer {
namespace {

using nlohmann::json;

constexpr int64_t kLargestRank = 65536;
constexpr int64_t kLargestTrainedRank = 4096;
constexpr double kLargestAlpha = 1e9;
constexpr double kLargestTrainedDropout = 0.95;

// Keys that are read, and keys that change nothing in a finished adapter.
const std::set<std::string>& KnownKeys() {
  static const std::set<std::string> kKnown = {"alpha_pattern",
                                               "auto_mapping",
                                               "base_model_class",
                                               "base_model_name_or_path",
                                               "bias",
                                               "corda_config",
                                               "ensure_weight_tying",
                                               "eva_config",
                                               "exclude_modules",
                                               "fan_in_fan_out",
                                               "inference_mode",
                                               "init_lora_weights",
                                               "layers_pattern",
                                               "layers_to_transform",
                                               "loftq_config",
                                               "lora_ga_config",
                                               "lora_alpha",
                                               "lora_dropout",
                                               "megatron_core",
                                               "modules_to_save",
                                               "parent_library",
                                               "peft_type",
                                               "peft_version",
                                               "qalora_group_size",
                                               "r",
                                               "rank_pattern",
                                               "revision",
                                               "runtime_config",
                                               "target_modules",
                                               "task_type",
                                               "use_dora",
                                               "use_rslora"};
  return kKnown;
}

bool IsNothing(const json& value) {
  return value.is_null() || value == false || value == 0 || value.empty() ||
         (value.is_string() && value.get_ref<const std::string&>().empty());
}

void RefuseOthers(const JsonAt& root) {
  for (const auto& [key, value] : root.value().items()) {
    if (KnownKeys().count(key) == 0 && !IsNothing(value)) {
      root.Refuse("\"" + key + "\" is not computed here");
    }
  }
  if (const std::string type = root.At("peft_type").Text(); type != "LORA") {
    root.At("peft_type").Refuse(type + ": only LORA can be read");
  }
  if (const std::string bias = root.TextOr("bias", "none"); bias != "none") {
    root.At("bias").Refuse(bias + ": only none can be read");
  }
  if (root.BoolOr("fan_in_fan_out", false)) {
    root.At("fan_in_fan_out").Refuse("is not computed here");
  }
  const std::optional<JsonAt> begun = root.Find("init_lora_weights");
  if (!begun || begun->value().is_boolean()) return;
  const std::string way = begun->Text();
  if (way != "gaussian" && way != "eva" && way != "orthogonal") {
    begun->Refuse(
        way + ": its adapter belongs to other weights than those of the base model",
        "PEFT converts it: save_pretrained(…, path_initial_model_for_weight_conversion=…)");
  }
}

std::vector<std::string> Texts(const std::optional<JsonAt>& list) {
  std::vector<std::string> texts;
  for (size_t i = 0; list && i < list->Size(); ++i) texts.push_back(list->At(i).Text());
  return texts;
}

int64_t ReadRank(const JsonAt& value) {
  const int64_t rank = value.Number(kLargestRank);
  if (rank == 0) value.Refuse("must be at least 1");
  return rank;
}

double ReadAlpha(const JsonAt& value) {
  const double alpha = value.Real();
  if (!(alpha > 0 && alpha <= kLargestAlpha)) value.Refuse("must be above 0");
  return alpha;
}

template <typename Value, typename Read>
std::vector<std::pair<NamePattern, Value>> ReadPatterns(const std::optional<JsonAt>& part,
                                                        const Read& read) {
  std::vector<std::pair<NamePattern, Value>> patterns;
  if (!part) return patterns;
  if (!part->value().is_object()) part->Refuse("must be an object");
  for (const auto& [expression, ignored] : part->value().items()) {
    const std::optional<NamePattern> pattern = NamePattern::Read(expression);
    if (!pattern) part->Refuse("\"" + expression + "\": choices and groups cannot be read");
    patterns.emplace_back(*pattern, read(part->At(expression)));
  }
  return patterns;
}

bool IsOrEndsWith(const std::string& name, const std::string& end) {
  if (name == end) return true;
  return name.size() > end.size() + 1 &&
         name.compare(name.size() - end.size() - 1, std::string::npos, "." + end) == 0;
}

// Refuses what only merging and exporting can.
void RefuseForTraining(const AdapterConfig& adapter, const JsonAt& root) {
  if (const std::string task = root.TextOr("task_type", "CAUSAL_LM"); task != "CAUSAL_LM") {
    root.At("task_type").Refuse(task + ": only CAUSAL_LM can be trained");
  }
  if (adapter.rank > kLargestTrainedRank) {
    root.At("r").Refuse("must be at most " + std::to_string(kLargestTrainedRank) + " here");
  }
  if (adapter.dropout > kLargestTrainedDropout) {
    root.At("lora_dropout").Refuse("must be at most 0.95 here");
  }
  for (const char* key : {"rank_pattern", "alpha_pattern"}) {
    const std::optional<JsonAt> patterns = root.Find(key);
    if (patterns && !patterns->value().empty())
      patterns->Refuse("modules differ; merge can do that");
  }
}

}  // namespace

AdapterConfig ParseAdapterConfig(const json& config, const std::string& path) {
  const JsonAt root(config, "", "read " + path);
  RefuseOthers(root);
  AdapterConfig adapter;
  adapter.rank = ReadRank(root.At("r"));
  adapter.alpha = ReadAlpha(root.At("lora_alpha"));
  adapter.ranks = ReadPatterns<int64_t>(root.Find("rank_pattern"), ReadRank);
  adapter.alphas = ReadPatterns<double>(root.Find("alpha_pattern"), ReadAlpha);
  if (const auto dropout = root.Find("lora_dropout")) {
    adapter.dropout = dropout->Real();
    if (!(adapter.dropout >= 0 && adapter.dropout < 1))
      dropout->Refuse("must be from 0 to below 1");
  }
  adapter.rank_stabilised = root.BoolOr("use_rslora", false);
  adapter.dora = root.BoolOr("use_dora", false);
  const JsonAt targets = root.At("target_modules");
  if (!targets.value().is_string()) {
    adapter.targets = Texts(targets);
    if (adapter.targets.empty()) targets.Refuse("names no module");
  }
  adapter.saved = Texts(root.Find("modules_to_save"));
  adapter.base = root.TextOr("base_model_name_or_path", "");
  return adapter;
}

bool NamesModule(const std::vector<std::string>& names, const std::string& module) {
  for (const std::string& name : names) {
    if (IsOrEndsWith(module, name)) return true;
  }
  return false;
}

// PEFT passes over a name that the model has no module for, and such names are about, misspelt.
bool NamesModuleOfDecoders(const std::string& name) {
  static const std::vector<std::string> kModules = {
      "embed_tokens", "lm_head",  "norm",   "input_layernorm", "post_attention_layernorm",
      "q_proj",       "k_proj",   "v_proj", "o_proj",          "gate_proj",
      "up_proj",      "down_proj"};
  return NamesModule(kModules, name);
}

void CheckSaved(const AdapterConfig& adapter, const std::vector<std::string>& modules,
                const std::string& path) {
  for (const std::string& saved : adapter.saved) {
    if (!NamesModuleOfDecoders(saved)) continue;
    std::vector<std::string> names = {saved};
    // An embedding may be the head, too.
    const std::vector<std::string> tied = {"embed_tokens", "lm_head"};
    if (NamesModule(tied, saved)) names.insert(names.end(), tied.begin(), tied.end());
    const bool there =
        std::any_of(modules.begin(), modules.end(),
                    [&names](const std::string& module) { return NamesModule(names, module); });
    if (there) continue;
    throw DataError("read adapter " + path + ": modules_to_save names " + saved +
                        ", and the file has no tensor of it",
                    "take it out of adapter_config.json if nothing of it was trained");
  }
}

LoraConfig LoraFromPeft(const json& config, const std::string& path) {
  const AdapterConfig adapter = ParseAdapterConfig(config, path);
  RefuseForTraining(adapter, JsonAt(config, "", "read adapter " + path));
  LoraConfig lora;
  lora.targets.clear();
  lora.rank = adapter.rank;
  lora.alpha = adapter.alpha;
  lora.dropout = adapter.dropout;
  lora.rank_scaled = adapter.rank_stabilised;
  lora.dora = adapter.dora;
  return lora;
}

json LoraToPeft(const LoraConfig& lora, const std::string& base) {
  json written = {{"peft_type", "LORA"},
                  {"task_type", "CAUSAL_LM"},
                  {"base_model_name_or_path", base},
                  {"r", lora.rank},
                  {"lora_alpha", lora.alpha},
                  {"lora_dropout", lora.dropout},
                  {"target_modules", lora.targets},
                  {"modules_to_save", nullptr},
                  {"bias", "none"},
                  {"fan_in_fan_out", false},
                  {"inference_mode", true},
                  {"init_lora_weights", true},
                  {"use_rslora", lora.rank_scaled},
                  {"use_dora", lora.dora},
                  {"rank_pattern", json::object()},
                  {"alpha_pattern", json::object()},
                  {"layers_to_transform", nullptr},
                  {"layers_pattern", nullptr},
                  {"revision", nullptr},
                  {"auto_mapping", nullptr}};
  if (!lora.modules_to_save.empty()) written["modules_to_save"] = lora.modules_to_save;
  // PEFT's own type is a whole number.
  if (lora.alpha == std::floor(lora.alpha)) {
    written["lora_alpha"] = static_cast<int64_t>(lora.alpha);
  }
  return written;
}

}  // namespace gpuctl::trainer
