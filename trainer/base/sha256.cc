#include "trainer/base/sha256.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <vector>

#include "trainer/base/error.h"

namespace gpuctl::trainer {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  if (EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) != 1) {
    throw std::runtime_error("sha256: libcrypto offers no SHA-256");
  }
}

Sha256::~Sha256() = default;

void Sha256::Update(const void* bytes, size_t size) {
  if (EVP_DigestUpdate(state_->context, bytes, size) != 1) {
    throw std::runtime_error("sha256: libcrypto refused an update");
  }
}

std::string Sha256::Hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_DigestFinal_ex(state_->context, digest, &size) != 1) {
    throw std::runtime_error("sha256: libcrypto refused to finish");
  }
  static const char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    hex += kDigits[digest[i] >> 4];
    hex += kDigits[digest[i] & 15];
  }
  return hex;
}

std::string Sha256Hex(const std::string& bytes) {
  Sha256 digest;
  digest.Update(bytes.data(), bytes.size());
  return digest.Hex();
}

std::string Sha256HexOfFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw IoError("open", path, errno);
  Sha256 digest;
  std::vector<char> buffer(1 << 20);
  ssize_t count;
  while ((count = ::read(fd, buffer.data(), buffer.size())) > 0) {
    digest.Update(buffer.data(), static_cast<size_t>(count));
  }
  const int error = errno;
  ::close(fd);
  if (count < 0) throw IoError("read", path, error);
  return digest.Hex();
}

}  // namespace gpuctl::trainer
