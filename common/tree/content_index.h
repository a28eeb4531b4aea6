// An index of a manifest's entries with missing content, by that content.
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

// Finds entries by content. Callers fill the entries that they find. The index skips each filled
// entry once and never meets it again, so that thousands of copies of one content cost no more than
// as many different contents.
class ContentIndex {
 public:
  // Both must outlive the index. Entries that become missing later are not in it.
  ContentIndex(const Manifest& manifest, const MissingContent& missing);

  bool empty() const { return keys_.empty(); }
  // Returns the first entry after `after` (-1: the first of all) that has exactly this content and
  // is still missing, or -1. Entries with the same content come in the order of the manifest.
  int64_t Next(const gpuctl::v1::FileEntry& wanted, int64_t after = -1);
  // Returns the number of entries compared or skipped, a measure of the cost.
  int64_t steps() const { return steps_; }

 private:
  struct Key {
    uint64_t hash;
    uint32_t index;
    uint32_t skip;  // in the first key of a hash: how many of its keys were filled
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
