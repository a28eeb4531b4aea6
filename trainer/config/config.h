// The settings of a run, as plain structs, and their JSON form.
//
// One table (Sections) names each key with its range and its meaning. Reading, writing, "did you
// mean", --help and the range checks all use it.

#ifndef TRAINER_CONFIG_CONFIG_H_
#define TRAINER_CONFIG_CONFIG_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

namespace gpuctl::trainer {

// A change of the rotary frequencies f, for texts longer than those of the first training.
struct RopeScaling {
  std::string kind = "default";  // "linear": f / factor; "llama3": see MakeRotaryTable
  double factor = 1;
  double low_freq_factor = 1;    // llama3
  double high_freq_factor = 4;   // llama3
  int64_t original_context = 0;  // llama3: tokens
};

struct ModelConfig {
  int64_t layers = 4;
  int64_t d_model = 192;
  int64_t heads = 6;
  int64_t kv_heads = 2;
  int64_t ffn = 512;
  int64_t context = 256;  // 0: with `init`, not said; see ContextOf
  int64_t vocab_size = 257;
  double rope_theta = 10000.0;
  double norm_eps = 1e-5;

  // What differs between families of models (families.h). A model without `init` has these values.
  int64_t head_size = 0;  // 0: d_model / heads
  bool qkv_bias = false;
  bool out_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;           // RMSNorm of each query and key head, before the rotation
  bool tied_head = true;          // the embedding is also the head
  bool gelu = false;              // GELU by tanh instead of SiLU
  bool norm_offset = false;       // norms multiply by 1 + weight
  bool sandwich_norms = false;    // norms also behind attention and feed-forward
  bool scaled_embedding = false;  // rows of the embedding times sqrt(d_model)
  double query_scale = 0;         // of the scores; 0: 1 / sqrt(head_dim)
  int64_t window = 0;  // keys that a token sees in a layer with a window, its own included
  std::vector<bool> windowed = {};  // one for each layer; empty: no layer has a window
  RopeScaling rope_scaling = {};
  double local_rope_theta = 0;  // of layers with a window, which are not scaled; 0: as the others
  std::string init = "";        // a model folder to start from, or ""
  bool cut = false;             // the folder has more blocks, which are not read

  int64_t head_dim() const { return head_size > 0 ? head_size : d_model / heads; }
  bool HasWindow(int64_t layer) const {
    return !windowed.empty() && windowed[static_cast<size_t>(layer)];
  }
};

struct DataConfig {
  std::vector<std::string> paths;
  std::vector<std::string> extensions = {".txt", ".md"};
  std::vector<std::string> exclude = {"build", "node_modules"};
  std::string split = "auto";
  std::string tokens = "auto";  // or "bytes"
  bool pack = true;             // prepared rows share windows
  double held_out_fraction = 0.1;
  int64_t max_bytes = 256 << 20;
};

struct OptimizerConfig {
  double lr = 3e-3;
  double min_lr_ratio = 0.1;
  std::string schedule = "cosine";
  int64_t warmup_steps = 20;
  double warmup_ratio = 0;  // of all steps; above 0 it stands for warmup_steps
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double grad_clip = 1.0;
  std::string state = "fp32";
  int64_t zero = 0;

  bool HasSmallState() const { return state == "int8"; }
};

struct TrainConfig {
  int64_t steps = 200;
  double epochs = 0;  // above 0 it stands for steps
  int64_t batch = 16;
  int64_t micro_batch = 4;
  int64_t seed = 1;
  int64_t threads = 0;
  std::string device = "auto";
  std::string dtype = "auto";
  std::string matmul = "auto";
  double peak_tflops = 0;
  int64_t log_every = 1;
  int64_t eval_every = 50;
  int64_t eval_windows = 64;
  int64_t patience = 0;
  bool recompute = false;
  bool deterministic = true;
  std::vector<std::string> freeze = {};
  // No key, the data decides: whether `batch` and `micro_batch` count pairs of windows.
  bool pairs = false;
  bool heterogeneous = false;
  int64_t peer_timeout = 10;
  // No keys, the environment decides: which of the processes of the run this is (ranks/ranks.h).
  int64_t processes = 1;
  int64_t rank = 0;
  int64_t local_processes = 1;  // on this machine
  int64_t local_rank = 0;

