// Computes SHA-256 as lower-case hex, with libcrypto.

#ifndef TRAINER_BASE_SHA256_H_
#define TRAINER_BASE_SHA256_H_

#include <cstddef>
#include <memory>
#include <string>

namespace gpuctl::trainer {

// An incremental digest. Not thread-safe; Hex() ends it.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(const void* bytes, size_t size);
  std::string Hex();  // 64 characters; call once

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string Sha256Hex(const std::string& bytes);
// Hashes the file, which it reads in pieces. Throws Error(kIo).
std::string Sha256HexOfFile(const std::string& path);

}  // namespace gpuctl::trainer

#endif  // TRAINER_BASE_SHA256_H_
