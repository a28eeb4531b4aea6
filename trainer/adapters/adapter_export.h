// A PEFT adapter in the formats of llama.cpp and of MLX.
//
// Sources: llama.cpp's llama-adapter.cpp; mlx_lm's tuner/utils.py, tuner/lora.py and tuner/dora.py.

#ifndef TRAINER_ADAPTERS_ADAPTER_EXPORT_H_
#define TRAINER_ADAPTERS_ADAPTER_EXPORT_H_

#include <cstdint>
#include <string>

namespace gpuctl::trainer {

struct AdapterExport {
  std::string adapter;
  std::string model;  // the base model's folder, of which config.json is read; "": as PEFT says
  std::string out;
};

// Writes a GGUF file of an adapter, in F32. Modules with other scales get these into their B.
// Throws Error(kBadData), also for what llama.cpp does not have (DoRA, weights that are stored
// whole); Error(kBadConfig), Error(kIo). Returns the modules.
size_t ExportGgufAdapter(const AdapterExport& request);

// Writes a folder with adapters.safetensors and adapter_config.json, in F32. mlx_lm has one rank
// for all modules, so smaller ones get zeros. Throws the same. Returns the modules.
size_t ExportMlxAdapter(const AdapterExport& request);

}  // namespace gpuctl::trainer

#endif  // TRAINER_ADAPTERS_ADAPTER_EXPORT_H_
