// Manifests on disk, entry by entry: for work on trees of which not another whole manifest is to be
// in memory.
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

// Stands at one entry after the other. Framing is checked, what entries say is not.
class ManifestReader {
 public:
  // Without entries.
  ManifestReader();
  // Stands at the first entry. NOT_FOUND when there is no such file; DATA_LOSS as of Advance.
  static absl::StatusOr<ManifestReader> Open(const std::string& path);
  ManifestReader(ManifestReader&&) noexcept;
  ManifestReader& operator=(ManifestReader&&) noexcept;
  ~ManifestReader();

  bool AtEnd() const { return at_end_; }
  // Not at the end.
  const gpuctl::v1::FileEntry& entry() const { return entry_; }
  // DATA_LOSS when the file ends in mid-entry or is no manifest.
  absl::Status Advance();

 private:
  std::string path_;
  UniqueFd fd_;
  std::unique_ptr<google::protobuf::io::FileInputStream> input_;
  gpuctl::v1::FileEntry entry_;
  bool at_end_ = true;
};

// Writes `path`.tmp, which Publish renames. One writer for each path at a time.
class ManifestWriter {
 public:
  static absl::StatusOr<ManifestWriter> Create(const std::string& path);
  ManifestWriter(ManifestWriter&&) = default;
  ManifestWriter& operator=(ManifestWriter&&) = delete;
  // Removes what was not published.
  ~ManifestWriter();

  // The bytes are those that a Manifest would have; entries are not judged.
  absl::Status Append(const gpuctl::v1::FileEntry& entry);
  // Brings what was appended to stable storage and renames it to `path`, which is not synced yet:
  // see SyncDirectory.
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
