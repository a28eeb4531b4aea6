#ifndef GPUCTL_COMMON_FILES_SHA256_H_
#define GPUCTL_COMMON_FILES_SHA256_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// Incremental SHA-256 (FIPS 180-4) by OpenSSL. Not thread-safe.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void Update(absl::string_view data);
  // Returns the 32 raw bytes and resets the object.
  std::string Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Returns 32 raw bytes.
std::string Sha256Of(absl::string_view data);
// Returns the HMAC-SHA-256 (RFC 2104) of `data` with `key`: 32 raw bytes.
std::string HmacSha256(absl::string_view key, absl::string_view data);
// True when both have the same bytes. Takes the same time wherever they differ.
bool SameSecret(absl::string_view a, absl::string_view b);
// Returns 64 lower-case hex digits.
std::string Sha256HexOf(absl::string_view data);
// Returns the same digits for a file's content.
absl::StatusOr<std::string> Sha256HexOfFile(const std::string& path);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_FILES_SHA256_H_
