// The header of a safetensors file, which lists its tensors and their places. Uses no LibTorch.
//
// Layout: u64 little-endian N, N bytes of JSON {"name": {"dtype", "shape", "data_offsets"}, …},
// then the data, to the end of the file. Offsets count from the end of the header.

#ifndef TRAINER_CHECKPOINT_SAFETENSORS_HEADER_H_
#define TRAINER_CHECKPOINT_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gpuctl::trainer {

// The largest header in bytes, without the 8 before it.
constexpr uint64_t kLargestSafetensorsHeader = 100'000'000;

struct StoredTensor {
  std::string name;
  std::string dtype;  // "F32", "BF16", "I64", …
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes from the start of the data
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // by ascending begin
  std::map<std::string, std::string> metadata;
  uint64_t data_begin = 0;  // offset in the file: 8 + N
};

// Returns the bytes of one element, or 0 for an unknown dtype.
uint64_t SafetensorsElementSize(const std::string& dtype);

// Parses `bytes`, which holds at least the first 8 + N bytes of a file of `file_size` bytes. Throws
// Error(kBadData) unless everything is valid: N within the file and 100 MB, a JSON object that
// starts with '{', no duplicate names, known dtypes, shape products that do not overflow and match
// the offsets, no gap, no overlap, nothing after the last tensor. `what` names the file in
// messages.
SafetensorsHeader ParseSafetensorsHeader(const std::string& bytes, uint64_t file_size,
                                         const std::string& what);

// Returns the 8 + N bytes before the data. Lays out the tensors in the given order and sets their
// begin and end. N is padded with spaces to a multiple of 8.
std::string BuildSafetensorsHeader(std::vector<StoredTensor>* tensors,
                                   const std::map<std::string, std::string>& metadata);

}  // namespace gpuctl::trainer

#endif  // TRAINER_CHECKPOINT_SAFETENSORS_HEADER_H_
