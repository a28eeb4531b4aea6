// Secrets on their way from the shim's stdin into the child's environment.
#ifndef GPUCTL_AGENT_SHIM_SECRET_BLOCK_H_
#define GPUCTL_AGENT_SHIM_SECRET_BLOCK_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// Values live in one block of memory that core dumps leave out, and nowhere else; Wipe or the
// destructor overwrites it.
//
// The wire: for each secret a little-endian u32 length, the name, a u32 length, the value; after
// the last one u32 0xFFFFFFFF and the commit byte 'C'. At most 1 MiB in all.
class SecretBlock {
 public:
  // Reads `fd` up to the commit byte. DATA_LOSS when the bytes end before it or are not the above:
  // the sender died, and nothing may start. A name is a variable's name; a value has no NUL.
  static absl::StatusOr<SecretBlock> Read(int fd);

  SecretBlock(SecretBlock&& other) noexcept;
  SecretBlock& operator=(SecretBlock&&) = delete;
  ~SecretBlock();

  // "NAME=value" strings inside the block, good until Wipe. Names come out as they came in.
  const std::vector<char*>& entries() const { return entries_; }
  static absl::string_view NameOf(const char* entry);

  void Wipe();

 private:
  SecretBlock() = default;
  absl::Status Allocate();
  absl::Status ReadExactly(int fd, char* to, size_t size);
  absl::Status ReadFrom(int fd);

  char* block_ = nullptr;
  size_t used_ = 0;
  std::vector<char*> entries_;
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SHIM_SECRET_BLOCK_H_
