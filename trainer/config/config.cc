#include "trainer/config/config.h"

#include <algorithm>
#include <cmath>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/json_object.h"
#include "trainer/base/text.h"

namespace gpuctl::trainer {
namespace {

using nlohmann::json;

constexpr double kMax = 9007199254740992.0;  // 2^53: a double holds every smaller integer exactly

std::vector<Field> ModelFields(ModelConfig& c) {
  return {
      {"layers", &c.layers, 1, 1000, {}, "number of blocks"},
      {"d_model", &c.d_model, 2, 65536, {}, "width of the residual stream"},
      {"heads", &c.heads, 1, 1024, {}, "query heads; d_model / heads must be even"},
      {"kv_heads", &c.kv_heads, 1, 1024, {}, "key and value heads; must divide heads"},
      {"ffn", &c.ffn, 1, 262144, {}, "width inside the SwiGLU feed-forward"},
      {"context",
       &c.context,
       2,
       1048576,
       {},
       "tokens in a window; with init 1024, or what the model takes"},
      {"vocab_size", &c.vocab_size, 257, 1e7, {}, "rows of the tied embedding; bytes + BOS = 257"},
      {"rope_theta", &c.rope_theta, 1, 1e9, {}, "base of the rotary positions"},
      {"norm_eps", &c.norm_eps, 1e-12, 1e-2, {}, "added under RMSNorm's root"},
      {"init",
       &c.init,
       0,
       0,
       {},
       "model folder to start from; of these keys, only context beside it"},
  };
}

std::vector<Field> DataFields(DataConfig& c) {
  return {
      {"paths", &c.paths, 0, 0, {}, "files and directories (recursive) to train on"},
      {"extensions", &c.extensions, 0, 0, {}, "names to take in directories; [] takes all text"},
      {"exclude",
       &c.exclude,
       0,
       0,
       {},
       "names to leave out in directories; hidden ones always are"},
      {"split", &c.split, 0, 0, {"auto", "document", "tail"}, "how the held-out part is cut off"},
      {"tokens", &c.tokens, 0, 0, {"auto", "bytes"}, "bytes: also for a model with a tokenizer"},
      {"pack", &c.pack, 0, 0, {}, "rows of prepared data share windows; false: a window each"},
      {"held_out_fraction", &c.held_out_fraction, 0.001, 0.5, {}, "share of the bytes held out"},
      {"max_bytes", &c.max_bytes, 1, kMax, {}, "a file that would exceed it is passed over"},
  };
}

std::vector<Field> OptimizerFields(OptimizerConfig& c) {
  return {
      {"lr", &c.lr, 0, 1e30, {}, "peak learning rate"},
      {"min_lr_ratio", &c.min_lr_ratio, 0, 1, {}, "final lr / peak lr (cosine, linear)"},
      {"schedule", &c.schedule, 0, 0, {"cosine", "linear", "constant"}, "after the warm-up"},
      {"warmup_steps", &c.warmup_steps, 0, 1e12, {}, "steps of linear warm-up"},
      {"warmup_ratio", &c.warmup_ratio, 0, 1, {}, "the same as a share of all steps"},
      {"beta1", &c.beta1, 0, 0.999999, {}, "AdamW: decay of the mean"},
      {"beta2", &c.beta2, 0, 0.9999999, {}, "AdamW: decay of the square"},
      {"eps", &c.eps, 1e-16, 1, {}, "AdamW: added to the root"},
      {"weight_decay", &c.weight_decay, 0, 10, {}, "decoupled; norms and biases are left out"},
      {"grad_clip", &c.grad_clip, 0, 1e9, {}, "largest global norm; 0 = no clipping"},
      {"state", &c.state, 0, 0, {"fp32", "int8"}, "of AdamW; int8: 2 bytes a weight, not 8"},
      {"zero", &c.zero, 0, 1, {}, "1: each of several processes holds a part of AdamW's state"},
  };
}

std::vector<Field> TrainFields(TrainConfig& c) {
  return {
      {"steps", &c.steps, 1, 1e12, {}, "optimizer steps"},
      {"epochs", &c.epochs, 0, 1e9, {}, "passes over the data, instead of steps"},
      {"batch", &c.batch, 1, 1e9, {}, "windows (or pairs) an optimizer step"},
      {"micro_batch", &c.micro_batch, 0, 1e6, {}, "windows a worker runs at once; 0 = by memory"},
      {"seed", &c.seed, 0, kMax, {}, "weights and data order"},
      {"threads", &c.threads, 0, 4096, {}, "CPU threads; 0 = one a core"},
      {"device", &c.device, 0, 0, {"auto", "cpu", "cuda", "mps"}, "auto: CUDA, MPS, CPU"},
      {"dtype",
       &c.dtype,
       0,
       0,
       {"auto", "fp32", "bf16", "fp16"},
       "auto: bf16 or fp16 on CUDA, else fp32"},
      {"matmul", &c.matmul, 0, 0, {"auto", "onednn", "avx2", "blas"}, "fp32 products on the CPU"},
      {"peak_tflops", &c.peak_tflops, 0, 1e6, {}, "for mfu; 0 = measured on CPU, else unknown"},
      {"log_every", &c.log_every, 1, 1e12, {}, "steps between step lines"},
      {"eval_every", &c.eval_every, 0, 1e12, {}, "steps between evaluations; 0 = only the last"},
      {"eval_windows", &c.eval_windows, 1, 1e9, {}, "held-out windows to score, evenly spaced"},
      {"patience", &c.patience, 0, 1e6, {}, "evaluations without a better one that end the run"},
      {"recompute", &c.recompute, 0, 0, {}, "keep no activations of blocks: slower"},
      {"deterministic", &c.deterministic, 0, 0, {}, "the same bits in each run, on CUDA too"},
      {"freeze", &c.freeze, 0, 0, {}, "weights that stay as they are; * stands for any text"},
      {"heterogeneous", &c.heterogeneous, 0, 0, {}, "fast processes take more of each batch"},
      {"peer_timeout", &c.peer_timeout, 2, 3600, {}, "seconds until a silent process is gone"},
  };
}

std::vector<Field> CheckpointFields(CheckpointConfig& c) {
  return {
      {"dir", &c.dir, 0, 0, {}, "where; default $GPUCTL_CHECKPOINT_DIR, else none are written"},
      {"every", &c.every, 0, 1e12, {}, "steps between checkpoints; 0 = only the last"},
      {"keep_last", &c.keep_last, 1, 1e6, {}, "newest ones to keep"},
      {"keep_best", &c.keep_best, 0, 1e6, {}, "also keep these many of lowest held-out loss"},
  };
}

std::vector<Field> SampleFields(SampleConfig& c) {
  return {
      {"prompt", &c.prompt, 0, 0, {}, "text to continue at each evaluation, and at the end"},
      {"prompts", &c.prompts, 0, 0, {}, "more of them"},
      {"tokens", &c.tokens, 0, 1e6, {}, "tokens or bytes to generate; 0 = no sample"},
      {"temperature", &c.temperature, 0, 100, {}, "0 = greedy"},
      {"seed", &c.seed, 0, kMax, {}, "of the sampling"},
  };
}

std::vector<Field> LoraFields(LoraConfig& c) {
  return {
      {"rank", &c.rank, 0, 4096, {}, "rank of the adapters; 0 = none, the model itself is trained"},
      {"alpha", &c.alpha, 1e-6, 1e9, {}, "adapters count alpha / rank times"},
      {"dropout", &c.dropout, 0, 0.95, {}, "share of an adapter's inputs that a step leaves out"},
      {"targets", &c.targets, 0, 0, {}, "q_proj, *.mlp.*, …; all-linear = those of all blocks"},
      {"modules_to_save", &c.modules_to_save, 0, 0, {}, "embed_tokens, …: trained in full"},
      {"rank_scaled", &c.rank_scaled, 0, 0, {}, "alpha / sqrt(rank) instead (rsLoRA)"},
      {"dora", &c.dora, 0, 0, {}, "also train the length of each row (DoRA)"},
      {"init", &c.init, 0, 0, {}, "PEFT adapter to start from; it decides the other keys"},
      {"base_dtype", &c.base_dtype, 0, 0, {"auto", "nf4"}, "of frozen matrices; nf4: 4 bits"},
  };
}

std::vector<Field> DpoFields(DpoConfig& c) {
  return {
      {"beta",
       &c.beta,
       1e-6,
       1e6,
       {},
       "with pairs of answers: how near to stay to the first model"},
      {"label_smoothing", &c.label_smoothing, 0, 0.499, {}, "share of pairs that are exchanged"},
  };
}

[[noreturn]] void WrongType(const std::string& name, const char* wanted, const json& value) {
  throw ConfigError("read configuration: " + name + ": must be " + wanted + ", not " +
                    value.dump());
}

void CheckRange(const std::string& name, double value, const Field& field) {
  if (!(value >= field.low && value <= field.high)) {
    throw ConfigError(Format("read configuration: %s: %.9g is outside %.9g .. %.9g", name.c_str(),
                             value, field.low, field.high));
  }
}

void ReadText(const std::string& name, const json& value, const Field& field, std::string* slot) {
  if (!value.is_string()) WrongType(name, "text", value);
  *slot = value.get<std::string>();
  if (field.choices.empty()) return;
  std::string list;
  for (const std::string& choice : field.choices) {
    if (choice == *slot) return;
    list += (list.empty() ? "" : ", ") + choice;
  }
  throw ConfigError("read configuration: " + name + ": \"" + *slot + "\" is none of " + list +
                    DidYouMean(*slot, field.choices));
}

void ReadField(const std::string& name, const json& value, const Field& field) {
  if (auto* slot = std::get_if<int64_t*>(&field.slot)) {
    if (!value.is_number_integer()) WrongType(name, "a whole number", value);
    CheckRange(name, value.get<double>(), field);
    **slot = value.get<int64_t>();
  } else if (auto* real = std::get_if<double*>(&field.slot)) {
    if (!value.is_number()) WrongType(name, "a number", value);
    CheckRange(name, value.get<double>(), field);
    **real = value.get<double>();
  } else if (auto* flag = std::get_if<bool*>(&field.slot)) {
    if (!value.is_boolean()) WrongType(name, "true or false", value);
    **flag = value.get<bool>();
  } else if (auto* text = std::get_if<std::string*>(&field.slot)) {
    ReadText(name, value, field, *text);
  } else {
    auto* list = std::get<std::vector<std::string>*>(field.slot);
    list->clear();
    if (value.is_string()) {
      list->push_back(value.get<std::string>());
      return;
    }
    if (!value.is_array()) WrongType(name, "a list of texts", value);
    for (const json& item : value) {
      if (!item.is_string()) WrongType(name, "a list of texts", value);
      list->push_back(item.get<std::string>());
    }
  }
}

json ValueOf(const Field& field) {
  return std::visit([](auto* slot) { return json(*slot); }, field.slot);
}

template <typename Items>
std::vector<std::string> Keys(const Items& items) {
  std::vector<std::string> keys;
  for (const auto& item : items) keys.push_back(item.key);
  return keys;
}

template <typename Items>
auto& Find(const Items& items, const std::string& key, const std::string& prefix) {
  for (const auto& item : items) {
    if (item.key == key) return item;
  }
  throw ConfigError("read configuration: unknown key \"" + prefix + key + "\"" +
                    DidYouMean(key, Keys(items)));
}

json ParseJsonText(const std::string& text, const std::string& path) {
  try {
    return ParseJsonObject(text, "read configuration " + path, 64, /*comments=*/true);
  } catch (const Error& error) {
    throw ConfigError(error.what());
  }
}

void ApplyOverride(const std::string& assignment, json& config) {
  const size_t equals = assignment.find('=');
  const size_t dot = assignment.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot > equals) {
    throw ConfigError("read --set " + assignment + ": must look like section.key=value");
  }
  const std::string text = assignment.substr(equals + 1);
  json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) value = text;
  CheckUtf8("--set " + assignment.substr(0, equals), text);
  json& section = config[assignment.substr(0, dot)];
  if (!section.is_object() && !section.is_null()) {
    throw ConfigError("read --set " + assignment + ": " + assignment.substr(0, dot) +
                      " of the configuration is no object");
  }
  section[assignment.substr(dot + 1, equals - dot - 1)] = value;
}

