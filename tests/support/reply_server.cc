#include "tests/support/reply_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace gpuctl {
namespace {

template <typename Writer>
std::string ToPem(Writer write) {
  BIO* bio = BIO_new(BIO_s_mem());
  EXPECT_EQ(write(bio), 1);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<size_t>(size));
  BIO_free(bio);
  return text;
}

std::unique_ptr<EVP_PKEY, FreeOpensslTestObjects> MakeKey() {
  return std::unique_ptr<EVP_PKEY, FreeOpensslTestObjects>(EVP_EC_gen("P-256"));
}

void AddExtension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  ASSERT_NE(extension, nullptr) << value;
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

std::unique_ptr<X509, FreeOpensslTestObjects> MakeCertificate(const char* name, EVP_PKEY* key,
                                                              long from_s, long to_s) {
  static long serial = 1;
  std::unique_ptr<X509, FreeOpensslTestObjects> made(X509_new());
  X509_set_version(made.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(made.get()), serial++);
  X509_gmtime_adj(X509_getm_notBefore(made.get()), from_s);
  X509_gmtime_adj(X509_getm_notAfter(made.get()), to_s);
  X509_set_pubkey(made.get(), key);
  const std::unique_ptr<X509_NAME, FreeOpensslTestObjects> subject(X509_NAME_new());
  X509_NAME_add_entry_by_txt(subject.get(), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
  X509_set_subject_name(made.get(), subject.get());
  return made;
}

void MakePipe(UniqueFd& read_end, UniqueFd& write_end) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  for (const int end : ends) fcntl(end, F_SETFD, FD_CLOEXEC);
  read_end.reset(ends[0]);
  write_end.reset(ends[1]);
}

// Returns a bound socket; `port` gets its port.
UniqueFd Bind(int type, const std::string& address, int& port) {
  sockaddr_storage storage{};
  socklen_t size = 0;
  auto* ipv4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* ipv6 = reinterpret_cast<sockaddr_in6*>(&storage);
  const uint16_t network_port = htons(static_cast<uint16_t>(port));
  if (inet_pton(AF_INET, address.c_str(), &ipv4->sin_addr) == 1) {
    storage.ss_family = AF_INET;
    ipv4->sin_port = network_port;
    size = sizeof(sockaddr_in);
  } else {
    EXPECT_EQ(inet_pton(AF_INET6, address.c_str(), &ipv6->sin6_addr), 1) << address;
    storage.ss_family = AF_INET6;
    ipv6->sin6_port = network_port;
    size = sizeof(sockaddr_in6);
  }
  UniqueFd fd(socket(storage.ss_family, type, 0));
  fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&storage), size), 0) << strerror(errno);
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&storage), &size);
  port = ntohs(storage.ss_family == AF_INET ? ipv4->sin_port : ipv6->sin6_port);
  return fd;
}

// True when `text` is a whole request.
bool IsWhole(absl::string_view text) {
  const size_t head_end = text.find("\r\n\r\n");
  if (head_end == absl::string_view::npos) return false;
  size_t length = 0;
  constexpr absl::string_view kLength = "content-length:";
  for (size_t line = 0; line < head_end; line = text.find("\r\n", line) + 2) {
    if (absl::StartsWithIgnoreCase(text.substr(line), kLength)) {
      const absl::string_view value = text.substr(line + kLength.size());
      EXPECT_TRUE(absl::SimpleAtoi(value.substr(0, value.find('\r')), &length));
    }
  }
  return text.size() >= head_end + 4 + length;
}

}  // namespace

