#include "common/tree/hash_cache.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"

// The file has a magic line, the records, and the sha256 of everything before it. A record is the
// length of the path (u32), the path, five integers of eight bytes, the hash, the number of parts
// (u32; 0 for a file that is not in parts), and their hashes. Integers are in this machine's byte
// order, because the file never leaves the machine.
namespace gpuctl {
namespace {

constexpr absl::string_view kMagic = "gpuctl hash cache 2\n";
constexpr size_t kCachedHashBytes = 32;
constexpr uint32_t kMaxCachedPathBytes = 4096;
constexpr uint32_t kMaxParts = 1 << 24;

int64_t Nanoseconds(const struct timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

template <typename T>
void AppendRaw(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
bool ReadRaw(std::FILE* in, T& value) {
  return fread(&value, sizeof(value), 1, in) == 1;
}

bool ReadBytes(std::FILE* in, size_t size, std::string& bytes) {
  bytes.resize(size);
  return size == 0 || fread(bytes.data(), size, 1, in) == 1;
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

HashCache::HashCache(std::string path, Clock& clock, absl::Duration settled)
    : path_(std::move(path)), clock_(clock), settled_(settled) {
  OpenOld();
  Record record;
  if (old_ != nullptr && ReadRecord(record)) next_ = std::move(record);
}

HashCache::~HashCache() {
  if (old_ != nullptr) fclose(old_);
  if (new_ != nullptr) {
    fclose(new_);
    (void)file_ops::Unlink(new_path_);
  }
}

// Opens the stored cache. old_ is then at the first record, or null when the file is not whole.
void HashCache::OpenOld() {
  old_ = fopen(path_.c_str(), "rbe");
  if (old_ == nullptr) return;
  Sha256 hash;
  // Hash everything but the last bytes, which are the hash of all before them.
  std::string held;
  std::string chunk(1 << 16, '\0');
  int64_t size = 0;
  while (const size_t got = fread(chunk.data(), 1, chunk.size(), old_)) {
    held.append(chunk.data(), got);
    size += static_cast<int64_t>(got);
    if (held.size() <= kCachedHashBytes) continue;
    const size_t settled = held.size() - kCachedHashBytes;
    hash.Update(absl::string_view(held).substr(0, settled));
    held.erase(0, settled);
  }
  rewind(old_);
  std::string magic;
  const auto head = static_cast<int64_t>(kMagic.size() + kCachedHashBytes);
  if (size < head || hash.Finish() != held || !ReadBytes(old_, kMagic.size(), magic) ||
      magic != kMagic) {
    fclose(old_);
    old_ = nullptr;
    return;
  }
  old_left_ = size - head;
  old_hash_ = std::move(held);
}

bool HashCache::ReadRecord(Record& record) {
  if (old_left_ <= 0) return false;
  uint32_t length = 0;
  uint32_t parts = 0;
  FileIdentity& identity = record.identity;
  if (!ReadRaw(old_, length) || length > kMaxCachedPathBytes ||
      !ReadBytes(old_, length, record.file) || !ReadRaw(old_, identity.device) ||
      !ReadRaw(old_, identity.inode) || !ReadRaw(old_, identity.size) ||
      !ReadRaw(old_, identity.mtime_ns) || !ReadRaw(old_, identity.ctime_ns) ||
      !ReadBytes(old_, kCachedHashBytes, record.hashes.sha256) || !ReadRaw(old_, parts) ||
      parts > kMaxParts ||
      !ReadBytes(old_, size_t{parts} * kCachedHashBytes, record.hashes.part_sha256)) {
    old_left_ = 0;
    return false;
  }
  old_left_ -= static_cast<int64_t>(2 * sizeof(uint32_t) + length + 5 * sizeof(int64_t) +
                                    kCachedHashBytes + record.hashes.part_sha256.size());
  return true;
}

std::optional<HashCache::Hashes> HashCache::Find(absl::string_view file,
                                                 const FileIdentity& identity) {
  while (next_.has_value() && PathLess(next_->file, file)) {
    if (!ReadRecord(*next_)) next_.reset();
  }
  if (!next_.has_value() || next_->file != file) return std::nullopt;
  std::optional<Hashes> found;
  if (next_->identity == identity) found = std::move(next_->hashes);
  if (!ReadRecord(*next_)) next_.reset();
  return found;
}

void HashCache::Keep(absl::string_view file, const FileIdentity& identity, const Hashes& hashes) {
  const int64_t settled_ns = absl::ToUnixNanos(clock_.Now() - settled_);
  if (failed_ || identity.mtime_ns > settled_ns || identity.ctime_ns > settled_ns) return;
  std::string bytes;
  if (new_ == nullptr) {
    new_path_ = absl::StrCat(path_, ".", RandomHex(8));
    new_ = MakeDirectories(DirName(path_)).ok() ? fopen(new_path_.c_str(), "wbxe") : nullptr;
    failed_ = new_ == nullptr;
    if (failed_) return;
    bytes = std::string(kMagic);
  }
  AppendRaw(bytes, static_cast<uint32_t>(file.size()));
  bytes.append(file.data(), file.size());
  AppendRaw(bytes, identity.device);
  AppendRaw(bytes, identity.inode);
  AppendRaw(bytes, identity.size);
  AppendRaw(bytes, identity.mtime_ns);
  AppendRaw(bytes, identity.ctime_ns);
  bytes.append(hashes.sha256);
  AppendRaw(bytes, static_cast<uint32_t>(hashes.part_sha256.size() / kCachedHashBytes));
  bytes.append(hashes.part_sha256);
  new_hash_.Update(bytes);
  failed_ = fwrite(bytes.data(), bytes.size(), 1, new_) != 1;
}

absl::Status HashCache::Save() {
  if (new_ == nullptr) {
    if (failed_) return ErrnoStatus(EIO, absl::StrCat("save hash cache ", new_path_));
    return absl::OkStatus();
  }
  const std::string end = new_hash_.Finish();
  failed_ = failed_ || fwrite(end.data(), end.size(), 1, new_) != 1;
  failed_ = fclose(new_) != 0 || failed_;
  new_ = nullptr;
  if (!failed_ && end == old_hash_) {
    (void)file_ops::Unlink(new_path_);
    return absl::OkStatus();
  }
  if (!failed_ && file_ops::Rename(new_path_, path_) == 0) return absl::OkStatus();
  const int error_number = failed_ ? EIO : errno;
  (void)file_ops::Unlink(new_path_);
  return ErrnoStatus(error_number, absl::StrCat("save hash cache ", path_));
}

}  // namespace gpuctl
