// The entries of a manifest whose content is missing, found by that content.
#ifndef GPUCTL_COMMON_TREE_CONTENT_INDEX_H_
#define GPUCTL_COMMON_TREE_CONTENT_INDEX_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/tree/manifest.h"
#include "common/tree/missing_content.h"
#include "gpuctl/v1/transfer.pb.h"

namespace gpuctl {

// For a search in which content that was found is soon missing no more: what came is passed over
// once and never met again, so that thousands of copies of one content cost no more than as many
// different ones.
class ContentIndex {
 public:
  // Both must outlive the index. Entries that become missing later on are not in it.
  ContentIndex(const Manifest& manifest, const MissingContent& missing);

  bool empty() const { return keys_.empty(); }
  // The first entry behind `after` (-1: of all) that has just this content and is still missing;
  // -1 when there is none. Entries with the same content come in the order of the manifest.
  int64_t Next(const gpuctl::v1::FileEntry& wanted, int64_t after = -1);
  // How many entries were compared or passed over: what it costs.
  int64_t steps() const { return steps_; }

 private:
  struct Key {
    uint64_t hash;
    uint32_t index;
    uint32_t skip;  // of a key that is the first with its hash: so many of them came
    bool operator<(const Key& other) const {
      return std::pair(hash, index) < std::pair(other.hash, other.index);
    }
  };
  const Manifest& manifest_;
  const MissingContent& missing_;
  std::vector<Key> keys_;
  int64_t steps_ = 0;
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TREE_CONTENT_INDEX_H_
