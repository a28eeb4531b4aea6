// The settings of a run, as plain structs, and their JSON form.
//
// One table (Sections) names each key with its range and its meaning. Reading, writing, "did you
// mean", --help and the range checks all use it.

#ifndef TRAINER_CONFIG_CONFIG_H_
#define TRAINER_CONFIG_CONFIG_H_

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

namespace gpuctl::trainer {

struct ModelConfig {
  int64_t layers = 4;
  int64_t d_model = 192;
  int64_t heads = 6;
  int64_t kv_heads = 2;
  int64_t ffn = 512;
  int64_t context = 256;
  int64_t vocab_size = 257;
  double rope_theta = 10000.0;
  double norm_eps = 1e-5;

  int64_t head_dim() const { return d_model / heads; }
};

struct DataConfig {
  std::vector<std::string> paths;
  std::vector<std::string> extensions = {".txt", ".md"};
  std::vector<std::string> exclude = {"build", "node_modules"};
  std::string split = "auto";
  double held_out_fraction = 0.1;
  int64_t max_bytes = 256 << 20;
};

struct OptimizerConfig {
  double lr = 3e-3;
  double min_lr_ratio = 0.1;
  std::string schedule = "cosine";
  int64_t warmup_steps = 20;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double grad_clip = 1.0;
};

struct TrainConfig {
  int64_t steps = 200;
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
};

struct CheckpointConfig {
  std::string dir;
  int64_t every = 100;
  int64_t keep_last = 2;
  int64_t keep_best = 0;
};

struct SampleConfig {
  std::string prompt;
  int64_t tokens = 0;
  double temperature = 0.8;
  int64_t seed = 1;
};

struct Config {
  ModelConfig model;
  DataConfig data;
  OptimizerConfig optimizer;
  TrainConfig train;
  CheckpointConfig checkpoint;
  SampleConfig sample;
};

// One key: its place, its valid values, its meaning.
struct Field {
  std::string key;
  std::variant<int64_t*, double*, std::string*, std::vector<std::string>*> slot;
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

nlohmann::json ConfigToJson(const Config& config);

// Returns the model as a Hugging Face Llama config.json.
nlohmann::json ModelToHuggingFace(const ModelConfig& model);
// Reads such a config.json. Throws Error(kBadData) when a needed key is missing or the architecture
// is another one.
ModelConfig ModelFromHuggingFace(const nlohmann::json& json, const std::string& path);

// Returns a table of all keys for --help.
std::string DescribeConfig();

}  // namespace gpuctl::trainer

#endif  // TRAINER_CONFIG_CONFIG_H_
