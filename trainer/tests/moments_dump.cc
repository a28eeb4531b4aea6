// Writes the data that moments.py checks against its formulas: numbers in 8 bits, and updates of
// AdamW whose moments are in 8 bits.
//
// usage: trainer_moments_dump DIRECTORY
//
// DIRECTORY has numbers.safetensors with fp32 "mean.N" and "square.N", and gradients.safetensors
// with "master" and the gradients "1", "2", …, fp32 [rows, columns]. The program writes
// codes.safetensors with codes.NAME, absmax.NAME and back.NAME, and steps.safetensors with the
// master and the moments after each step N, by the loops and by tensors: KIND.N.NAME.

#include <ATen/ATen.h>

#include <cstdio>
#include <string>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/optimizer/moments.h"

namespace gpuctl::trainer {
namespace {

void DumpCodes(const std::string& directory) {
  NamedTensors written;
  for (const auto& [name, numbers] : ReadSafetensors(directory + "/numbers.safetensors")) {
    const CodeKind kind = name.rfind("mean.", 0) == 0 ? CodeKind::kMean : CodeKind::kSquare;
    const at::Tensor codes = at::empty(numbers.sizes(), at::kByte);
    const at::Tensor largest = at::empty({CodeBlocks(numbers.numel())}, at::kFloat);
    const at::Tensor back = at::empty_like(numbers);
    Encode(kind, numbers, codes, largest);
    Decode(kind, codes, largest, back);
    written.emplace_back("codes." + name, codes);
    written.emplace_back("absmax." + name, largest);
    written.emplace_back("back." + name, back);
  }
  WriteSafetensors(directory + "/codes.safetensors", written, {});
}

void DumpSteps(const std::string& directory) {
  const auto given = ReadSafetensors(directory + "/gradients.safetensors");
  const at::Tensor& start = given.at("master");
  const int64_t rows = start.size(0), cut = rows / 3;
  const std::vector<ParameterSpec> specs = {
      {start.sizes().vec(), true, 1, 0, {{"a", 0, cut}, {"b", cut, rows - cut}}}};
  NamedTensors written;
  for (const bool loops : {true, false}) {
    const Moments moments(specs, {false}, true, c10::Device(c10::kCPU));
    const at::Tensor master = start.clone();
    for (int64_t t = 1; given.count(std::to_string(t)) > 0; ++t) {
      const AdamwStep step = {1e-2, 0.9, 0.95, 1e-8, 0.1, t};
      const at::Tensor gradient = given.at(std::to_string(t)).clone();
      if (loops) {
        moments.UpdateCpu(0, step, 0, start.numel(), 0.5f, gradient.data_ptr<float>(),
                          master.data_ptr<float>());
      } else {
        moments.Update(0, step, master, gradient, at::full({}, 0.5));
      }
      NamedTensors live = {{"master", master}};
      moments.AppendTo(&live);
      const std::string prefix = (loops ? "loops." : "tensors.") + std::to_string(t) + ".";
      for (const auto& [name, tensor] : live) written.emplace_back(prefix + name, tensor.clone());
    }
  }
  WriteSafetensors(directory + "/steps.safetensors", written, {});
}

}  // namespace
}  // namespace gpuctl::trainer

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
    return 64;
  }
  gpuctl::trainer::DumpCodes(argv[1]);
  gpuctl::trainer::DumpSteps(argv[1]);
  return 0;
}