void RefusePair(const json& parsed, const char* section, const char* one, const char* other) {
  if (!parsed.contains(section)) return;
  const json& values = parsed[section];
  if (!values.contains(one) || !values.contains(other) || values[other] == 0) return;
  const std::string prefix = std::string(section) + ".";
  throw ConfigError("read configuration: " + prefix + one + " and " + prefix + other +
                    " are both given; one of them decides");
}

// A model folder says everything about its model but the length of the windows.
void RefuseKeysBesideInit(const json& model, const Config& config) {
  if (config.model.init.empty()) return;
  for (const auto& [key, value] : model.items()) {
    if (key == "init" || key == "context") continue;
    throw ConfigError(
        "read configuration: model." + key + " and model.init are both given; the folder decides",
        "leave model." + key + " out");
  }
}

}  // namespace

std::vector<Section> Sections(Config& config) {
  return {{"model", ModelFields(config.model)},
          {"data", DataFields(config.data)},
          {"optimizer", OptimizerFields(config.optimizer)},
          {"train", TrainFields(config.train)},
          {"checkpoint", CheckpointFields(config.checkpoint)},
          {"sample", SampleFields(config.sample)},
          {"lora", LoraFields(config.lora)},
          {"dpo", DpoFields(config.dpo)}};
}

Config ReadConfig(const json& parsed) {
  if (!parsed.is_object()) throw ConfigError("read configuration: must be a JSON object");
  Config config;
  const std::vector<Section> sections = Sections(config);
  for (const auto& [section_key, values] : parsed.items()) {
    const Section& section = Find(sections, section_key, "");
    if (!values.is_object()) WrongType(section_key, "an object", values);
    for (const auto& [key, value] : values.items()) {
      const std::string prefix = section_key + ".";
      ReadField(prefix + key, value, Find(section.fields, key, prefix));
    }
  }
  if (parsed.contains("model")) RefuseKeysBesideInit(parsed["model"], config);
  const bool folder = !config.model.init.empty();
  if (folder && !parsed["model"].contains("context")) config.model.context = 0;
  RefusePair(parsed, "train", "steps", "epochs");
  RefusePair(parsed, "optimizer", "warmup_steps", "warmup_ratio");
  return config;
}

