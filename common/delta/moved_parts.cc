#include "common/delta/moved_parts.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/strings/string_view.h"

namespace gpuctl {
namespace {

constexpr int64_t kScanBytes = 1 << 20;
constexpr int64_t kLeastBudget = int64_t{256} << 20;

// Reads bytes of a file: fewer where it ends or does not let itself be read.
absl::string_view ReadSome(int fd, int64_t offset, int64_t size, std::string& buffer) {
  buffer.resize(static_cast<size_t>(size));
  size_t got = 0;
  while (got < buffer.size()) {
    const ssize_t n =
        pread(fd, buffer.data() + got, buffer.size() - got, offset + static_cast<int64_t>(got));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    got += static_cast<size_t>(n);
  }
  return absl::string_view(buffer).substr(0, got);
}

class MovedParts {
 public:
  MovedParts(int fd, int64_t size, std::vector<LostPart>& parts)
      : fd_(fd), size_(size), parts_(parts) {
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i].anchor.end == 0) continue;
      least_ = std::min(least_, parts_[i].anchor.hash);
      // Of equal parts the first is searched for; its neighbours lead to the others.
      by_hash_.emplace(parts_[i].anchor.hash, i);
    }
  }

  void Search(std::vector<Range> explained) {
    std::sort(explained.begin(), explained.end(),
              [](const Range& a, const Range& b) { return a.begin < b.begin; });
    explained.push_back({size_, size_});
    const int64_t budget = std::max(kLeastBudget, size_ / 4);
    int64_t at = 0;
    int64_t fruitless = 0;
    for (const Range& known : explained) {
      while (at < known.begin) {
        if (by_hash_.empty() || fruitless > budget) return;
        const int64_t end = std::min(at + kScanBytes, known.begin);
        const int64_t next = ScanOnce(at, end);
        fruitless = next > end || found_one_ ? 0 : fruitless + (end - at);
        at = next;
      }
      at = std::max(at, known.end);
    }
  }

 private:
  // Searches [begin, end) for anchors. Returns where to go on: behind the end, or behind what was
  // found.
  int64_t ScanOnce(int64_t begin, int64_t end) {
    found_one_ = false;
    const int64_t from = std::max<int64_t>(0, begin - static_cast<int64_t>(kGearBytes) + 1);
    const absl::string_view bytes = ReadSome(fd_, from, end - from, buffer_);
    int64_t next = end;
    ForEachPlace(bytes, least_, [&](size_t place, uint64_t hash) {
      const auto hit = by_hash_.find(hash);
      if (hit == by_hash_.end()) return true;
      const size_t index = hit->second;
      const LostPart& part = parts_[index];
      const int64_t offset = from + static_cast<int64_t>(place) - int64_t{part.anchor.end};
      if (!Take(index, offset)) return true;
      found_one_ = true;
      next = std::max(end, TakeNeighbours(index));
      return next == end;
    });
    return next;
  }

  // Notes that part `index` seems to be at `offset` of the older file.
  bool Take(size_t index, int64_t offset) {
    LostPart& part = parts_[index];
    if (part.found >= 0 || offset < 0 || offset > size_ - part.length) return false;
    part.found = offset;
    const auto by_hash = by_hash_.find(part.anchor.hash);
    if (by_hash != by_hash_.end() && by_hash->second == index) by_hash_.erase(by_hash);
    return true;
  }

  // Takes the parts beside `index` that moved with it. Returns the end of them all in the older
  // file.
  int64_t TakeNeighbours(size_t index) {
    const int64_t shift = parts_[index].found - parts_[index].offset;
    for (size_t i = index; i > 0 && IsAt(i - 1, shift); --i) {
      if (!Take(i - 1, parts_[i - 1].offset + shift)) break;
    }
    size_t last = index;
    while (last + 1 < parts_.size() && IsAt(last + 1, shift) &&
           Take(last + 1, parts_[last + 1].offset + shift)) {
      ++last;
    }
    return parts_[last].found + parts_[last].length;
  }

  // True when the part's anchor is where it would be with this shift.
  bool IsAt(size_t index, int64_t shift) {
    const LostPart& part = parts_[index];
    if (part.anchor.end < kGearBytes || part.found >= 0) return false;
    const int64_t at =
        part.offset + shift + int64_t{part.anchor.end} - static_cast<int64_t>(kGearBytes);
    if (at < 0 || at > size_ - static_cast<int64_t>(kGearBytes)) return false;
    const absl::string_view bytes = ReadSome(fd_, at, int64_t{kGearBytes}, probe_);
    return bytes.size() == kGearBytes && GearOf(bytes) == part.anchor.hash;
  }

  const int fd_;
  const int64_t size_;
  std::vector<LostPart>& parts_;
  std::unordered_map<uint64_t, size_t> by_hash_;
  uint64_t least_ = std::numeric_limits<uint64_t>::max();
  std::string buffer_;
  std::string probe_;
  bool found_one_ = false;
};

}  // namespace

void FindMovedParts(int fd, int64_t size, std::vector<Range> explained,
                    std::vector<LostPart>& parts) {
  MovedParts(fd, size, parts).Search(std::move(explained));
}

}  // namespace gpuctl
