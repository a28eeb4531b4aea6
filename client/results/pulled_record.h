// What pull has brought home of a run: runs/<run_id>/pulled.jsonl, a line for each checkpoint or
// set of files. By it `verify` knows what should be there, and a watching pull what it may remove.
#ifndef GPUCTL_CLIENT_RESULTS_PULLED_RECORD_H_
#define GPUCTL_CLIENT_RESULTS_PULLED_RECORD_H_

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tree/manifest.h"

namespace gpuctl {

struct PulledFile {
  std::string path;  // below the item's; "" when the item is a file itself
  int64_t size = 0;
  std::string sha256;       // hex, as in a manifest: of part hashes for a file above kPartBytes
  int64_t modified_ns = 0;  // at home, after it was published
};

struct PulledItem {
  enum class Kind { kTrainer, kForeign, kFiles };
  Kind kind = Kind::kFiles;
  std::string path;  // absolute
  std::string from;  // relative to the job's directory
  int64_t step = -1;
  int64_t time_ms = 0;
  int64_t node_modified_ms = 0;  // of the checkpoint, as the node listed it
  bool ours = true;              // pull made it; false when a copy was found there
  std::vector<PulledFile> files;
};

// Where a file of an item is.
std::string PulledPath(const PulledItem& item, const PulledFile& file);
// When a file was modified, as PulledFile::modified_ns counts it.
int64_t PulledTime(const struct stat& info);

// The item for what `manifest` says was published at `path`, absolute. Files that are gone again
// are left out.
PulledItem DescribePulled(const std::string& path, const Manifest& manifest, bool is_file);

// Whether what the item names is there with the sizes and times it had; content is not read.
bool IsUntouched(const PulledItem& item);
// The same, and nothing else is in the directory.
bool IsUntouchedAndAlone(const PulledItem& item);

// Renames a published file or directory to a hidden name beside it, for removal; returns that name.
absl::StatusOr<std::string> MoveAside(const std::string& path);
// Removes what a crash has left of such in `dir`.
absl::Status RemoveAsides(const std::string& dir);

class PulledRecord {
 public:
  // In the run's directory, which is made when something is appended.
  explicit PulledRecord(const std::string& run_dir);

  // Durable when it returns. Safe beside other processes and threads.
  absl::Status Append(const PulledItem& item);
  absl::Status AppendRemoved(const std::string& path, int64_t time_ms);

  // What should be there, oldest first: a later item at the same path replaces an earlier one, a
  // file that came again counts once, what was removed is left out. Torn lines are passed over.
  absl::StatusOr<std::vector<PulledItem>> Read() const;

  // The same, and beside it the checkpoints that were brought and removed again by a watching pull.
  struct All {
    std::vector<PulledItem> there;
    std::vector<PulledItem> removed;
  };
  absl::StatusOr<All> ReadAll() const;

 private:
  absl::Status AppendLine(std::string line);
  const std::string path_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RESULTS_PULLED_RECORD_H_
