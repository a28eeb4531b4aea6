// The part of a manifest's content that somebody lacks, and the pieces in which it is sent.
#ifndef GPUCTL_COMMON_TREE_MISSING_CONTENT_H_
#define GPUCTL_COMMON_TREE_MISSING_CONTENT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "common/tree/manifest.h"

namespace gpuctl {

// A unit of content that is sent and checked at once: a whole file of at most kPartBytes, or one
// part of a larger file.
struct Piece {
  int64_t index = 0;  // of the file's entry
  int64_t offset = 0;
  int64_t length = 0;
};

// A set of missing pieces. Not thread-safe.
class MissingContent {
 public:
  // Makes an empty set for a manifest of `entries` entries.
  explicit MissingContent(int64_t entries) : state_(static_cast<size_t>(entries), kThere) {}
  // Returns the set of all content of `manifest`.
  static MissingContent AllOf(const Manifest& manifest);

  void AddFile(int64_t index) { Set(index, kWhole); }
  void AddPart(int64_t index, int64_t part, int64_t parts);
  void RemoveFile(int64_t index) { Set(index, kThere); }
  // `parts` is the file's number of parts.
  void RemovePart(int64_t index, int64_t part, int64_t parts);

  // True when anything of the file, or this part of it, is missing.
  bool Has(int64_t index) const { return state_[static_cast<size_t>(index)] != kThere; }
  bool Has(int64_t index, int64_t part) const;
  bool empty() const;
  // Calls `visit` for each missing piece in the order of the manifest.
  void ForEachPiece(const Manifest& manifest, const std::function<void(const Piece&)>& visit) const;
  int64_t Bytes(const Manifest& manifest) const;
  // Calls `files` for each run of files that are missing as a whole, with the index of the first
  // and their number. Then calls `parts` for each run of missing parts of the other files, with the
  // file's index. Both in ascending order.
  void ForEachRun(
      const std::function<void(uint32_t first, uint32_t number)>& files,
      const std::function<void(uint32_t index, uint32_t first, uint32_t number)>& parts) const;

 private:
  enum State : uint8_t { kThere, kWhole, kParts };
  void Set(int64_t index, State state);

  std::vector<State> state_;
  std::map<int64_t, std::vector<bool>> parts_;  // true: missing
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TREE_MISSING_CONTENT_H_
