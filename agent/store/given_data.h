// The `data:` trees that a job was given, from its directory.
#ifndef GPUCTL_AGENT_STORE_GIVEN_DATA_H_
#define GPUCTL_AGENT_STORE_GIVEN_DATA_H_

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "agent/store/tree_trust.h"
#include "common/job/job_layout.h"
#include "common/tree/manifest_file.h"
#include "gpuctl/v1/run.pb.h"

namespace gpuctl {

// Returns the file with the inodes of the stored files that the job has links to. Every job with
// data has it, perhaps empty; only jobs of older agents have none.
std::string LentFilesPath(const JobPaths& job);
// Returns the manifest of a data tree in the job's directory.
std::string DataManifestPath(const JobPaths& job, const std::string& digest);

// Adds the inodes of the stored files that the job has links to.
absl::Status AddLentFiles(const JobPaths& job, std::set<uint64_t>& inodes);

// Removes the job's links to stored files in the way that spares the next job the reading of these
// files. Call it before the job's directory is removed, and only for a job that is over.
void TakeBackData(const RootPaths& root, const JobPaths& job, const gpuctl::v1::JobSpec& spec);

// The files of one data tree as they were given to the job. Its functions are called in the order
// of paths.
class GivenData {
 public:
  GivenData(const JobPaths& job, const gpuctl::v1::DataTree& data);

  const std::string& path() const { return path_; }
  // Returns the entry that was given at the path, which is relative to work/, or null.
  absl::StatusOr<const gpuctl::v1::FileEntry*> Find(absl::string_view path);
  // True when the store knows that the file, which it shares, is as it was.
  bool IsStored(const gpuctl::v1::FileEntry& entry, const struct stat& info) {
    return known_->Has(entry, info);
  }

 private:
  std::string path_;
  ManifestReader given_;
  std::unique_ptr<KnownFiles> known_;
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_STORE_GIVEN_DATA_H_
