// Fuzzes a safetensors file: its header is refused, or all tensors lie in the file, one behind the
// other, and the header that is written for them gives the same tensors.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/checkpoint/safetensors_header.h"

namespace {

void TryOut(const std::string& bytes) {
  using gpuctl::trainer::StoredTensor;
  const auto header = gpuctl::trainer::ParseSafetensorsHeader(bytes, bytes.size(), "input");
  uint64_t at = 0;
  for (const StoredTensor& tensor : header.tensors) {
    if (tensor.begin != at || tensor.end < tensor.begin) abort();
    at = tensor.end;
  }
  if (header.data_begin + at != bytes.size()) abort();
  std::vector<StoredTensor> tensors = header.tensors;
  const std::string written = gpuctl::trainer::BuildSafetensorsHeader(&tensors, header.metadata);
  const auto again =
      gpuctl::trainer::ParseSafetensorsHeader(written, written.size() + at, "written");
  if (again.tensors.size() != tensors.size() || again.metadata != header.metadata) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    TryOut(std::string(reinterpret_cast<const char*>(data), size));
  } catch (const gpuctl::trainer::Error& error) {
    if (error.code() != gpuctl::trainer::ExitCode::kBadData) abort();
  }
  return 0;
}
