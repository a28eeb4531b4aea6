#include "common/hash_cache.h"

#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/sha256.h"
#include "common/status_macros.h"

// The file: a line of magic, then one record after the other, then the sha256 of all before it.
// A record is the length of the path (u32), the path, five integers of eight bytes, and the hash.
// Integers are in this machine's byte order: the file never leaves it.
namespace gpuctl {
namespace {

constexpr absl::string_view kMagic = "gpuctl hash cache 1\n";
constexpr size_t kHashBytes = 32;
constexpr int64_t kMaxCacheBytes = int64_t{512} << 20;
constexpr absl::Duration kSettled = absl::Seconds(2);

int64_t Nanoseconds(const struct timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

template <typename T>
void AppendRaw(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
bool TakeRaw(absl::string_view& in, T& value) {
  if (in.size() < sizeof(value)) return false;
  memcpy(&value, in.data(), sizeof(value));
  in.remove_prefix(sizeof(value));
  return true;
}

bool TakeBytes(absl::string_view& in, size_t size, std::string& bytes) {
  if (in.size() < size) return false;
  bytes.assign(in.data(), size);
  in.remove_prefix(size);
  return true;
}

}  // namespace

FileIdentity FileIdentity::Of(const struct stat& info) {
  FileIdentity identity;
  identity.device = static_cast<uint64_t>(info.st_dev);
  identity.inode = static_cast<uint64_t>(info.st_ino);
  identity.size = int64_t{info.st_size};
#if defined(__APPLE__)
  identity.mtime_ns = Nanoseconds(info.st_mtimespec);
  identity.ctime_ns = Nanoseconds(info.st_ctimespec);
#else
  identity.mtime_ns = Nanoseconds(info.st_mtim);
  identity.ctime_ns = Nanoseconds(info.st_ctim);
#endif
  return identity;
}

HashCache::HashCache(std::string path, Clock& clock) : path_(std::move(path)), clock_(clock) {
  const absl::StatusOr<std::string> bytes = ReadFileToString(path_, kMaxCacheBytes);
  if (bytes.ok() && !Parse(*bytes)) entries_.clear();
}

bool HashCache::Parse(absl::string_view bytes) {
  if (!absl::StartsWith(bytes, kMagic) || bytes.size() < kMagic.size() + kHashBytes) return false;
  const absl::string_view content = bytes.substr(0, bytes.size() - kHashBytes);
  if (Sha256Of(content) != bytes.substr(content.size())) return false;
  absl::string_view rest = content.substr(kMagic.size());
  while (!rest.empty()) {
    uint32_t length = 0;
    std::string file;
    Entry entry;
    FileIdentity& identity = entry.identity;
    if (!TakeRaw(rest, length) || !TakeBytes(rest, length, file) ||
        !TakeRaw(rest, identity.device) || !TakeRaw(rest, identity.inode) ||
        !TakeRaw(rest, identity.size) || !TakeRaw(rest, identity.mtime_ns) ||
        !TakeRaw(rest, identity.ctime_ns) || !TakeBytes(rest, kHashBytes, entry.sha256)) {
      return false;
    }
    entries_[file] = std::move(entry);
  }
  return true;
}

std::optional<std::string> HashCache::Find(absl::string_view file, const FileIdentity& identity) {
  const auto found = entries_.find(file);
  if (found == entries_.end() || !(found->second.identity == identity)) return std::nullopt;
  found->second.used = true;
  return found->second.sha256;
}

void HashCache::Put(absl::string_view file, const FileIdentity& identity,
                    absl::string_view sha256) {
  const int64_t settled_ns = absl::ToUnixNanos(clock_.Now() - kSettled);
  if (identity.mtime_ns > settled_ns || identity.ctime_ns > settled_ns) return;
  entries_[file] = Entry{identity, std::string(sha256), true};
  changed_ = true;
}

absl::Status HashCache::Save() {
  std::string bytes(kMagic);
  for (const auto& [file, entry] : entries_) {
    if (!entry.used) {
      changed_ = true;
      continue;
    }
    AppendRaw(bytes, static_cast<uint32_t>(file.size()));
    bytes.append(file);
    AppendRaw(bytes, entry.identity.device);
    AppendRaw(bytes, entry.identity.inode);
    AppendRaw(bytes, entry.identity.size);
    AppendRaw(bytes, entry.identity.mtime_ns);
    AppendRaw(bytes, entry.identity.ctime_ns);
    bytes.append(entry.sha256);
  }
  if (!changed_) return absl::OkStatus();
  bytes.append(Sha256Of(bytes));
  RETURN_IF_ERROR(Annotate(MakeDirectories(DirName(path_)), "save hash cache"));
  RETURN_IF_ERROR(Annotate(WriteFileAtomic(path_, bytes), "save hash cache"));
  changed_ = false;
  return absl::OkStatus();
}

}  // namespace gpuctl