TestCa::TestCa() : key_(MakeKey()) {
  certificate_ = MakeCertificate("the test's own authority", key_.get(), -7200, 7200);
  X509_set_issuer_name(certificate_.get(), X509_get_subject_name(certificate_.get()));
  AddExtension(certificate_.get(), certificate_.get(), NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(certificate_.get(), certificate_.get(), NID_key_usage, "critical,keyCertSign");
  AddExtension(certificate_.get(), certificate_.get(), NID_subject_key_identifier, "hash");
  EXPECT_NE(X509_sign(certificate_.get(), key_.get(), EVP_sha256()), 0);
  pem_ = ToPem([this](BIO* bio) { return PEM_write_bio_X509(bio, certificate_.get()); });
}

TestCertificate TestCa::Issue(const std::string& names, long from_s, long to_s) const {
  const auto key = MakeKey();
  const auto made = MakeCertificate("a server", key.get(), from_s, to_s);
  X509_set_issuer_name(made.get(), X509_get_subject_name(certificate_.get()));
  AddExtension(made.get(), certificate_.get(), NID_subject_alt_name, names);
  AddExtension(made.get(), certificate_.get(), NID_authority_key_identifier, "keyid");
  EXPECT_NE(X509_sign(made.get(), key_.get(), EVP_sha256()), 0);
  TestCertificate issued;
  issued.certificate = ToPem([&](BIO* bio) { return PEM_write_bio_X509(bio, made.get()); });
  issued.key = ToPem([&](BIO* bio) {
    return PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
  return issued;
}

ReplyServer::ReplyServer(Options options) : options_(std::move(options)), port_(options_.port) {
  signal(SIGPIPE, SIG_IGN);
  MakePipe(stop_read_, stop_write_);
  listener_ = Bind(SOCK_STREAM, options_.address, port_);
  EXPECT_EQ(listen(listener_.get(), 16), 0);
  thread_ = std::thread([this] { Run(); });
}

ReplyServer::~ReplyServer() {
  stop_write_.reset();
  thread_.join();
}

std::vector<std::string> ReplyServer::requests() {
  MutexLock lock(mutex_);
  return requests_;
}

bool ReplyServer::WaitForRequests(size_t count) {
  MutexLock lock(mutex_);
  for (int waits = 0; requests_.size() < count && waits < 60; ++waits) {
    changed_.WaitFor(mutex_, absl::Seconds(1));
  }
  return requests_.size() >= count;
}

void ReplyServer::Run() {
  for (;;) {
    pollfd polled[2] = {{listener_.get(), POLLIN, 0}, {stop_read_.get(), POLLIN, 0}};
    poll(polled, 2, -1);
    if (polled[1].revents != 0) return;
    const UniqueFd connection(accept(listener_.get(), nullptr, nullptr));
    if (!connection.valid()) continue;
    fcntl(connection.get(), F_SETFD, FD_CLOEXEC);
    Serve(connection.get());
  }
}

void ReplyServer::Serve(int fd) {
  // A peer that hangs must not hang the test.
  timeval patience{30, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  SSL_CTX* context = nullptr;
  SSL* ssl = nullptr;
  bool open = true;
  if (!options_.certificate.certificate.empty()) {
    context = SSL_CTX_new(TLS_server_method());
    BIO* bio = BIO_new_mem_buf(options_.certificate.certificate.data(),
                               static_cast<int>(options_.certificate.certificate.size()));
    X509* certificate = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
    BIO_free(bio);
    bio = BIO_new_mem_buf(options_.certificate.key.data(),
                          static_cast<int>(options_.certificate.key.size()));
    EVP_PKEY* key = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
    BIO_free(bio);
    SSL_CTX_use_certificate(context, certificate);
    SSL_CTX_use_PrivateKey(context, key);
    X509_free(certificate);
    EVP_PKEY_free(key);
    ssl = SSL_new(context);
    SSL_set_fd(ssl, fd);
    open = SSL_accept(ssl) == 1;
  }
  std::string request;
  while (open && !IsWhole(request)) {
    char buffer[4096];
    const ssize_t got =
        ssl != nullptr ? SSL_read(ssl, buffer, sizeof(buffer)) : read(fd, buffer, sizeof(buffer));
    open = got > 0;
    if (open) request.append(buffer, static_cast<size_t>(got));
  }
  if (open) {
    MutexLock lock(mutex_);
    requests_.push_back(request);
    changed_.NotifyAll();
  }
  for (const std::string& piece : options_.pieces) {
    if (!open) break;
    const ssize_t written = ssl != nullptr
                                ? SSL_write(ssl, piece.data(), static_cast<int>(piece.size()))
                                : write(fd, piece.data(), piece.size());
    open = written == static_cast<ssize_t>(piece.size());
  }
  if (open && options_.pieces.empty()) {
    // The end of what the client sends is readable, too.
    pollfd polled[2] = {{fd, POLLIN, 0}, {stop_read_.get(), POLLIN, 0}};
    poll(polled, 2, -1);
  }
  if (ssl != nullptr) {
    if (open) SSL_shutdown(ssl);
    SSL_free(ssl);
    SSL_CTX_free(context);
  }
  // The sent bytes must arrive before the end.
  shutdown(fd, SHUT_WR);
}

NameServer::NameServer(std::string ipv4, std::string ipv6, int port)
    : ipv4_(std::move(ipv4)), ipv6_(std::move(ipv6)), port_(port) {
  MakePipe(stop_read_, stop_write_);
  socket_ = Bind(SOCK_DGRAM, "127.0.0.1", port_);
  thread_ = std::thread([this] { Run(); });
}

NameServer::~NameServer() {
  stop_write_.reset();
  thread_.join();
}

std::string NameServer::address() const { return absl::StrCat("127.0.0.1:", port_); }

void NameServer::Run() {
  for (;;) {
    pollfd polled[2] = {{socket_.get(), POLLIN, 0}, {stop_read_.get(), POLLIN, 0}};
    poll(polled, 2, -1);
    if (polled[1].revents != 0) return;
    char question[512];
    sockaddr_in peer{};
    socklen_t peer_size = sizeof(peer);
    const ssize_t got = recvfrom(socket_.get(), question, sizeof(question), 0,
                                 reinterpret_cast<sockaddr*>(&peer), &peer_size);
    if (got < 17) continue;
    // The header is 12 bytes; the name ends with a zero byte, type and class follow.
    size_t end = 12;
    while (end < static_cast<size_t>(got) && question[end] != 0) ++end;
    end += 5;
    if (end > static_cast<size_t>(got)) continue;
    const bool aaaa = question[end - 3] == 28;
    const std::string& address = aaaa ? ipv6_ : ipv4_;
    std::string reply(question, end);
    const bool known = !address.empty() && (aaaa || question[end - 3] == 1);
    const char header[10] = {
        static_cast<char>(0x85), static_cast<char>(0x80), 0, 1, 0, known, 0, 0, 0, 0};
    reply.replace(2, sizeof(header), header, sizeof(header));
    if (known) {
      char bytes[16];
      inet_pton(aaaa ? AF_INET6 : AF_INET, address.c_str(), bytes);
      const char size = aaaa ? 16 : 4;
      const char record[12] = {
          static_cast<char>(0xc0), 12, 0, question[end - 3], 0, 1, 0, 0, 0, 60, 0, size};
      reply.append(record, sizeof(record));
      reply.append(bytes, static_cast<size_t>(size));
    }
    sendto(socket_.get(), reply.data(), reply.size(), 0, reinterpret_cast<sockaddr*>(&peer),
           peer_size);
  }
}

}  // namespace gpuctl
