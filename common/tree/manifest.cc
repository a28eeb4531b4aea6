#include "common/tree/manifest.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files/relative_path.h"
#include "common/files/sha256.h"

namespace gpuctl {
namespace {

using google::protobuf::io::CodedOutputStream;
using gpuctl::v1::FileEntry;

constexpr size_t kMaxEntryPathBytes = 4096;
constexpr size_t kEntryHashBytes = 32;
constexpr uint32_t kEntryTag = (1 << 3) | 2;  // field 1 of Manifest, length-delimited
constexpr int64_t kMaxContentBytes = int64_t{1} << 56;

absl::Status Invalid(absl::string_view path, absl::string_view cause) {
  return absl::InvalidArgumentError(
      absl::StrCat("validate manifest, ", absl::CHexEscape(path.substr(0, 256)), ": ", cause));
}

bool HasHash(const FileEntry& entry) {
  return !entry.sha256().empty() || !entry.part_sha256().empty();
}

absl::Status ValidateHashes(const FileEntry& entry) {
  if (entry.sha256().size() != kEntryHashBytes)
    return Invalid(entry.path(), "sha256 is not 32 bytes");
  const std::string& parts = entry.part_sha256();
  if (entry.size() <= kPartBytes) {
    return parts.empty() ? absl::OkStatus() : Invalid(entry.path(), "a small file in parts");
  }
  if (parts.size() != static_cast<size_t>(PartCount(entry.size())) * kEntryHashBytes ||
      Sha256Of(parts) != entry.sha256()) {
    return Invalid(entry.path(), "the hashes of its parts are not those of the file");
  }
  return absl::OkStatus();
}

absl::Status ValidateEntry(const FileEntry& entry) {
  if (entry.path().size() > kMaxEntryPathBytes) return Invalid(entry.path(), "path too long");
  if (!IsSafeRelativePath(entry.path())) return Invalid(entry.path(), "unsafe path");
  if ((entry.mode() & ~0777u) != 0) return Invalid(entry.path(), "mode outside 0777");
  if (entry.size() < 0) return Invalid(entry.path(), "negative size");
  const absl::string_view target = entry.symlink_target();
  switch (entry.kind()) {
    case FileEntry::KIND_FILE:
      if (!target.empty()) return Invalid(entry.path(), "a file with a symlink target");
      return ValidateHashes(entry);
    case FileEntry::KIND_DIRECTORY:
      if (entry.size() != 0 || HasHash(entry) || !target.empty()) {
        return Invalid(entry.path(), "a directory with content");
      }
      return absl::OkStatus();
    case FileEntry::KIND_SYMLINK:
      if (entry.size() != 0 || HasHash(entry)) {
        return Invalid(entry.path(), "a symlink with content");
      }
      if (target.empty() || target.size() > kMaxEntryPathBytes ||
          target.find('\0') != target.npos) {
        return Invalid(entry.path(), "unusable symlink target");
      }
      return absl::OkStatus();
    default:
      return Invalid(entry.path(), "unknown kind");
  }
}

}  // namespace

absl::Status ManifestValidator::Add(const FileEntry& entry) {
  if (absl::Status status = ValidateEntry(entry); !status.ok()) return status;
  const absl::string_view path = entry.path();
  if (count_ > 0 && !PathLess(last_, path)) {
    return Invalid(path, path == last_ ? "named twice" : "not in the order of a walk");
  }
  if (count_ == kMaxManifestEntries) return Invalid(path, "too many entries");
  if (entry.size() > kMaxContentBytes - content_bytes_) return Invalid(path, "too much content");
  // In this order an entry below a leaf comes right after the leaf.
  if (count_ > 0 && !last_is_directory_ && absl::StartsWith(path, absl::StrCat(last_, "/"))) {
    return Invalid(path, "lies below something that is no directory");
  }
  ++count_;
  content_bytes_ += entry.size();
  last_is_directory_ = entry.kind() == FileEntry::KIND_DIRECTORY;
  last_ = std::string(path);
  return absl::OkStatus();
}

void Manifest::Append(const FileEntry& entry) {
  const auto length = static_cast<uint32_t>(entry.ByteSizeLong());
  const size_t head = 1 + CodedOutputStream::VarintSize32(length);
  const size_t begin = bytes_.size();
  if (bytes_.capacity() < begin + head + length) {
    // It grows by a quarter, not to twice the size, because the old and the new buffer exist
    // together during the copy.
    bytes_.reserve(std::max(begin + begin / 4, begin + head + length));
  }
  bytes_.resize(begin + head + length);
  auto* out = reinterpret_cast<uint8_t*>(bytes_.data() + begin);
  *out++ = kEntryTag;
  out = CodedOutputStream::WriteVarint32ToArray(length, out);
  entry.SerializeWithCachedSizesToArray(out);
  offsets_.push_back(static_cast<uint32_t>(begin));
  content_bytes_ += entry.size();
}

FileEntry Manifest::operator[](int64_t index) const {
  const size_t begin = offsets_[static_cast<size_t>(index)];
  google::protobuf::io::CodedInputStream coded(
      reinterpret_cast<const uint8_t*>(bytes_.data()) + begin,
      static_cast<int>(bytes_.size() - begin));
  uint32_t length = 0;
  coded.ReadTag();
  coded.ReadVarint32(&length);
  const auto limit = coded.PushLimit(static_cast<int>(length));
  FileEntry entry;
  entry.ParseFromCodedStream(&coded);
  coded.PopLimit(limit);
  return entry;
}

std::string Manifest::Digest() const { return Sha256HexOf(bytes_); }

absl::Status ValidateManifest(const Manifest& manifest) {
  ManifestValidator validator;
  for (const FileEntry& entry : manifest) {
    if (absl::Status status = validator.Add(entry); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<Manifest> ParseManifest(std::string bytes) {
  const auto no_manifest = [] {
    return absl::InvalidArgumentError("parse manifest: the bytes are no manifest");
  };
  const int size = static_cast<int>(bytes.size());
  google::protobuf::io::CodedInputStream coded(reinterpret_cast<const uint8_t*>(bytes.data()),
                                               size);
  Manifest manifest;
  ManifestValidator validator;
  while (coded.CurrentPosition() < size) {
    const int begin = coded.CurrentPosition();
    const uint32_t tag = coded.ReadTag();
    uint32_t length = 0;
    if (tag != kEntryTag || !coded.ReadVarint32(&length)) return no_manifest();
    if (int64_t{length} > int64_t{size - coded.CurrentPosition()}) return no_manifest();
    const auto limit = coded.PushLimit(static_cast<int>(length));
    FileEntry entry;
    if (!entry.ParseFromCodedStream(&coded) || coded.BytesUntilLimit() != 0) return no_manifest();
    coded.PopLimit(limit);
    if (absl::Status status = validator.Add(entry); !status.ok()) return status;
    manifest.offsets_.push_back(static_cast<uint32_t>(begin));
    manifest.content_bytes_ += entry.size();
  }
  manifest.bytes_ = std::move(bytes);
  return manifest;
}

absl::string_view PartHash(const FileEntry& entry, int64_t part) {
  const absl::string_view parts = entry.part_sha256();
  return parts.empty() ? absl::string_view(entry.sha256())
                       : parts.substr(static_cast<size_t>(part) * kEntryHashBytes, kEntryHashBytes);
}

void SetHashes(const std::string& part_hashes, FileEntry& entry) {
  entry.clear_part_sha256();
  if (part_hashes.empty()) {
    entry.set_sha256(Sha256Of(""));
  } else if (part_hashes.size() == kEntryHashBytes) {
    entry.set_sha256(part_hashes);
  } else {
    entry.set_sha256(Sha256Of(part_hashes));
    entry.set_part_sha256(part_hashes);
  }
}

}  // namespace gpuctl
