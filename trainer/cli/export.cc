#include <cstdio>
#include <map>
#include <optional>

#include "trainer/adapters/adapter_export.h"
#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/cli/args.h"
#include "trainer/cli/commands.h"
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

int ExportModel(const Args& args) {
  GgufExport request;
  request.folder = args.Require("model");
  request.out = args.Require("out");
  request.type = TypeNamed(args.Get("type"));
  request.pre = args.Get("pre");
  request.check = ThrowIfStopped;
  const GgufResult result = ExportGguf(request);
  for (const std::string& note : result.notes) {
    std::fprintf(stderr, "gpuctl-trainer: note: %s\n", note.c_str());
  }
  std::printf("%s: %s, %llu bytes\n", request.out.c_str(), NameOfType(result.type).c_str(),
              static_cast<unsigned long long>(result.bytes));
  return 0;
}

int ExportAdapter(const Args& args, const std::string& to) {
  for (const char* flag : {"type", "pre"}) {
    if (args.Has(flag)) {
      throw ConfigError(std::string("export: --") + flag + " belongs to --to gguf");
    }
  }
  const AdapterExport request = {args.Require("adapter"), args.Get("model"), args.Require("out")};
  const size_t modules = to == "mlx" ? ExportMlxAdapter(request) : ExportGgufAdapter(request);
  std::printf("%s: an adapter of %zu matrices\n", request.out.c_str(), modules);
  return 0;
}

}  // namespace

int RunExport(const std::vector<std::string>& words) {
  const Args args(words, {"model", "adapter", "to", "out", "type", "pre"}, {}, 0);
  const std::string to = args.Require("to");
  if (to == "gguf" && args.Has("adapter")) {
    throw ConfigError("export: --to gguf takes no --adapter",
                      "merge the adapter first, or write it alone with --to gguf-lora");
  }
  if (to == "gguf") return ExportModel(args);
  if (to == "gguf-lora" || to == "mlx") return ExportAdapter(args, to);
  throw ConfigError("export: --to " + to + ": must be gguf, gguf-lora or mlx" +
                    DidYouMean(to, {"gguf", "gguf-lora", "mlx"}));
}

}  // namespace gpuctl::trainer
