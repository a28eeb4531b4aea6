#include "trainer/interchange/gguf_file.h"

#include <cstring>
#include <fstream>
#include <limits>
#include <stdexcept>

#include "trainer/base/error.h"

namespace gpuctl::trainer {
namespace {

constexpr uint64_t kAlignment = 32;

// The types of values.
enum : uint32_t {
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kText = 8,
  kArray = 9,
  kUint64 = 10
};

void Append(uint64_t value, int bytes, std::string* out) {
  for (int i = 0; i < bytes; ++i) *out += static_cast<char>((value >> (8 * i)) & 0xff);
}

void AppendText(const std::string& text, std::string* out) {
  Append(text.size(), 8, out);
  *out += text;
}

void AppendReal(float value, std::string* out) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  Append(bits, 4, out);
}

// Returns ggml's number of a type.
uint32_t GgmlType(NumberType type) {
  switch (type) {
    case NumberType::kF32:
      return 0;
    case NumberType::kF16:
      return 1;
    case NumberType::kQ8_0:
      return 8;
    case NumberType::kBf16:
      return 30;
  }
  throw std::invalid_argument("write GGUF: unknown type");
}

uint64_t Padding(uint64_t size) { return (kAlignment - size % kAlignment) % kAlignment; }

}  // namespace

void GgufMetadata::Begin(const std::string& key, uint32_t type) {
  if (!keys_.insert(key).second) throw std::invalid_argument("write GGUF: " + key + " twice");
  AppendText(key, &bytes_);
  Append(type, 4, &bytes_);
}

void GgufMetadata::BeginArray(const std::string& key, uint32_t type, size_t count) {
  Begin(key, kArray);
  Append(type, 4, &bytes_);
  Append(count, 8, &bytes_);
}

void GgufMetadata::AddText(const std::string& key, const std::string& value) {
  Begin(key, kText);
  AppendText(value, &bytes_);
}

void GgufMetadata::AddCount(const std::string& key, uint64_t value) {
  const bool wide = value > std::numeric_limits<uint32_t>::max();
  Begin(key, wide ? kUint64 : kUint32);
  Append(value, wide ? 8 : 4, &bytes_);
}

void GgufMetadata::AddReal(const std::string& key, double value) {
  Begin(key, kFloat32);
  AppendReal(static_cast<float>(value), &bytes_);
}

void GgufMetadata::AddBool(const std::string& key, bool value) {
  Begin(key, kBool);
  Append(value ? 1 : 0, 1, &bytes_);
}

void GgufMetadata::AddTexts(const std::string& key, const std::vector<std::string>& values) {
  BeginArray(key, kText, values.size());
  for (const std::string& value : values) AppendText(value, &bytes_);
}

void GgufMetadata::AddReals(const std::string& key, const std::vector<float>& values) {
  BeginArray(key, kFloat32, values.size());
  for (const float value : values) AppendReal(value, &bytes_);
}

void GgufMetadata::AddIntegers(const std::string& key, const std::vector<int32_t>& values) {
  BeginArray(key, kInt32, values.size());
  for (const int32_t value : values) Append(static_cast<uint32_t>(value), 4, &bytes_);
}

void CheckGgufPlace(const std::string& path) {
  if (!IsFile(path)) return;
  std::string begin(4, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(begin.data(), 4);
  if (file.gcount() == 0 || begin == "GGUF") return;
  throw ConfigError("write \"" + path + "\": the file there is no GGUF file",
                    "name another file, or remove it");
}

uint64_t GgufTensor::bytes() const {
  uint64_t count = 1;
  for (const int64_t extent : shape) count *= static_cast<uint64_t>(extent);
  return BytesOf(type, count);
}

GgufWriter::GgufWriter(NewFile* file, const GgufMetadata& metadata,
                       const std::vector<GgufTensor>& tensors)
    : file_(file), tensors_(tensors) {
  std::string head = "GGUF";
  Append(3, 4, &head);
  Append(tensors.size(), 8, &head);
  Append(metadata.size(), 8, &head);
  head += metadata.bytes();
  uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    if (tensor.name.size() > 63 || tensor.shape.size() > 4) {
      throw std::invalid_argument("write GGUF: ggml does not read " + tensor.name);
    }
    AppendText(tensor.name, &head);
    Append(tensor.shape.size(), 4, &head);
    for (size_t i = tensor.shape.size(); i-- > 0;) {
      Append(static_cast<uint64_t>(tensor.shape[i]), 8, &head);
    }
    Append(GgmlType(tensor.type), 4, &head);
    Append(offset, 8, &head);
    offset += tensor.bytes() + Padding(tensor.bytes());
  }
  head.append(Padding(head.size()), '\0');
  file_->Write(head.data(), head.size());
  if (!tensors_.empty()) left_ = tensors_[0].bytes();
}

void GgufWriter::Write(const std::string& bytes) {
  if (bytes.size() > left_) throw std::logic_error("write GGUF: too many bytes");
  left_ -= bytes.size();
  file_->Write(bytes.data(), bytes.size());
}

void GgufWriter::EndTensor() {
  if (left_ != 0 || tensor_ >= tensors_.size()) {
    throw std::logic_error("write GGUF: a tensor has other bytes");
  }
  const std::string padding(Padding(tensors_[tensor_].bytes()), '\0');
  file_->Write(padding.data(), padding.size());
  ++tensor_;
  left_ = tensor_ < tensors_.size() ? tensors_[tensor_].bytes() : 0;
}

}  // namespace gpuctl::trainer
