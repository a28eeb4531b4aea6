#include "trainer/checkpoint/safetensors_header.h"

#include <algorithm>
#include <limits>

#include "trainer/base/error.h"
#include "trainer/base/json_object.h"

namespace gpuctl::trainer {
namespace {

using nlohmann::json;

constexpr size_t kDeepest = 4;  // {name: {"shape": [..]}} needs three

[[noreturn]] void Refuse(const std::string& what, const std::string& why) {
  throw DataError("read safetensors " + what + ": " + why);
}

uint64_t Unsigned(const json& value, const std::string& what, const std::string& name) {
  if (!value.is_number_unsigned()) Refuse(what, name + ": expected a whole number of at least 0");
  return value.get<uint64_t>();
}

uint64_t ByteCount(const StoredTensor& tensor, const std::string& what) {
  uint64_t bytes = SafetensorsElementSize(tensor.dtype);
  if (bytes == 0) Refuse(what, tensor.name + ": unknown dtype \"" + tensor.dtype + "\"");
  bool empty = false;
  for (const int64_t extent : tensor.shape) {
    // An extent of 0 makes the tensor empty, but LibTorch still multiplies the others.
    const auto size = std::max<uint64_t>(1, static_cast<uint64_t>(extent));
    empty |= extent == 0;
    if (bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / size) {
      Refuse(what, tensor.name + ": the product of its shape overflows");
    }
    bytes *= size;
  }
  return empty ? 0 : bytes;
}

StoredTensor ParseEntry(const std::string& name, const json& entry, const std::string& what) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
      !entry.contains("shape") || !entry["shape"].is_array() || !entry.contains("data_offsets") ||
      !entry["data_offsets"].is_array() || entry["data_offsets"].size() != 2 || entry.size() != 3) {
    Refuse(what, name + ": needs exactly dtype, shape and data_offsets");
  }
  StoredTensor tensor;
  tensor.name = name;
  tensor.dtype = entry["dtype"].get<std::string>();
  for (const json& extent : entry["shape"]) {
    const uint64_t size = Unsigned(extent, what, name);
    if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      Refuse(what, name + ": the product of its shape overflows");
    }
    tensor.shape.push_back(static_cast<int64_t>(size));
  }
  tensor.begin = Unsigned(entry["data_offsets"][0], what, name);
  tensor.end = Unsigned(entry["data_offsets"][1], what, name);
  if (tensor.end < tensor.begin || tensor.end - tensor.begin != ByteCount(tensor, what)) {
    Refuse(what, name + ": its offsets do not match its shape");
  }
  return tensor;
}

void CheckCoverage(const std::vector<StoredTensor>& tensors, uint64_t data_size,
                   const std::string& what) {
  uint64_t at = 0;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.begin < at) Refuse(what, tensor.name + ": overlaps the tensor before it");
    if (tensor.begin > at) Refuse(what, tensor.name + ": a hole lies before it");
    at = tensor.end;
  }
  if (at > data_size) Refuse(what, "the file is shorter than its header says");
  if (at < data_size) Refuse(what, "bytes follow the last tensor");
}

}  // namespace

uint64_t SafetensorsElementSize(const std::string& dtype) {
  static const std::map<std::string, uint64_t> kSizes = {
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"I32", 4},  {"I16", 2},
      {"I8", 1},  {"U64", 8}, {"U32", 4}, {"U16", 2},  {"U8", 1},  {"BOOL", 1},
  };
  const auto found = kSizes.find(dtype);
  return found == kSizes.end() ? 0 : found->second;
}

SafetensorsHeader ParseSafetensorsHeader(const std::string& bytes, uint64_t file_size,
                                         const std::string& what) {
  if (file_size < 8 || bytes.size() < 8) Refuse(what, "shorter than 8 bytes");
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) length = (length << 8) | static_cast<unsigned char>(bytes[i]);
  if (length > kLargestSafetensorsHeader) Refuse(what, "the header claims more than 100 MB");
  if (length > file_size - 8 || length > bytes.size() - 8) {
    Refuse(what, "the header claims more bytes than the file has");
  }
  const std::string text = bytes.substr(8, length);
  if (text.empty() || text[0] != '{') Refuse(what, "the header does not start with '{'");
  const json parsed = ParseJsonObject(text, "read safetensors " + what, kDeepest);

  SafetensorsHeader header;
  header.data_begin = 8 + length;
  for (const auto& [name, entry] : parsed.items()) {
    if (name != "__metadata__") {
      header.tensors.push_back(ParseEntry(name, entry, what));
      continue;
    }
    if (!entry.is_object()) Refuse(what, "__metadata__ is no object");
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) Refuse(what, "__metadata__ holds something other than text");
      header.metadata[key] = value.get<std::string>();
    }
  }
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) {
              return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
            });
  CheckCoverage(header.tensors, file_size - header.data_begin, what);
  return header;
}

std::string BuildSafetensorsHeader(std::vector<StoredTensor>* tensors,
                                   const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json written;
  if (!metadata.empty()) written["__metadata__"] = metadata;
  uint64_t at = 0;
  for (StoredTensor& tensor : *tensors) {
    tensor.begin = at;
    at += ByteCount(tensor, tensor.name);
    tensor.end = at;
    written[tensor.name] = {{"dtype", tensor.dtype},
                            {"shape", tensor.shape},
                            {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string text = written.is_null() ? "{}" : written.dump();
  while (text.size() % 8 != 0) text += ' ';
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>((text.size() >> (8 * i)) & 0xff);
  return bytes + text;
}

}  // namespace gpuctl::trainer
