#include "trainer/checkpoint/safetensors.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/sha256.h"
#include "trainer/checkpoint/safetensors_header.h"

namespace gpuctl::trainer {
namespace {

constexpr size_t kPieceBytes = 8 << 20;

struct DtypeName {
  const char* name;
  at::ScalarType type;
};

constexpr DtypeName kDtypes[] = {
    {"F64", at::kDouble}, {"F32", at::kFloat}, {"F16", at::kHalf},  {"BF16", at::kBFloat16},
    {"I64", at::kLong},   {"I32", at::kInt},   {"I16", at::kShort}, {"I8", at::kChar},
    {"U8", at::kByte},    {"BOOL", at::kBool},
};

std::string NameOf(at::ScalarType type) {
  for (const DtypeName& dtype : kDtypes) {
    if (dtype.type == type) return dtype.name;
  }
  throw std::invalid_argument("write safetensors: a dtype without a name");
}

at::ScalarType TypeOf(const StoredTensor& tensor, const std::string& path) {
  for (const DtypeName& dtype : kDtypes) {
    if (tensor.dtype == dtype.name) return dtype.type;
  }
  throw DataError("read safetensors " + path + ": " + tensor.name + ": " + tensor.dtype +
                  " cannot be held here");
}

// Reads the first 8 + N bytes, or fewer if the file ends before; the parser reports that error.
std::string ReadHeaderBytes(std::ifstream& file, const std::string& path) {
  std::string bytes(8, '\0');
  file.read(bytes.data(), 8);
  if (file.gcount() < 8) return bytes.substr(0, static_cast<size_t>(file.gcount()));
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) length = (length << 8) | static_cast<unsigned char>(bytes[i]);
  length = std::min<uint64_t>(length, FileSize(path));
  bytes.resize(8 + length);
  file.read(bytes.data() + 8, static_cast<std::streamsize>(length));
  bytes.resize(8 + static_cast<size_t>(file.gcount()));
  return bytes;
}

}  // namespace

void WriteSafetensors(const std::string& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata, std::string* sha256) {
  std::vector<StoredTensor> stored;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.is_contiguous() || !tensor.is_cpu()) {
      throw std::invalid_argument("write safetensors: " + name + " must be contiguous, on the CPU");
    }
    stored.push_back({name, NameOf(tensor.scalar_type()), tensor.sizes().vec(), 0, 0});
  }
  const std::string header = BuildSafetensorsHeader(&stored, metadata);
  Sha256 digest;
  OutputFile file(path);
  const auto put = [&](const char* bytes, size_t size) {
    for (size_t at = 0; at < size; at += kPieceBytes) {
      const size_t piece = std::min(kPieceBytes, size - at);
      digest.Update(bytes + at, piece);
      file.Write(bytes + at, piece);
    }
  };
  put(header.data(), header.size());
  for (const auto& [name, tensor] : tensors) {
    put(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
  }
  file.Close();
  if (sha256 != nullptr) *sha256 = digest.Hex();
}

SafetensorsFile::SafetensorsFile(const std::string& path)
    : path_(path), file_(path, std::ios::binary) {
  if (!file_) throw IoError("open", path, errno);
  header_ = ParseSafetensorsHeader(ReadHeaderBytes(file_, path), FileSize(path), path);
}

void SafetensorsFile::ReadBytes(uint64_t begin, uint64_t size, void* into) {
  if (size == 0) return;
  file_.seekg(static_cast<std::streamoff>(header_.data_begin + begin));
  file_.read(static_cast<char*>(into), static_cast<std::streamsize>(size));
  if (static_cast<uint64_t>(file_.gcount()) != size) {
    throw DataError("read safetensors " + path_ + ": it ended early");
  }
}

at::Tensor SafetensorsFile::Read(const StoredTensor& stored) {
  const at::Tensor tensor = at::empty(stored.shape, at::TensorOptions(TypeOf(stored, path_)));
  ReadBytes(stored.begin, tensor.nbytes(), tensor.data_ptr());
  return tensor;
}

void SafetensorsFile::ReadInto(const StoredTensor& stored, const at::Tensor& target) {
  const at::ScalarType type = TypeOf(stored, path_);
  if (target.is_cpu() && target.scalar_type() == type) {
    return ReadBytes(stored.begin, target.nbytes(), target.data_ptr());
  }
  const at::Tensor flat = target.view({-1});
  const auto element = static_cast<int64_t>(SafetensorsElementSize(stored.dtype));
  const auto most = static_cast<int64_t>(kPieceBytes) / element;
  const at::Tensor piece = at::empty({std::min(most, flat.numel())}, at::TensorOptions(type));
  for (int64_t first = 0; first < flat.numel(); first += most) {
    const int64_t count = std::min(most, flat.numel() - first);
    ReadBytes(stored.begin + static_cast<uint64_t>(first * element),
              static_cast<uint64_t>(count * element), piece.data_ptr());
    flat.narrow(0, first, count).copy_(piece.narrow(0, 0, count));
  }
}

std::map<std::string, at::Tensor> ReadSafetensors(const std::string& path) {
  SafetensorsFile file(path);
  std::map<std::string, at::Tensor> tensors;
  for (const StoredTensor& stored : file.tensors()) tensors.emplace(stored.name, file.Read(stored));
  return tensors;
}

}  // namespace gpuctl::trainer
