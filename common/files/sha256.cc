// OpenSSL 3 deprecates the low-level SHA256_* calls in favour of EVP. But EVP would bring OpenSSL's
// provider machinery, which reads the node's openssl.cnf, into the static agent for one hash.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "common/files/sha256.h"

#include <fcntl.h>
#include <openssl/sha.h>

#include <cerrno>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {

struct Sha256::State {
  SHA256_CTX context;
};

Sha256::Sha256() : state_(std::make_unique<State>()) { SHA256_Init(&state_->context); }
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::Update(absl::string_view data) {
  SHA256_Update(&state_->context, data.data(), data.size());
}

std::string Sha256::Finish() {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256_Final(reinterpret_cast<unsigned char*>(digest.data()), &state_->context);
  SHA256_Init(&state_->context);
  return digest;
}

std::string Sha256Of(absl::string_view data) {
  Sha256 hash;
  hash.Update(data);
  return hash.Finish();
}

std::string HmacSha256(absl::string_view key, absl::string_view data) {
  constexpr size_t kBlock = 64;
  std::string block = key.size() > kBlock ? Sha256Of(key) : std::string(key);
  block.resize(kBlock, '\0');
  std::string inner = block, outer = block;
  for (char& byte : inner) byte = static_cast<char>(byte ^ 0x36);
  for (char& byte : outer) byte = static_cast<char>(byte ^ 0x5c);
  Sha256 hash;
  hash.Update(inner);
  hash.Update(data);
  const std::string digest = hash.Finish();
  hash.Update(outer);
  hash.Update(digest);
  return hash.Finish();
}

bool SameSecret(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char differs = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    differs = static_cast<unsigned char>(differs | (a[i] ^ b[i]));
  }
  return differs == 0;
}

std::string Sha256HexOf(absl::string_view data) { return absl::BytesToHexString(Sha256Of(data)); }

absl::StatusOr<std::string> Sha256HexOfFile(const std::string& path) {
  UniqueFd fd(file_ops::Open(path, O_RDONLY));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("read ", path));
  Sha256 hash;
  std::vector<char> buffer(1 << 18);
  for (;;) {
    const ssize_t got = read(fd.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
    if (got == 0) return absl::BytesToHexString(hash.Finish());
    hash.Update({buffer.data(), static_cast<size_t>(got)});
  }
}

}  // namespace gpuctl
