// Passing secrets from the shim's stdin to the child's environment.
#ifndef GPUCTL_AGENT_SHIM_SECRET_BLOCK_H_
#define GPUCTL_AGENT_SHIM_SECRET_BLOCK_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// A block of secrets. Values are only in this one block of memory, which core dumps leave out. Wipe
// or the destructor overwrites it.
//
// The format on stdin: for each secret a little-endian u32 length, the name, a u32 length, the
// value; after the last one u32 0xFFFFFFFF and the commit byte 'C'. At most 1 MiB in total.
class SecretBlock {
 public:
  // Reads `fd` up to the commit byte. DATA_LOSS when the bytes end before it or have another
  // format: the sender died, and nothing may start. A name must be that of a variable; a value has
  // no NUL.
  static absl::StatusOr<SecretBlock> Read(int fd);

  SecretBlock(SecretBlock&& other) noexcept;
  SecretBlock& operator=(SecretBlock&&) = delete;
  ~SecretBlock();

  // Returns "NAME=value" strings inside the block, valid until Wipe. Names are unchanged.
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
