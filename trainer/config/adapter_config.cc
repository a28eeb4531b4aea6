#include "trainer/config/adapter_config.h"

#include <algorithm>
#include <cmath>

#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace gpuctl::trainer {
namespace {

using nlohmann::json;

constexpr double kLargestRank = 4096;

// Keys without an effect on what a trained adapter computes, or whose effect is in its tensors.
constexpr const char* kWithoutEffect[] = {"auto_mapping",      "base_model_name_or_path",
                                          "corda_config",      "eva_config",
                                          "exclude_modules",   "inference_mode",
                                          "layers_pattern",    "layers_to_transform",
                                          "loftq_config",      "lora_ga_config",
                                          "megatron_core",     "modules_to_save",
                                          "peft_type",         "peft_version",
                                          "qalora_group_size", "revision",
                                          "runtime_config",    "target_modules",
                                          "task_type",         "r",
                                          "lora_alpha",        "lora_dropout",
                                          "use_rslora",        "use_dora",
                                          "init_lora_weights"};

// Initial values that leave the model's own weights as they are.
constexpr const char* kPlainStarts[] = {"gaussian", "orthogonal", "eva"};

template <size_t size>
bool IsOneOf(const std::string& text, const char* const (&list)[size]) {
  return std::find(list, list + size, text) != list + size;
}

// True for null, false, and an empty list, object or text.
bool IsNothing(const json& value) {
  return value.is_null() || value == json(false) ||
         ((value.is_array() || value.is_object()) && value.empty()) || value == json("");
}

class AdapterReader {
 public:
  AdapterReader(const json& object, const std::string& path) : object_(object), path_(path) {}

  [[noreturn]] void Refuse(const std::string& why) const {
    throw DataError("read adapter " + path_ + ": " + why);
  }
  bool Has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }
  double Number(const char* key, double low, double high) const {
    if (!Has(key) || !object_[key].is_number()) {
      Refuse(std::string("\"") + key + "\" is missing or no number");
    }
    const double value = object_[key].get<double>();
    if (!(value >= low && value <= high)) {
      Refuse(Format("\"%s\" %g is outside %g .. %g", key, value, low, high));
    }
    return value;
  }
  bool Flag(const char* key) const {
    if (!Has(key)) return false;
    if (!object_[key].is_boolean()) Refuse(std::string("\"") + key + "\" is not true or false");
    return object_[key].get<bool>();
  }
  void Expect(const char* key, const json& wanted, bool may_be_missing) const {
    if (!Has(key) && may_be_missing) return;
    if (Has(key) && object_[key] == wanted) return;
    Refuse(std::string("\"") + key + "\" " + (Has(key) ? Shown(object_[key]) : "null") +
           " is not supported; " + wanted.dump() + " is");
  }
  // Refuses what would change the result and is not computed here.
  void RefuseOtherParts() const {
    if (Has("init_lora_weights")) {
      const json& start = object_["init_lora_weights"];
      if (!start.is_boolean() &&
          !(start.is_string() && IsOneOf(start.get<std::string>(), kPlainStarts))) {
        Refuse("\"init_lora_weights\" " + Shown(start) +
               " may change the model's own weights, which is not supported");
      }
    }
    for (const auto& [key, value] : object_.items()) {
      const bool plain = key == "bias" && value == json("none");
      if (plain || IsNothing(value) || IsOneOf(key, kWithoutEffect)) continue;
      Refuse("\"" + Printable(key) + "\" " + Shown(value) + " is not supported");
    }
  }

 private:
  // Returns the value as text of a length that fits into a message.
  static std::string Shown(const json& value) {
    const std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
    return text.size() <= 60 ? text : text.substr(0, 60) + "…";
  }

  const json& object_;
  const std::string path_;
};

}  // namespace

LoraConfig LoraFromPeft(const json& config, const std::string& path) {
  const AdapterReader reader(config, path);
  if (!config.is_object()) reader.Refuse("it is no JSON object");
  reader.Expect("peft_type", "LORA", /*may_be_missing=*/false);
  reader.Expect("task_type", "CAUSAL_LM", /*may_be_missing=*/true);
  reader.RefuseOtherParts();
  LoraConfig lora;
  lora.targets.clear();
  const double rank = reader.Number("r", 1, kLargestRank);
  if (rank != std::floor(rank)) reader.Refuse("\"r\" is no whole number");
  lora.rank = static_cast<int64_t>(rank);
  lora.alpha = reader.Number("lora_alpha", 1e-6, 1e9);
  lora.dropout = reader.Has("lora_dropout") ? reader.Number("lora_dropout", 0, 0.95) : 0;
  lora.rank_scaled = reader.Flag("use_rslora");
  lora.dora = reader.Flag("use_dora");
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
