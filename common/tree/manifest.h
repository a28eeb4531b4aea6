// Manifests of trees: a directory's entries, with the hashes of their content.
#ifndef GPUCTL_COMMON_TREE_MANIFEST_H_
#define GPUCTL_COMMON_TREE_MANIFEST_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gpuctl/v1/transfer.pb.h"

namespace gpuctl {

constexpr int64_t kMaxManifestBytes = int64_t{256} << 20;  // serialized
constexpr int64_t kMaxManifestEntries = 4'000'000;
// The size of a part, in bytes. Larger files are hashed, sent and taken over in parts; see
// FileEntry.
constexpr int64_t kPartBytes = int64_t{8} << 20;

// A list of FileEntry, kept as the serialization of a gpuctl.v1.Manifest: about 90 bytes an entry,
// where messages take 300. A copy copies all of it.
class Manifest {
 public:
  // Appends the entry unchecked; ValidateManifest and ParseManifest check.
  void Append(const gpuctl::v1::FileEntry& entry);
  void Reserve(int64_t bytes) { bytes_.reserve(static_cast<size_t>(bytes)); }

  int64_t size() const { return static_cast<int64_t>(offsets_.size()); }
  bool empty() const { return offsets_.empty(); }
  // Parses entry `index`, 0 <= index < size().
  gpuctl::v1::FileEntry operator[](int64_t index) const;
  // Returns the sum of the files' sizes.
  int64_t content_bytes() const { return content_bytes_; }
  // Returns the serialization. The digest is that of exactly these bytes.
  const std::string& bytes() const { return bytes_; }
  // Returns the hex sha256 of bytes().
  std::string Digest() const;

  class Iterator {
   public:
    Iterator(const Manifest* manifest, int64_t index) : manifest_(manifest), index_(index) {}
    gpuctl::v1::FileEntry operator*() const { return (*manifest_)[index_]; }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return index_ != other.index_; }

   private:
    const Manifest* manifest_;
    int64_t index_;
  };
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }

 private:
  friend absl::StatusOr<Manifest> ParseManifest(std::string bytes);
  std::string bytes_;
  std::vector<uint32_t> offsets_;  // of each entry in bytes_, from its tag on
  int64_t content_bytes_ = 0;
};

// INVALID_ARGUMENT unless entries are sorted by PathLess (see relative_path.h), unique and safe:
// relative paths without "", "." or ".." components or NUL, at most 4096 bytes; modes within 0777;
// sizes >= 0; every parent of an entry is a directory entry or absent (never a file or a symlink);
// symlink targets non-empty; files with hashes of the right number, whose parts' hashes make up the
// file's.
absl::Status ValidateManifest(const Manifest& manifest);

// Validates entries one after the other, so that a bad entry is found before the next ones are in
// memory.
class ManifestValidator {
 public:
  // Adds an entry. INVALID_ARGUMENT unless it may follow the added ones; a refused entry is not
  // added.
  absl::Status Add(const gpuctl::v1::FileEntry& entry);

 private:
  std::string last_;
  bool last_is_directory_ = false;
  int64_t count_ = 0;
  int64_t content_bytes_ = 0;
};

// Returns a valid manifest that takes over the bytes unchanged, or INVALID_ARGUMENT. It validates
// each entry as it reads it, so hostile bytes cost little more memory than their own size.
absl::StatusOr<Manifest> ParseManifest(std::string bytes);

// Returns the number of parts of a file of `size` bytes: one for a file that fits in one part, none
// for an empty file.
constexpr int64_t PartCount(int64_t size) { return (size + kPartBytes - 1) / kPartBytes; }
// Returns the hash, 32 raw bytes, that part `part` of a file must have.
absl::string_view PartHash(const gpuctl::v1::FileEntry& entry, int64_t part);
// Sets sha256 and part_sha256 from the hashes of the parts, one behind the other (32 bytes each;
// none for an empty file).
void SetHashes(const std::string& part_hashes, gpuctl::v1::FileEntry& entry);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TREE_MANIFEST_H_