  // Windows (or pairs) of the largest equal share of a process.
  int64_t share() const { return (batch + processes - 1) / processes; }
  int64_t windows_per_example() const { return pairs ? 2 : 1; }
};

struct CheckpointConfig {
  std::string dir;
  int64_t every = 100;
  int64_t keep_last = 2;
  int64_t keep_best = 0;
};

struct SampleConfig {
  std::string prompt;
  std::vector<std::string> prompts = {};  // more of them
  int64_t tokens = 0;
  double temperature = 0;
  int64_t seed = 1;

  std::vector<std::string> AllPrompts() const {
    std::vector<std::string> all = prompts;
    if (!prompt.empty()) all.insert(all.begin(), prompt);
    return all;
  }
};

// Low-rank adapters beside frozen matrices (LoRA, Hu et al., arXiv 2106.09685).
struct LoraConfig {
  int64_t rank = 0;  // 0: no adapters, the model itself is trained
  double alpha = 16;
  double dropout = 0;
  std::vector<std::string> targets = {"all-linear"};
  std::vector<std::string> modules_to_save = {};
  bool rank_scaled = false;
  bool dora = false;
  std::string init = "";  // an adapter folder to start from, or ""
  std::string base_dtype = "auto";

  bool PacksBase() const { return base_dtype == "nf4"; }
  // Returns the factor of B A x: alpha / rank, or alpha / sqrt(rank) with rank_scaled
  // (Kalajdzievski, arXiv 2312.03732).
  double Scale() const {
    const auto r = static_cast<double>(rank);
    return alpha / (rank_scaled ? std::sqrt(r) : r);
  }
};

// Learning from pairs of answers (DPO, Rafailov et al., arXiv 2305.18290).
struct DpoConfig {
  double beta = 0.1;
  double label_smoothing = 0;  // the share of pairs whose answers are taken to be exchanged
};

struct Config {
  ModelConfig model;
  DataConfig data;
  OptimizerConfig optimizer;
  TrainConfig train;
  CheckpointConfig checkpoint;
  SampleConfig sample;
  LoraConfig lora;
  DpoConfig dpo;
};

// One key: its place, its valid values, its meaning.
struct Field {
  std::string key;
  std::variant<int64_t*, double*, bool*, std::string*, std::vector<std::string>*> slot;
  double low;                        // inclusive; numbers only
  double high;                       // inclusive; numbers only
  std::vector<std::string> choices;  // empty: any text
  std::string help;
};

struct Section {
  std::string key;
  std::vector<Field> fields;
};

// Returns the table. The fields point into `config`, which must outlive it.
std::vector<Section> Sections(Config& config);

// Returns the length of the windows for a model folder whose model is `folder`: model.context, or
// where the settings do not say it kFolderContext, or as many tokens as the model takes if these
// are fewer.
constexpr int64_t kFolderContext = 1024;
int64_t ContextOf(const ModelConfig& settings, const ModelConfig& folder);

// Throws Error(kBadConfig) for a text that is no valid UTF-8, which no JSON can hold: checkpoints
// and metrics have the settings. `name` says where it was given.
void CheckUtf8(const std::string& name, const std::string& text);

// Throws Error(kBadConfig) for a setting that changes nothing, as it belongs to data that `prepare`
// made, or to data that it did not make.
void CheckDataSettings(const DataConfig& data, bool prepared);

// Reads keys, each alone; missing ones keep their defaults.
// Throws Error(kBadConfig) that names the key: unknown, wrong type, out of range.
Config ReadConfig(const nlohmann::json& json);
// Does the same for a whole configuration, then calls CheckConfig.
Config ParseConfig(const nlohmann::json& json);
// Applies "section.key=value" overrides in order, then reads. A value that is not JSON counts as
// text. LoadConfig does the same for a file.
Config OverrideConfig(nlohmann::json json, const std::vector<std::string>& overrides);
Config LoadConfig(const std::string& path, const std::vector<std::string>& overrides);
// Checks conditions on several keys: heads divide d_model, and so on. Throws Error(kBadConfig).
void CheckConfig(const Config& config);
// Checks that the run can be shared by train.processes. Throws Error(kBadConfig).
void CheckProcesses(const Config& config);
// The parts of CheckConfig that are about the model and about adapters.
void CheckModel(const ModelConfig& model);
void CheckLora(const Config& config);

nlohmann::json ConfigToJson(const Config& config);

// Returns a table of all keys for --help.
std::string DescribeConfig();

}  // namespace gpuctl::trainer

#endif  // TRAINER_CONFIG_CONFIG_H_
