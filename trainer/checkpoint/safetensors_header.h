// The header of a safetensors file: what is in it and where. No LibTorch here.
//
// Layout: u64 little-endian N, N bytes of JSON {"name": {"dtype", "shape", "data_offsets"}, …},
// then the data, to the end of the file. Offsets count from the end of the header.

#ifndef TRAINER_CHECKPOINT_SAFETENSORS_HEADER_H_
#define TRAINER_CHECKPOINT_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gpuctl::trainer {

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
  uint64_t data_begin = 0;  // of the file: 8 + N
};

// Bytes of one element, or 0 for a dtype nobody knows.
uint64_t SafetensorsElementSize(const std::string& dtype);

// Parses `bytes`, which holds at least the first 8 + N bytes of a file of `file_size` bytes.
// Throws Error(kBadData) unless everything fits: N within the file and 100 MB, a JSON object that
// starts with '{', no name twice, known dtypes, shape products that do not overflow and match the
// offsets, no hole, no overlap, nothing after the last tensor. `what` names the file in messages.
SafetensorsHeader ParseSafetensorsHeader(const std::string& bytes, uint64_t file_size,
                                         const std::string& what);

// The 8 + N bytes that stand before the data; tensors are laid out in the given order, begin and
// end are set here. N is padded with spaces to a multiple of 8.
std::string BuildSafetensorsHeader(std::vector<StoredTensor>* tensors,
                                   const std::map<std::string, std::string>& metadata);

}  // namespace gpuctl::trainer

#endif  // TRAINER_CHECKPOINT_SAFETENSORS_HEADER_H_