int64_t ContextOf(const ModelConfig& settings, const ModelConfig& folder) {
  return settings.context > 0 ? settings.context : std::min(kFolderContext, folder.context);
}

Config ParseConfig(const json& parsed) {
  Config config = ReadConfig(parsed);
  CheckConfig(config);
  return config;
}

Config OverrideConfig(json parsed, const std::vector<std::string>& overrides) {
  if (!parsed.is_object()) throw ConfigError("read configuration: must be a JSON object");
  for (const std::string& assignment : overrides) ApplyOverride(assignment, parsed);
  return ParseConfig(parsed);
}

Config LoadConfig(const std::string& path, const std::vector<std::string>& overrides) {
  if (!Exists(path)) throw ConfigError("read configuration " + path + ": no such file");
  return OverrideConfig(ParseJsonText(ReadGivenFile(path, kLargestSettings), path), overrides);
}

void CheckModel(const ModelConfig& m) {
  const auto refuse = [](const std::string& why) { throw ConfigError("check model: " + why); };
  if (m.head_size == 0 && m.d_model % m.heads != 0) refuse("model.heads must divide model.d_model");
  if (m.head_dim() % 2 != 0) refuse("model.d_model / model.heads must be even");
  if (m.heads % m.kv_heads != 0) refuse("model.kv_heads must divide model.heads");
}

