// Writes a GGUF file, version 3: metadata, a list of tensors, and their data, in one stream.
//
// Source of the format: ggml's docs/gguf.md. All numbers are little-endian. Dimensions are listed
// with the innermost first, the other way round than in safetensors.

#ifndef TRAINER_INTERCHANGE_GGUF_FILE_H_
#define TRAINER_INTERCHANGE_GGUF_FILE_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "trainer/interchange/numbers.h"
#include "trainer/interchange/publish.h"

namespace gpuctl::trainer {

// The keys and values at the beginning. Each Add appends one pair; a key that is there already
// throws std::invalid_argument.
class GgufMetadata {
 public:
  void AddText(const std::string& key, const std::string& value);
  void AddCount(const std::string& key, uint64_t value);  // uint32; larger ones are uint64
  void AddReal(const std::string& key, double value);     // float32
  void AddBool(const std::string& key, bool value);
  void AddTexts(const std::string& key, const std::vector<std::string>& values);
  void AddReals(const std::string& key, const std::vector<float>& values);
  void AddIntegers(const std::string& key, const std::vector<int32_t>& values);

  bool Has(const std::string& key) const { return keys_.count(key) > 0; }
  size_t size() const { return keys_.size(); }
  const std::string& bytes() const { return bytes_; }

 private:
  void Begin(const std::string& key, uint32_t type);
  void BeginArray(const std::string& key, uint32_t type, size_t count);

  std::set<std::string> keys_;
  std::string bytes_;
};

// Refuses a place where a file of another format is, such as the model's own. Throws
// Error(kBadConfig).
void CheckGgufPlace(const std::string& path);

struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;  // outermost first
  NumberType type = NumberType::kF32;

  uint64_t bytes() const;
};

// Writes the file. The data of the tensors follows in their order, each by its pieces.
class GgufWriter {
 public:
  // Writes what is before the data. Throws std::invalid_argument for a tensor with more than four
  // dimensions or with a name above 63 bytes, which ggml does not read.
  GgufWriter(NewFile* file, const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors);

  void Write(const std::string& bytes);
  // Must be called behind the last piece of each tensor. Throws std::logic_error when its bytes are
  // not as many as the tensor has.
  void EndTensor();

 private:
  NewFile* const file_;
  const std::vector<GgufTensor> tensors_;
  size_t tensor_ = 0;
  uint64_t left_ = 0;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_INTERCHANGE_GGUF_FILE_H_
