#include "common/manifest.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/sha256.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;
using gpuctl::v1::Manifest;

constexpr size_t kMaxPathBytes = 4096;
constexpr int64_t kMaxContentBytes = int64_t{1} << 56;

absl::Status Invalid(absl::string_view path, absl::string_view cause) {
  return absl::InvalidArgumentError(
      absl::StrCat("validate manifest, ", absl::CHexEscape(path.substr(0, 256)), ": ", cause));
}

absl::Status ValidateEntry(const FileEntry& entry) {
  if (entry.path().size() > kMaxPathBytes) return Invalid(entry.path(), "path too long");
  if (!IsSafeRelativePath(entry.path())) return Invalid(entry.path(), "unsafe path");
  if ((entry.mode() & ~0777u) != 0) return Invalid(entry.path(), "mode outside 0777");
  if (entry.size() < 0) return Invalid(entry.path(), "negative size");
  const absl::string_view target = entry.symlink_target();
  switch (entry.kind()) {
    case FileEntry::KIND_FILE:
      if (entry.sha256().size() != 32) return Invalid(entry.path(), "sha256 is not 32 bytes");
      if (!target.empty()) return Invalid(entry.path(), "a file with a symlink target");
      return absl::OkStatus();
    case FileEntry::KIND_DIRECTORY:
      if (entry.size() != 0 || !entry.sha256().empty() || !target.empty()) {
        return Invalid(entry.path(), "a directory with content");
      }
      return absl::OkStatus();
    case FileEntry::KIND_SYMLINK:
      if (entry.size() != 0 || !entry.sha256().empty()) {
        return Invalid(entry.path(), "a symlink with content");
      }
      if (target.empty() || target.size() > kMaxPathBytes || target.find('\0') != target.npos) {
        return Invalid(entry.path(), "unusable symlink target");
      }
      return absl::OkStatus();
    default:
      return Invalid(entry.path(), "unknown kind");
  }
}

// Checks entries one after the other as they come, so that a hostile manifest is refused at its
// first bad entry and not after all of it was taken into memory.
class Validator {
 public:
  absl::Status Add(const FileEntry& entry) {
    if (absl::Status status = ValidateEntry(entry); !status.ok()) return status;
    const absl::string_view path = entry.path();
    if (count_ > 0 && path <= last_) {
      return Invalid(path, path == last_ ? "named twice" : "not in the order of path bytes");
    }
    if (++count_ > kMaxManifestEntries) return Invalid(path, "too many entries");
    if (entry.size() > kMaxContentBytes - content_bytes_) return Invalid(path, "too much content");
    content_bytes_ += entry.size();
    for (size_t slash = path.find('/'); slash != path.npos; slash = path.find('/', slash + 1)) {
      // In path order a parent comes before what lies below it.
      if (leaves_.contains(path.substr(0, slash))) {
        return Invalid(path, "lies below something that is no directory");
      }
    }
    if (entry.kind() != FileEntry::KIND_DIRECTORY) leaves_.emplace(path);
    last_ = std::string(path);
    return absl::OkStatus();
  }

 private:
  absl::flat_hash_set<std::string> leaves_;
  std::string last_;
  int64_t count_ = 0;
  int64_t content_bytes_ = 0;
};

}  // namespace

bool IsSafeRelativePath(absl::string_view path) {
  if (path.empty() || path.find('\0') != path.npos) return false;
  while (true) {
    const size_t slash = path.find('/');
    const absl::string_view component = path.substr(0, slash);
    if (component.empty() || component == "." || component == "..") return false;
    if (slash == path.npos) return true;
    path.remove_prefix(slash + 1);
  }
}

std::string SerializeManifest(const Manifest& manifest) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  manifest.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

std::string ManifestDigest(const Manifest& manifest) {
  return Sha256HexOf(SerializeManifest(manifest));
}

absl::Status ValidateManifest(const Manifest& manifest) {
  Validator validator;
  for (const FileEntry& entry : manifest.entries()) {
    if (absl::Status status = validator.Add(entry); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view bytes) {
  constexpr uint32_t kEntryTag = (1 << 3) | 2;  // field 1, length-delimited
  const auto no_manifest = [] {
    return absl::InvalidArgumentError("parse manifest: the bytes are no manifest");
  };
  google::protobuf::io::CodedInputStream coded(reinterpret_cast<const uint8_t*>(bytes.data()),
                                               static_cast<int>(bytes.size()));
  Manifest manifest;
  Validator validator;
  while (coded.CurrentPosition() < static_cast<int>(bytes.size())) {
    const uint32_t tag = coded.ReadTag();
    uint32_t length = 0;
    if (tag != kEntryTag || !coded.ReadVarint32(&length)) return no_manifest();
    const int remaining = static_cast<int>(bytes.size()) - coded.CurrentPosition();
    if (int64_t{length} > int64_t{remaining}) return no_manifest();
    const auto limit = coded.PushLimit(static_cast<int>(length));
    FileEntry* entry = manifest.add_entries();
    if (!entry->ParseFromCodedStream(&coded) || coded.BytesUntilLimit() != 0) return no_manifest();
    coded.PopLimit(limit);
    if (absl::Status status = validator.Add(*entry); !status.ok()) return status;
  }
  return manifest;
}

int64_t ContentBytes(const Manifest& manifest) {
  int64_t bytes = 0;
  for (const FileEntry& entry : manifest.entries()) bytes += entry.size();
  return bytes;
}

}  // namespace gpuctl
