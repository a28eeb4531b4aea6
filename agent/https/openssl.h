// What all code of the agent that speaks TLS by OpenSSL needs.
#ifndef GPUCTL_AGENT_HTTPS_OPENSSL_H_
#define GPUCTL_AGENT_HTTPS_OPENSSL_H_

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <memory>
#include <string>

namespace gpuctl {

struct FreeOpenssl {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};
using SslContext = std::unique_ptr<SSL_CTX, FreeOpenssl>;
using Ssl = std::unique_ptr<SSL, FreeOpenssl>;

// Returns why the last call failed on this thread, for people, and forgets it.
inline std::string OpensslReason() {
  const unsigned long error = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  return reason == nullptr ? "broken off" : reason;
}

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_HTTPS_OPENSSL_H_
