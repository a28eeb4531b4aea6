#include "trainer/adapters/export_flags.h"

#include <map>
#include <optional>

#include "trainer/adapters/adapter_export.h"
#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/text.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/interchange/gguf_model.h"

namespace gpuctl::trainer {
namespace {

constexpr char kTypeNames[] = "f32, f16, bf16, q8_0";

std::optional<NumberType> TypeNamed(const std::string& name) {
  static const std::map<std::string, NumberType> kTypes = {{"f32", NumberType::kF32},
                                                           {"f16", NumberType::kF16},
                                                           {"bf16", NumberType::kBf16},
                                                           {"q8_0", NumberType::kQ8_0}};
  if (name.empty()) return std::nullopt;
  const auto found = kTypes.find(name);
  if (found == kTypes.end()) {
    throw ConfigError("export: --type " + name + ": must be one of " + kTypeNames);
  }
  return found->second;
}

std::string NameOfType(NumberType type) {
  switch (type) {
    case NumberType::kF32:
      return "f32";
    case NumberType::kF16:
      return "f16";
    case NumberType::kBf16:
      return "bf16";
    default:
      return "q8_0";
  }
}

void Require(const char* flag, const std::string& value) {
  if (value.empty()) throw ConfigError(std::string("export: --") + flag + " is missing");
}

ExportOutcome ExportModel(const ExportFlags& flags) {
  if (!flags.adapter.empty()) {
    throw ConfigError("export: --to gguf takes no --adapter",
                      "merge the adapter first, or write it alone with --to gguf-lora");
  }
  Require("model", flags.model);
  if (HoldsAdapter(flags.model) && !Exists(flags.model + "/config.json")) {
    throw ConfigError("export: " + flags.model + " holds adapters and not their model",
                      "merge them first, or write them alone with --to gguf-lora --adapter");
  }
  GgufExport request;
  request.folder = flags.model;
  request.out = flags.out;
  request.type = TypeNamed(flags.type);
  request.pre = flags.pre;
  request.check = flags.check;
  const GgufResult result = ExportGguf(request);
  ExportOutcome outcome;
  outcome.type = NameOfType(result.type);
  outcome.bytes = result.bytes;
  outcome.notes = result.notes;
  return outcome;
}

ExportOutcome ExportAdapter(const ExportFlags& flags) {
  for (const auto& [flag, value] : {std::pair("type", flags.type), std::pair("pre", flags.pre)}) {
    if (!value.empty()) {
      throw ConfigError(std::string("export: --") + flag + " belongs to --to gguf");
    }
  }
  Require("adapter", flags.adapter);
  const AdapterExport request = {flags.adapter, flags.model, flags.out};
  ExportOutcome outcome;
  outcome.type = NameOfType(NumberType::kF32);
  outcome.matrices = flags.to == "mlx" ? ExportMlxAdapter(request) : ExportGgufAdapter(request);
  return outcome;
}

}  // namespace

ExportOutcome Export(const ExportFlags& flags) {
  Require("to", flags.to);
  if (flags.to != "gguf" && flags.to != "gguf-lora" && flags.to != "mlx") {
    throw ConfigError("export: --to " + flags.to + ": must be gguf, gguf-lora or mlx" +
                      DidYouMean(flags.to, {"gguf", "gguf-lora", "mlx"}));
  }
  Require("out", flags.out);
  return flags.to == "gguf" ? ExportModel(flags) : ExportAdapter(flags);
}

std::string ExportText(const ExportFlags& flags, const ExportOutcome& outcome) {
  if (flags.to == "gguf") {
    return flags.out + ": " + outcome.type +
           Format(", %llu bytes", static_cast<unsigned long long>(outcome.bytes));
  }
  return flags.out + Format(": an adapter of %zu matrices", outcome.matrices);
}

}  // namespace gpuctl::trainer
