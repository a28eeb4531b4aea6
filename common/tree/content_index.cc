#include "common/tree/content_index.h"

#include <algorithm>
#include <cstring>

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;

uint64_t Prefix(const std::string& sha256) {
  uint64_t prefix = 0;
  memcpy(&prefix, sha256.data(), std::min(sizeof(prefix), sha256.size()));
  return prefix;
}

}  // namespace

ContentIndex::ContentIndex(const Manifest& manifest, const MissingContent& missing)
    : manifest_(manifest), missing_(missing) {
  for (int64_t i = 0; i < manifest.size(); ++i) {
    if (missing.Has(i))
      keys_.push_back({Prefix(manifest[i].sha256()), static_cast<uint32_t>(i), 0});
  }
  std::sort(keys_.begin(), keys_.end());
}

int64_t ContentIndex::Next(const FileEntry& wanted, int64_t after) {
  const uint64_t hash = Prefix(wanted.sha256());
  const auto first = std::lower_bound(keys_.begin(), keys_.end(), Key{hash, 0, 0});
  if (first == keys_.end() || first->hash != hash) return -1;
  const auto in_group = [&](std::vector<Key>::iterator it) {
    return it != keys_.end() && it->hash == hash;
  };
  auto it = first + first->skip;
  while (in_group(it) && !missing_.Has(it->index)) {
    ++it;
    ++first->skip;
    ++steps_;
  }
  if (after >= 0) {
    it = std::max(it,
                  std::upper_bound(first, keys_.end(), Key{hash, static_cast<uint32_t>(after), 0}));
  }
  for (; in_group(it); ++it) {
    ++steps_;
    if (!missing_.Has(it->index)) continue;
    const FileEntry entry = manifest_[it->index];
    if (entry.sha256() == wanted.sha256() && entry.size() == wanted.size()) return it->index;
  }
  return -1;
}

}  // namespace gpuctl
