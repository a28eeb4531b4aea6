#include "agent/shim/secret_block.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr size_t kBlockBytes = 1 << 20;
constexpr uint32_t kEnd = 0xFFFFFFFF;
constexpr char kCommit = 'C';

absl::Status Torn(absl::string_view why) {
  return absl::DataLossError(absl::StrCat("read secrets: ", why));
}

uint32_t DecodeLength(const unsigned char (&bytes)[4]) {
  return bytes[0] | static_cast<uint32_t>(bytes[1]) << 8 | static_cast<uint32_t>(bytes[2]) << 16 |
         static_cast<uint32_t>(bytes[3]) << 24;
}

bool IsVariableName(absl::string_view name) {
  if (name.empty() || absl::ascii_isdigit(static_cast<unsigned char>(name[0]))) return false;
  for (const char c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_') return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<SecretBlock> SecretBlock::Read(int fd) {
  SecretBlock secrets;
  RETURN_IF_ERROR(secrets.Allocate());
  RETURN_IF_ERROR(secrets.ReadFrom(fd));
  return secrets;
}

SecretBlock::SecretBlock(SecretBlock&& other) noexcept
    : block_(std::exchange(other.block_, nullptr)),
      used_(std::exchange(other.used_, 0)),
      entries_(std::move(other.entries_)) {
  other.entries_.clear();
}

SecretBlock::~SecretBlock() { Wipe(); }

absl::Status SecretBlock::Allocate() {
  void* block =
      mmap(nullptr, kBlockBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) return ErrnoStatus(errno, "allocate memory for secrets");
#if defined(MADV_DONTDUMP)
  madvise(block, kBlockBytes, MADV_DONTDUMP);
#endif
  block_ = static_cast<char*>(block);
  return absl::OkStatus();
}

absl::Status SecretBlock::ReadExactly(int fd, char* to, size_t size) {
  while (size > 0) {
    const ssize_t got = read(fd, to, size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Torn(strerror(errno));
    if (got == 0) return Torn("ended before the commit byte");
    to += got;
    size -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

absl::Status SecretBlock::ReadFrom(int fd) {
  // It reads the bytes directly to their final place: "NAME=value\0", one after the other.
  const auto read_part = [&](uint32_t size, char terminator) -> absl::Status {
    if (size >= kBlockBytes - used_) return Torn("more than 1 MiB");
    char* const part = block_ + used_;
    RETURN_IF_ERROR(ReadExactly(fd, part, size));
    if (memchr(part, '\0', size) != nullptr) return Torn("a NUL byte");
    part[size] = terminator;
    used_ += size + 1;
    return absl::OkStatus();
  };
  while (true) {
    unsigned char length[4];
    RETURN_IF_ERROR(ReadExactly(fd, reinterpret_cast<char*>(length), sizeof(length)));
    const uint32_t name_size = DecodeLength(length);
    if (name_size == kEnd) break;
    char* const entry = block_ + used_;
    RETURN_IF_ERROR(read_part(name_size, '='));
    if (!IsVariableName({entry, name_size})) return Torn("a name that is no variable's");
    RETURN_IF_ERROR(ReadExactly(fd, reinterpret_cast<char*>(length), sizeof(length)));
    RETURN_IF_ERROR(read_part(DecodeLength(length), '\0'));
    entries_.push_back(entry);
  }
  char commit = 0;
  RETURN_IF_ERROR(ReadExactly(fd, &commit, 1));
  if (commit != kCommit) return Torn("no commit byte");
  return absl::OkStatus();
}

absl::string_view SecretBlock::NameOf(const char* entry) {
  const char* end = strchr(entry, '=');
  return {entry, static_cast<size_t>(end - entry)};
}

void SecretBlock::Wipe() {
  entries_.clear();
  if (block_ == nullptr) return;
  volatile char* bytes = block_;
  for (size_t i = 0; i < used_; ++i) bytes[i] = 0;
  munmap(block_, kBlockBytes);
  block_ = nullptr;
  used_ = 0;
}

}  // namespace gpuctl
