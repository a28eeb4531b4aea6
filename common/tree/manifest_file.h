// Manifests on disk, entry by entry, for work that must not hold another whole manifest in memory.
#ifndef GPUCTL_COMMON_TREE_MANIFEST_FILE_H_
#define GPUCTL_COMMON_TREE_MANIFEST_FILE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"
#include "common/tree/manifest.h"
#include "gpuctl/v1/transfer.pb.h"

namespace google::protobuf::io {
class FileInputStream;
}

namespace gpuctl {

// Reads a manifest entry by entry. It checks the framing, not the entries.
class ManifestReader {
 public:
  // A reader of no entries.
  ManifestReader();
  // Opens a manifest and reads its first entry. NOT_FOUND when there is no such file; DATA_LOSS as
  // in Advance.
  static absl::StatusOr<ManifestReader> Open(const std::string& path);
  ManifestReader(ManifestReader&&) noexcept;
  ManifestReader& operator=(ManifestReader&&) noexcept;
  ~ManifestReader();

  bool AtEnd() const { return at_end_; }
  // Returns the current entry. Not at the end.
  const gpuctl::v1::FileEntry& entry() const { return entry_; }
  // Reads the next entry. DATA_LOSS when the file ends in mid-entry or is not a manifest.
  absl::Status Advance();

 private:
  std::string path_;
  UniqueFd fd_;
  std::unique_ptr<google::protobuf::io::FileInputStream> input_;
  gpuctl::v1::FileEntry entry_;
  bool at_end_ = true;
};

// Writes `path`.tmp, which Publish renames. A path has one writer at a time.
class ManifestWriter {
 public:
  static absl::StatusOr<ManifestWriter> Create(const std::string& path);
  ManifestWriter(ManifestWriter&&) = default;
  ManifestWriter& operator=(ManifestWriter&&) = delete;
  // Removes the temporary file if it was not published.
  ~ManifestWriter();

  // Appends an entry unchecked. The bytes are the same as those of a Manifest.
  absl::Status Append(const gpuctl::v1::FileEntry& entry);
  // Syncs the appended entries and renames the file to `path`. The rename is not synced yet: see
  // SyncDirectory.
  absl::Status Publish();

 private:
  ManifestWriter(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string temporary() const { return path_ + ".tmp"; }
  absl::Status Flush();

  std::string path_;
  UniqueFd fd_;
  Manifest pending_;
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TREE_MANIFEST_FILE_H_
