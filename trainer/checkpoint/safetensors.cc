#include "trainer/checkpoint/safetensors.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/sha256.h"
#include "trainer/checkpoint/paged_tensor.h"
#include "trainer/checkpoint/safetensors_header.h"

namespace gpuctl::trainer {
namespace {

constexpr size_t kPieceBytes = 8 << 20;
constexpr size_t kDigestPiece = 1 << 20;

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

void ReadInto(const StoredFile& file, const StoredTensor& stored, const at::Tensor& target,
              FileDigest* digest) {
  const at::ScalarType type = TypeOf(stored, file.path());
  const auto read = [&](size_t first, size_t size, void* into) {
    // In pieces, which the digest still finds in the processor's cache.
    const size_t piece = digest == nullptr ? size : kDigestPiece;
    for (size_t at = 0; at < size; at += piece) {
      const size_t part = std::min(piece, size - at);
      char* const place = static_cast<char*>(into) + at;
      file.Read(stored, first + at, part, place);
      if (digest != nullptr) digest->Add(stored, first + at, place, part);
    }
  };
  if (target.is_cpu() && target.scalar_type() == type) {
    return read(0, target.nbytes(), target.data_ptr());
  }
  const at::Tensor flat = target.view({-1});
  const auto element = static_cast<int64_t>(SafetensorsElementSize(stored.dtype));
  const auto most = static_cast<int64_t>(kPieceBytes) / element;
  const at::Tensor piece = at::empty({std::min(most, flat.numel())}, at::TensorOptions(type));
  for (int64_t first = 0; first < flat.numel(); first += most) {
    const int64_t count = std::min(most, flat.numel() - first);
    read(static_cast<size_t>(first * element), static_cast<size_t>(count * element),
         piece.data_ptr());
    flat.narrow(0, first, count).copy_(piece.narrow(0, 0, count));
  }
}

std::map<std::string, at::Tensor> ReadSafetensors(const std::string& path, std::string* sha256) {
  const StoredFile file(path);
  std::optional<FileDigest> digest;
  if (sha256 != nullptr) digest.emplace(file);
  std::map<std::string, at::Tensor> tensors;
  for (const StoredTensor& stored : file.tensors()) {
    const at::Tensor tensor = PagedZeros(stored.shape, at::TensorOptions(TypeOf(stored, path)));
    ReadInto(file, stored, tensor, digest ? &*digest : nullptr);
    tensors.emplace(stored.name, tensor);
  }
  if (digest) *sha256 = digest->Hex();
  return tensors;
}

}  // namespace gpuctl::trainer