void CheckLora(const Config& config) {
  const LoraConfig& lora = config.lora;
  if (lora.rank == 0) {
    Config given = config, defaults;
    const std::vector<Field> fields = LoraFields(given.lora), others = LoraFields(defaults.lora);
    for (size_t i = 0; i < fields.size(); ++i) {
      const bool beside_init = fields[i].key == "base_dtype" && !lora.init.empty();
      if (fields[i].key == "init" || beside_init || ValueOf(fields[i]) == ValueOf(others[i]))
        continue;
      throw ConfigError("check lora: lora." + fields[i].key +
                            " is given, but lora.rank is 0, so there are no adapters",
                        "set lora.rank, or leave lora." + fields[i].key + " out");
    }
    if (lora.init.empty()) return;
  } else if (!lora.init.empty()) {
    throw ConfigError("check lora: lora.rank and lora.init are both given; the adapter decides",
                      "leave the other keys of lora out");
  }
  if (config.model.init.empty()) {
    throw ConfigError("check lora: adapters need a model to be added to, but model.init is not set",
                      "set model.init to a model folder, or lora.rank to 0");
  }
  if (!config.train.freeze.empty()) {
    throw ConfigError(
        "check lora: train.freeze and adapters are both given; with adapters all weights of the "
        "model stay as they are but those of lora.modules_to_save",
        "leave train.freeze out");
  }
  if (lora.targets.empty()) throw ConfigError("check lora: lora.targets is empty");
}

