// Computes SHA-256 as lower-case hex. Our own code, because the trainer is also compiled on
// machines that have no library for it.

#ifndef TRAINER_BASE_SHA256_H_
#define TRAINER_BASE_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace gpuctl::trainer {

// An incremental digest. Not thread-safe; Hex() ends it.
class Sha256 {
 public:
  // `instructions`: the processor's own ones are used where it has them; tests also go without.
  explicit Sha256(bool instructions = true) : instructions_(instructions) {}
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(const void* bytes, size_t size);
  std::string Hex();  // 64 characters; call once

 private:
  static constexpr size_t kBlockBytes = 64;
  void AddBlocks(const unsigned char* bytes, size_t blocks);

  const bool instructions_;
  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, kBlockBytes> block_ = {};  // the beginning of the next block
  uint64_t bytes_ = 0;
};

std::string Sha256Hex(const std::string& bytes);
// Hashes the file, which it reads in pieces. Calls `check` behind each; it may throw to give up.
// Throws Error(kIo).
std::string Sha256HexOfFile(const std::string& path, const std::function<void()>& check = nullptr);

}  // namespace gpuctl::trainer

#endif  // TRAINER_BASE_SHA256_H_
