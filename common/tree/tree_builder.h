// A tree put together beside its final place: from what is there already in other trees, and from
// pieces that a peer sends. Used by the node for a push and by the laptop for a pull.
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

// How content of another tree is taken over. Only what nobody writes to any more may be linked.
enum class Reuse { kMove, kLink, kCopy };

class TreeBuilder {
 public:
  // Begins in a staging directory in `parent`, with what is left there of earlier tries, which is
  // read and checked again. `wanted` names the entries to build, all when empty; what they hold is
  // missing at first. The manifest is valid.
  static absl::StatusOr<std::unique_ptr<TreeBuilder>> Begin(const std::string& parent,
                                                            Manifest manifest,
                                                            std::vector<bool> wanted = {});

  const Manifest& manifest() const { return manifest_; }
  MissingContent& missing() { return missing_; }
  bool Wants(int64_t index) const { return wanted_.empty() || wanted_[static_cast<size_t>(index)]; }
  // The directory of the tree, and the staging directory it lies in.
  std::string tree_path() const;
  const std::string& staging_path() const { return staging_.path(); }
  int root_fd() const { return root_fd_.get(); }

  // Takes from the tree open at `source_fd`, described by `source`, what is still missing. With
  // `verified` its files are known to be what `source` says; otherwise they are read. What is no
  // longer there, or different, is passed over; errors are those of writing here.
  absl::Status TakeFrom(int source_fd, const Manifest& source, Reuse how, bool verified);
  // Takes from the tree open at `source_fd`, of which nothing is known, files at the same paths
  // that have the same content, or parts of it.
  absl::Status TakeSamePaths(int source_fd);

  // Takes of the one file `name` in `source_dir`, whose parts had these hashes when it looked like
  // `then`, what the missing entry `index` has as well; nothing if it was written to since.
  absl::Status TakeKnown(int source_dir, const std::string& name, int64_t index,
                         const std::string& part_hashes, const FileIdentity& then);

  // How many entries were compared and files opened in order to take them over: what it costs.
  int64_t take_steps() const { return take_steps_; }

  // Makes what has no content of its own, sets modes, and brings all to stable storage. DATA_LOSS
  // when something is still missing.
  absl::Status Finish();
  // Leaves what there is to a later try.
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

// The manifest kept in a staging directory, for further streams and later tries. NOT_FOUND or
// INVALID_ARGUMENT when there is none that is whole.
absl::StatusOr<Manifest> ReadStagedManifest(const std::string& staging_path);
std::string StagedManifestPath(const std::string& staging_path);
std::string StagedTreePath(const std::string& staging_path);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TREE_TREE_BUILDER_H_
