// TreeBuilder's use of older versions of large files, in which parts may be anywhere.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/delta/offers.h"
#include "common/files/dir_walk.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "common/files/sha256.h"
#include "common/files/sync_fs.h"
#include "common/tree/tree_builder.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;
using gpuctl::v1::Offer;

constexpr size_t kMostOlderFiles = 64;
constexpr int64_t kCopyBufferBytes = 256 << 10;
constexpr int kMostCopyThreads = 8;
// Cuts agree again after a few chunks, so an offer reaches this far beyond what it is for.
constexpr int64_t kOfferMargin = 128 << 10;
// The most content of one offer, and of all.
constexpr int64_t kMostOfferBytes = int64_t{40} << 20;
constexpr int64_t kMostOfferedBytes = int64_t{1} << 30;
// The distance from a part that was found up to which its shift says something.
constexpr int64_t kNearBytes = int64_t{64} << 20;

bool IsAllZero(absl::string_view bytes) {
  return !bytes.empty() && bytes[0] == '\0' &&
         memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

// Copies a part from where it was found, if it has the hash `wanted`. True when it has. Zeros are
// not written into a new file: a hole reads the same.
absl::StatusOr<bool> CopyPart(int from_fd, int to_fd, bool to_new, const LostPart& part,
                              absl::string_view wanted, const std::string& shown) {
  std::string buffer(static_cast<size_t>(kCopyBufferBytes), '\0');
  Sha256 hash;
  for (int64_t at = 0; at < part.length;) {
    const auto size = static_cast<size_t>(std::min(part.length - at, kCopyBufferBytes));
    const ssize_t got = pread(from_fd, buffer.data(), size, part.found + at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    absl::string_view bytes(buffer.data(), static_cast<size_t>(got));
    hash.Update(bytes);
    if (to_new && IsAllZero(bytes)) bytes = {};
    for (int64_t to = part.offset + at; !bytes.empty();) {
      const ssize_t written = file_ops::PWrite(to_fd, bytes.data(), bytes.size(), to);
      if (written < 0) return ErrnoStatus(errno, absl::StrCat("write ", shown));
      bytes.remove_prefix(static_cast<size_t>(written));
      to += written;
    }
    at += got;
  }
  BeginWriteBack(to_fd, part.offset, part.length);
  return hash.Finish() == wanted;
}

}  // namespace

void TreeBuilder::NoteOlder(int64_t index, int fd, int64_t size, absl::string_view part_hashes) {
  if (older_.size() >= kMostOlderFiles || older_.count(index) > 0) return;
  Older older;
  older.fd.reset(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!older.fd.valid()) return;
  older.size = size;
  const FileEntry entry = manifest_[index];
  for (int64_t part = 0; part < PartCount(std::min(entry.size(), size)); ++part) {
    const absl::string_view wanted = PartHash(entry, part);
    const size_t at = static_cast<size_t>(part) * wanted.size();
    if (at >= part_hashes.size() || part_hashes.substr(at, wanted.size()) != wanted) continue;
    const int64_t offset = part * kPartBytes;
    older.same.push_back({offset, offset, std::min(kPartBytes, entry.size() - offset)});
  }
  older_[index] = std::move(older);
}

int TreeBuilder::OlderFile(int64_t index) const {
  const auto older = older_.find(index);
  return older == older_.end() ? -1 : older->second.fd.get();
}

std::vector<LostParts> TreeBuilder::PartsToFind() const {
  std::vector<LostParts> files;
  int64_t count = 0;
  for (const auto& older : older_) {
    if (!missing_.Has(older.first)) continue;
    LostParts lost;
    lost.index = older.first;
    const int64_t size = manifest_[older.first].size();
    for (int64_t part = 0; part < PartCount(size) && count < kMostLostParts; ++part) {
      if (!missing_.Has(older.first, part)) continue;
      const int64_t offset = part * kPartBytes;
      lost.parts.push_back({part, offset, std::min(kPartBytes, size - offset), {}, -1});
      ++count;
    }
    if (!lost.parts.empty()) files.push_back(std::move(lost));
  }
  return files;
}

absl::Status TreeBuilder::TakeMoved(std::vector<LostParts> files) {
  for (LostParts& lost : files) {
    const auto found = older_.find(lost.index);
    if (found == older_.end()) continue;
    Older& older = found->second;
    std::vector<Range> explained;
    for (const Older::Same& same : older.same) {
      explained.push_back({same.there, same.there + same.length});
    }
    FindMovedParts(older.fd.get(), older.size, std::move(explained), lost.parts);
    RETURN_IF_ERROR(CopyMoved(older, lost));
  }
  return absl::OkStatus();
}

// Opens the file that the entry becomes, with the entry's size.
absl::StatusOr<UniqueFd> TreeBuilder::OpenToFill(const FileEntry& entry, bool& is_new) {
  DirWalk walk(root_fd_.get());
  ASSIGN_OR_RETURN(const int dir, walk.OpenOrMake(ParentPath(entry.path())));
  UniqueFd fd(OpenBelow(dir, BaseName(entry.path()), O_WRONLY | O_CREAT, 0600, entry.path()));
  struct stat info {};
  if (!fd.valid() || fstat(fd.get(), &info) != 0) return PathError("create", entry.path());
  is_new = info.st_size == 0;
  if (int64_t{info.st_size} != entry.size() && file_ops::Truncate(fd.get(), entry.size()) != 0) {
    return PathError("create", entry.path());
  }
  return fd;
}

// Copies the parts that were found, on several threads, and notes what has the right content.
absl::Status TreeBuilder::CopyMoved(Older& older, const LostParts& lost) {
  std::vector<const LostPart*> found;
  for (const LostPart& part : lost.parts) {
    if (part.found >= 0) found.push_back(&part);
  }
  if (found.empty()) return absl::OkStatus();
  const FileEntry entry = manifest_[lost.index];
  bool is_new = false;
  ASSIGN_OR_RETURN(const UniqueFd to, OpenToFill(entry, is_new));
  const std::string shown = absl::CHexEscape(entry.path());
  std::atomic<size_t> next{0};
  Mutex mutex;  // guards the status, and what is missing and known
  absl::Status status;
  const auto work = [&] {
    for (size_t i = next++; i < found.size(); i = next++) {
      const LostPart& part = *found[i];
      const absl::StatusOr<bool> same =
          CopyPart(older.fd.get(), to.get(), is_new, part, PartHash(entry, part.part), shown);
      MutexLock lock(mutex);
      status.Update(same.status());
      if (!status.ok()) return;
      if (*same) {
        missing_.RemovePart(lost.index, part.part, PartCount(entry.size()));
        older.same.push_back({part.offset, part.found, part.length});
      } else {
        older.guesses[part.part] = part.found;
      }
    }
  };
  const auto useful = std::min({static_cast<size_t>(kMostCopyThreads), found.size(),
                                static_cast<size_t>(std::thread::hardware_concurrency())});
  std::vector<std::thread> threads;
  for (size_t i = 1; i < useful; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  std::sort(older.same.begin(), older.same.end(),
            [](const Older::Same& a, const Older::Same& b) { return a.here < b.here; });
  return status;
}

namespace {

// Returns the range of an older file of `size` bytes that may have content of the part [begin, end)
// of the new one, if the content around it moved by one of the `shifts`, the likeliest first.
Range LikelyRange(int64_t begin, int64_t end, int64_t size, std::vector<int64_t> shifts) {
  const auto [least, most] = std::minmax_element(shifts.begin(), shifts.end());
  int64_t low = *least;
  int64_t high = *most;
  if (end - begin + high - low > kMostOfferBytes - 2 * kOfferMargin) low = high = shifts[0];
  return {std::clamp<int64_t>(begin + low - kOfferMargin, 0, size),
          std::clamp<int64_t>(end + high + kOfferMargin, 0, size)};
}

}  // namespace

std::vector<Offer> TreeBuilder::MakeOffers() const {
  std::vector<Offer> offers;
  int64_t offered = 0;
  for (const auto& [index, older] : older_) {
    if (!missing_.Has(index)) continue;
    const int64_t size = manifest_[index].size();
    auto next = older.same.begin();
    for (int64_t part = 0; part < PartCount(size); ++part) {
      const int64_t begin = part * kPartBytes;
      const int64_t end = std::min(begin + kPartBytes, size);
      while (next != older.same.end() && next->here < end) ++next;
      if (!missing_.Has(index, part)) continue;
      std::vector<int64_t> shifts;
      const auto guess = older.guesses.find(part);
      if (guess != older.guesses.end()) shifts.push_back(guess->second - begin);
      const Older::Same* before = next == older.same.begin() ? nullptr : &*(next - 1);
      const bool touches = before != nullptr && before->here + before->length == begin;
      if (before != nullptr && begin - before->here - before->length <= kNearBytes) {
        shifts.push_back(before->there - before->here);
      }
      if (next != older.same.end() && next->here - end <= kNearBytes) {
        shifts.push_back(next->there - next->here);
      }
      // In a file of which nothing was found, content may still be near its old place.
      if (shifts.empty() && older.same.empty() && size <= kNearBytes) shifts.push_back(0);
      if (shifts.empty()) continue;
      Range range = LikelyRange(begin, end, older.size, std::move(shifts));
      // Both ends then cut from the same place on.
      if (touches) range.begin = std::max(range.begin, before->there + before->length);
      if (range.begin >= range.end || offered + range.end - range.begin > kMostOfferedBytes) {
        continue;
      }
      offered += range.end - range.begin;
      Offer& offer = offers.emplace_back();
      offer.set_index(static_cast<uint32_t>(index));
      offer.set_part(static_cast<uint32_t>(part));
      DescribeChunks(older.fd.get(), range, offer);
      if (offer.sizes_size() == 0) offers.pop_back();
    }
  }
  return offers;
}

}  // namespace gpuctl
