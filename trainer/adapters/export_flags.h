// The command `export`, of gpuctl and of gpuctl-trainer: a model or an adapter in another program's
// format.

#ifndef TRAINER_ADAPTERS_EXPORT_FLAGS_H_
#define TRAINER_ADAPTERS_EXPORT_FLAGS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gpuctl::trainer {

// The flags as typed; "" where one was not given.
struct ExportFlags {
  std::string to;  // gguf, gguf-lora or mlx
  std::string model;
  std::string adapter;
  std::string out;
  std::string type;  // f32, f16, bf16 or q8_0
  std::string pre;
  std::function<void()> check = [] {};  // called before each piece; may throw to give up
};

struct ExportOutcome {
  std::string type;                // of the matrices
  uint64_t bytes = 0;              // of a model's file
  size_t matrices = 0;             // of an adapter
  std::vector<std::string> notes;  // what llama.cpp does differently, in sentences
};

// Writes what the flags ask for. Throws Error(kBadConfig) for flags that are missing, unknown or do
// not go together, and else what ExportGguf, ExportGgufAdapter and ExportMlxAdapter throw.
ExportOutcome Export(const ExportFlags& flags);

// Returns a line for people.
std::string ExportText(const ExportFlags& flags, const ExportOutcome& outcome);

}  // namespace gpuctl::trainer

#endif  // TRAINER_ADAPTERS_EXPORT_FLAGS_H_
