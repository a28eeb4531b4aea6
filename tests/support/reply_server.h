// Small servers on loopback for the node's one request: HTTP with and without TLS, new
// certificates, and a name server.
#ifndef GPUCTL_TESTS_SUPPORT_REPLY_SERVER_H_
#define GPUCTL_TESTS_SUPPORT_REPLY_SERVER_H_

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

struct FreeOpensslTestObjects {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(X509_NAME* name) const { X509_NAME_free(name); }
};

// A certificate and its key, as PEM texts.
struct TestCertificate {
  std::string certificate;
  std::string key;
};

// A certificate authority for one test.
class TestCa {
 public:
  TestCa();
  const std::string& pem() const { return pem_; }
  // Makes a server's certificate. `names` as in "DNS:a.test,IP:127.0.0.1"; valid from now plus
  // `from_s` to now plus `to_s` (seconds).
  TestCertificate Issue(const std::string& names, long from_s = -3600, long to_s = 3600) const;

 private:
  std::unique_ptr<EVP_PKEY, FreeOpensslTestObjects> key_;
  std::unique_ptr<X509, FreeOpensslTestObjects> certificate_;
  std::string pem_;
};

// A server that answers every request with the same bytes and records it.
class ReplyServer {
 public:
  struct Options {
    std::string address = "127.0.0.1";
    int port = 0;
    // The certificate for TLS; empty: no TLS.
    TestCertificate certificate;
    // The pieces of the reply, written one after the other before the close. Empty: silent until
    // the peer closes.
    std::vector<std::string> pieces = {"HTTP/1.1 204 No Content\r\n\r\n"};
  };
  explicit ReplyServer(Options options);
  ~ReplyServer();
  int port() const { return port_; }
  // Returns the whole requests so far: head and body.
  std::vector<std::string> requests();
  // Waits until there are `count` of them. False after a minute.
  bool WaitForRequests(size_t count);

 private:
  void Run();
  void Serve(int fd);
  const Options options_;
  UniqueFd listener_, stop_read_, stop_write_;
  int port_ = 0;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> requests_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

// A name server that answers every question for an A or AAAA record with these addresses; an empty
// address means no data.
class NameServer {
 public:
  NameServer(std::string ipv4, std::string ipv6, int port = 0);
  ~NameServer();
  std::string address() const;
  int port() const { return port_; }

 private:
  void Run();
  const std::string ipv4_, ipv6_;
  UniqueFd socket_, stop_read_, stop_write_;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_REPLY_SERVER_H_
