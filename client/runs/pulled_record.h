// The record of a run's downloaded results: runs/<run_id>/pulled.jsonl, a line for each checkpoint
// or set of files. It tells `verify` which files should exist, and a watching pull which ones it
// may remove.
#ifndef GPUCTL_CLIENT_RUNS_PULLED_RECORD_H_
#define GPUCTL_CLIENT_RUNS_PULLED_RECORD_H_

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tree/manifest.h"

namespace gpuctl {

struct PulledFile {
  std::string path;  // below the item's path; "" when the item is a file itself
  int64_t size = 0;
  std::string sha256;       // hex, as in a manifest: of part hashes for a file above kPartBytes
  int64_t modified_ns = 0;  // time of the local file after it was published
  // The node's time, as it listed a file of the work directory; 0 when that is not known.
  int64_t node_modified_ms = 0;
};

struct PulledItem {
  enum class Kind { kTrainer, kForeign, kFiles };
  Kind kind = Kind::kFiles;
  std::string path;  // absolute
  std::string from;  // relative to the job's directory
  int64_t step = -1;
  int64_t time_ms = 0;
  int64_t node_modified_ms = 0;  // of the checkpoint, as the node listed it
  bool ours = true;              // pull made it; false when the copy existed before
  std::vector<PulledFile> files;
};

// Returns the path of a file of an item.
std::string PulledPath(const PulledItem& item, const PulledFile& file);
// Returns the time of a file's modification, in the unit of PulledFile::modified_ns.
int64_t PulledTime(const struct stat& info);

// Returns the item for the content of `manifest`, published at the absolute `path`. Leaves out
// files that no longer exist.
PulledItem DescribePulled(const std::string& path, const Manifest& manifest, bool is_file);

// True when the item's files exist with their recorded sizes and times; does not read content.
bool IsUntouched(const PulledItem& item);
// True when IsUntouched, nothing else is in the directory, and no symlink is in its place.
bool IsUntouchedAndAlone(const PulledItem& item);

// Renames a published file or directory to a hidden name beside it, for removal; returns that name.
absl::StatusOr<std::string> MoveAside(const std::string& path);
// Removes such hidden names that a crash left in `dir`.
absl::Status RemoveAsides(const std::string& dir);

class PulledRecord {
 public:
  // The record is in the run's directory, which Append makes.
  explicit PulledRecord(const std::string& run_dir);

  // Appends an item; durable when it returns. Safe with other processes and threads.
  absl::Status Append(const PulledItem& item);
  absl::Status AppendRemoved(const std::string& path, int64_t time_ms);

  // Returns the items that should exist, oldest first. A later item at the same path replaces an
  // earlier one, a file that came twice counts once, removed items are left out. Skips incomplete
  // lines.
  absl::StatusOr<std::vector<PulledItem>> Read() const;

  // The same items, and the checkpoints that a watching pull downloaded and removed again.
  struct All {
    std::vector<PulledItem> there;
    std::vector<PulledItem> removed;
  };
  absl::StatusOr<All> ReadAll() const;

  // True when a checkpoint that was brought is still there.
  bool HasCheckpoint() const;

  // Notes that the job was over, and that each of its results was found at home then. Durable when
  // it returns.
  absl::Status NoteAllHome(int64_t now_ms);
  // Returns when that was noted last, in Unix milliseconds; 0 when it never was.
  int64_t AllHomeMs() const;

 private:
  absl::Status AppendLine(std::string line);
  const std::string path_, home_path_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RUNS_PULLED_RECORD_H_
