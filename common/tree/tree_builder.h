// Building a tree beside its final place, from content of other trees and from pieces that a peer
// sends. The node uses it for a push, the laptop for a pull.
#ifndef GPUCTL_COMMON_TREE_TREE_BUILDER_H_
#define GPUCTL_COMMON_TREE_TREE_BUILDER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"
#include "common/files/staging_dir.h"
#include "common/tree/hash_cache.h"
#include "common/tree/manifest.h"
#include "common/tree/missing_content.h"

namespace gpuctl {

// The way to take over content of another tree. Only files that nobody writes to any more may be
// linked.
enum class Reuse { kMove, kLink, kCopy };

class TreeBuilder {
 public:
  // Begins in a new staging directory in `parent`. Takes over the content that earlier tries left
  // in `parent`; it is read and checked again. A try of the last three days that has nothing for
  // this manifest stays for the transfer that goes on with it; others are removed. `wanted` selects
  // the entries to build, all when empty; their content is missing at first. The manifest must be
  // valid.
  static absl::StatusOr<std::unique_ptr<TreeBuilder>> Begin(const std::string& parent,
                                                            Manifest manifest,
                                                            std::vector<bool> wanted = {});

  const Manifest& manifest() const { return manifest_; }
  MissingContent& missing() { return missing_; }
  bool Wants(int64_t index) const { return wanted_.empty() || wanted_[static_cast<size_t>(index)]; }
  // Return the directory of the tree, and the staging directory around it.
  std::string tree_path() const;
  const std::string& staging_path() const { return staging_.path(); }
  int root_fd() const { return root_fd_.get(); }

  // Takes missing content from the tree open at `source_fd`, described by `source`. With `verified`
  // its files are known to match `source`; otherwise they are read and checked. Skips files that
  // are gone or different. Errors are those of writing here.
  absl::Status TakeFrom(int source_fd, const Manifest& source, Reuse how, bool verified);
  // Takes missing content, whole files or parts, from files at the same paths in the tree open at
  // `source_fd`. Nothing is known about that tree.
  absl::Status TakeSamePaths(int source_fd);

  // Takes content for the missing entry `index` from the file `name` in `source_dir`. Its parts had
  // the hashes `part_hashes` when its identity was `then`. Takes nothing if it was written to
  // since.
  absl::Status TakeKnown(int source_dir, const std::string& name, int64_t index,
                         const std::string& part_hashes, const FileIdentity& then);

  // Returns the number of entries compared and files opened for taking content, a measure of the
  // cost.
  int64_t take_steps() const { return take_steps_; }

  // Makes the entries without content, sets modes and syncs everything. DATA_LOSS when content is
  // still missing.
  absl::Status Finish();
  // Leaves the staging directory for a later try.
  void Keep() { staging_.Keep(); }
  const StagingDir& staging() const { return staging_; }

 private:
  static absl::StatusOr<std::unique_ptr<TreeBuilder>> BeginWith(const std::string& parent,
                                                                Manifest manifest,
                                                                std::vector<bool> wanted,
                                                                std::vector<StagingDir>& earlier);
  TreeBuilder(StagingDir staging, Manifest manifest, std::vector<bool> wanted);
  absl::Status TakeWhole(int source_dir, const std::string& name, int64_t index, Reuse how,
                         bool verified);
  absl::Status TakeParts(int source_dir, const std::string& name, int64_t index, Reuse how,
                         const std::string* part_hashes = nullptr,
                         const FileIdentity* then = nullptr);
  absl::Status MakeEmptyFiles();

  StagingDir staging_;
  const Manifest manifest_;
  const std::vector<bool> wanted_;
  MissingContent missing_;
  UniqueFd root_fd_;
  int64_t take_steps_ = 0;
};

// Returns the manifest kept in a staging directory, for further streams and later tries. NOT_FOUND
// or INVALID_ARGUMENT when there is no whole one.
absl::StatusOr<Manifest> ReadStagedManifest(const std::string& staging_path);
std::string StagedManifestPath(const std::string& staging_path);
std::string StagedTreePath(const std::string& staging_path);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TREE_TREE_BUILDER_H_