void CheckConfig(const Config& config) {
  CheckModel(config.model);
  CheckLora(config);
  const std::vector<std::string>& prompts = config.sample.prompts;
  if (std::find(prompts.begin(), prompts.end(), "") != prompts.end()) {
    throw ConfigError("check sample: sample.prompts has an empty text");
  }
  if (config.sample.tokens > 0 && config.sample.AllPrompts().empty()) {
    throw ConfigError("check sample: sample.prompt is empty but sample.tokens is not 0");
  }
}

void CheckUtf8(const std::string& name, const std::string& text) {
  try {
    static_cast<void>(json(text).dump());
  } catch (const json::exception&) {
    throw ConfigError(name + " " + text + ": is no valid UTF-8", "rename it");
  }
}

void CheckDataSettings(const DataConfig& data, bool prepared) {
  const DataConfig defaults;
  const auto refuse = [prepared](const char* key, bool differs) {
    if (!differs) return;
    throw ConfigError(std::string("check data: data.") + key + " is given, but the data is " +
                          (prepared ? "" : "not ") + "prepared",
                      "leave it out, as it would do nothing");
  };
  if (!prepared) return refuse("pack", data.pack != defaults.pack);
  refuse("tokens", data.tokens != defaults.tokens);
  refuse("split", data.split != defaults.split);
  refuse("held_out_fraction", data.held_out_fraction != defaults.held_out_fraction);
  refuse("max_bytes", data.max_bytes != defaults.max_bytes);
  refuse("extensions", data.extensions != defaults.extensions);
  refuse("exclude", data.exclude != defaults.exclude);
}

void CheckProcesses(const Config& config) {
  const TrainConfig& train = config.train;
  if (train.processes == 1) return;
  if (train.batch < train.processes) {
    throw ConfigError(
        Format("check train: train.batch %lld is less than the %lld processes, and "
               "each takes a part of it",
               static_cast<long long>(train.batch), static_cast<long long>(train.processes)),
        "raise train.batch, or start fewer processes");
  }
  if (train.device == "mps") {
    throw ConfigError("check train: train.device mps trains in one process alone",
                      "set train.device to cpu, or unset WORLD_SIZE");
  }
}

json ConfigToJson(const Config& config) {
  Config copy = config;
  json written;
  for (const Section& section : Sections(copy)) {
    for (const Field& field : section.fields) {
      written[section.key][field.key] = ValueOf(field);
    }
  }
  return written;
}

std::string DescribeConfig() {
  Config defaults;
  std::string table;
  for (const Section& section : Sections(defaults)) {
    for (const Field& field : section.fields) {
      const std::string name = section.key + "." + field.key;
      const std::string value = ValueOf(field).dump();
      std::string help = field.help;
      if (!field.choices.empty()) {
        help += " (";
        for (const std::string& choice : field.choices) help += choice + " ";
        help.back() = ')';
      }
      table += Format("  %-28s %-26s %s\n", name.c_str(), value.c_str(), help.c_str());
    }
  }
  return table;
}

}  // namespace gpuctl::trainer
