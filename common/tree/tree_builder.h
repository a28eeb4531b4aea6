// Building a tree beside its final place, from content of other trees and from pieces that a peer
// sends. The node uses it for a push, the laptop for a pull.
#ifndef GPUCTL_COMMON_TREE_TREE_BUILDER_H_
#define GPUCTL_COMMON_TREE_TREE_BUILDER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/unique_fd.h"
#include "common/delta/moved_parts.h"
#include "common/files/staging_dir.h"
#include "common/tree/hash_cache.h"
#include "common/tree/manifest.h"
#include "common/tree/missing_content.h"
#include "gpuctl/v1/transfer.pb.h"

namespace gpuctl {

// The way to take over content of another tree. Only files that nobody writes to any more may be
// linked.
enum class Reuse { kMove, kLink, kCopy };

// A file that lacks parts, and those parts.
struct LostParts {
  int64_t index = 0;  // of its entry
  std::vector<LostPart> parts;
};

// The largest number of parts that are searched for in older files.
constexpr int64_t kMostLostParts = 50'000;

// What becomes of an earlier try, not older than three days, that has nothing for this manifest.
enum class Leftover {
  kStays,           // for the transfer that goes on with it
  kGoesWhenSimilar  // the same, but it goes when it has a file of the same path: an older version
};

class TreeBuilder {
 public:
  // Begins in a new staging directory in `parent`. Takes over the content that earlier tries left
  // in `parent`; it is read and checked again. Tries that are used up, or older, are removed.
  // `wanted` selects the entries to build, all when empty; their content is missing at first. The
  // manifest must be valid.
  static absl::StatusOr<std::unique_ptr<TreeBuilder>> Begin(const std::string& parent,
                                                            Manifest manifest,
                                                            std::vector<bool> wanted = {},
                                                            Leftover leftover = Leftover::kStays);

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

  // Returns the missing parts of files of which the functions above met an older version. Their
  // anchors are still unknown.
  std::vector<LostParts> PartsToFind() const;
  // Takes parts, as PartsToFind returned them and with anchors, from wherever they are in the older
  // versions. It reads and checks what it takes. Errors are those of writing here.
  absl::Status TakeMoved(std::vector<LostParts> files);
  // Describes the content of older versions that is near missing parts. Call it after TakeMoved.
  std::vector<gpuctl::v1::Offer> MakeOffers() const;
  // Returns a descriptor of the older version of a file, -1 when there is none. It stays open as
  // long as this object.
  int OlderFile(int64_t index) const;

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
                                                                Leftover leftover,
                                                                std::vector<StagingDir>& earlier);
  TreeBuilder(StagingDir staging, Manifest manifest, std::vector<bool> wanted);
  absl::Status TakeWhole(int source_dir, const std::string& name, int64_t index, Reuse how,
                         bool verified);
  absl::Status TakeParts(int source_dir, const std::string& name, int64_t index, Reuse how,
                         const std::string* part_hashes = nullptr,
                         const FileIdentity* then = nullptr);
  absl::Status MakeEmptyFiles();

  // An older version of a file in parts.
  struct Older {
    // A run of bytes that both versions have.
    struct Same {
      int64_t here = 0;   // offset in the new version
      int64_t there = 0;  // offset in the older one
      int64_t length = 0;
    };
    UniqueFd fd;
    int64_t size = 0;
    std::vector<Same> same;              // in the order of `here`
    std::map<int64_t, int64_t> guesses;  // part -> offset where it seems to be, with other content
  };
  void NoteOlder(int64_t index, int fd, int64_t size, absl::string_view part_hashes);
  absl::Status CopyMoved(Older& older, const LostParts& lost);
  absl::StatusOr<UniqueFd> OpenToFill(const gpuctl::v1::FileEntry& entry, bool& is_new);

  StagingDir staging_;
  const Manifest manifest_;
  const std::vector<bool> wanted_;
  MissingContent missing_;
  UniqueFd root_fd_;
  int64_t take_steps_ = 0;
  std::map<int64_t, Older> older_;  // by the entry's index
};

// Returns the manifest kept in a staging directory, for further streams and later tries. NOT_FOUND
// or INVALID_ARGUMENT when there is no whole one.
absl::StatusOr<Manifest> ReadStagedManifest(const std::string& staging_path);
std::string StagedManifestPath(const std::string& staging_path);
std::string StagedTreePath(const std::string& staging_path);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TREE_TREE_BUILDER_H_
