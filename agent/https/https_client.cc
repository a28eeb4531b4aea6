#include "agent/https/https_client.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/https/openssl.h"
#include "agent/https/resolve.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr size_t kMaxHeadBytes = 64 << 10;

absl::StatusOr<SslContext> MakeContext(const std::vector<std::string>& roots_files) {
  // This must be the library's first call: the machine's configuration file may name modules, which
  // a static program cannot load.
  OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
  SslContext context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr || SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) != 1) {
    return absl::InternalError(absl::StrCat("prepare TLS: ", OpensslReason()));
  }
  bool any = false;
  for (const std::string& file : roots_files) {
    if (!PathExists(file)) continue;
    if (SSL_CTX_load_verify_locations(context.get(), file.c_str(), nullptr) == 1) any = true;
    ERR_clear_error();
  }
  if (!any) return absl::FailedPreconditionError("prepare TLS: no file of trusted roots is here");
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  return context;
}

absl::Status PollUntil(int fd, short events, absl::Duration deadline, Clock& clock) {
  for (;;) {
    const absl::Duration left = deadline - clock.SinceBoot();
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("no answer in time");
    pollfd polled{fd, events, 0};
    const int64_t wait_ms = std::min(absl::ToInt64Milliseconds(left) + 1, int64_t{60'000});
    const int ready = poll(&polled, 1, static_cast<int>(wait_ms));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return absl::UnavailableError(strerror(errno));
  }
}

// A connection, with TLS or without. Every step has a deadline.
class Connection {
 public:
  Connection(UniqueFd fd, Clock& clock) : fd_(std::move(fd)), clock_(clock) {}

  absl::Status Handshake(SSL_CTX* context, const std::string& host, absl::Duration deadline) {
    ssl_.reset(SSL_new(context));
    X509_VERIFY_PARAM* verify = ssl_ == nullptr ? nullptr : SSL_get0_param(ssl_.get());
    if (verify == nullptr || SSL_set_fd(ssl_.get(), fd_.get()) != 1) {
      return absl::InternalError(absl::StrCat("prepare TLS: ", OpensslReason()));
    }
    // OpenSSL compares an address with the certificate's addresses, and a name with its names.
    if (X509_VERIFY_PARAM_set1_ip_asc(verify, host.c_str()) != 1) {
      ERR_clear_error();
      X509_VERIFY_PARAM_set_hostflags(verify, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
      if (X509_VERIFY_PARAM_set1_host(verify, host.c_str(), host.size()) != 1 ||
          SSL_set_tlsext_host_name(ssl_.get(), host.c_str()) != 1) {
        return absl::InternalError(absl::StrCat("prepare TLS: ", OpensslReason()));
      }
    }
    for (;;) {
      ERR_clear_error();
      const int result = SSL_connect(ssl_.get());
      if (result == 1) return absl::OkStatus();
      const int64_t verified = SSL_get_verify_result(ssl_.get());
      if (verified != X509_V_OK) {
        return absl::PermissionDeniedError(
            absl::StrCat("TLS: certificate: ", X509_verify_cert_error_string(verified)));
      }
      RETURN_IF_ERROR(Annotate(Await(result, deadline), "TLS"));
    }
  }

  absl::Status Write(absl::string_view data, absl::Duration deadline) {
    while (!data.empty()) {
      if (ssl_ != nullptr) {
        ERR_clear_error();
        const int written = SSL_write(ssl_.get(), data.data(), static_cast<int>(data.size()));
        if (written > 0) {
          data.remove_prefix(static_cast<size_t>(written));
        } else {
          RETURN_IF_ERROR(Await(written, deadline));
        }
        continue;
      }
      const ssize_t written = write(fd_.get(), data.data(), data.size());
      if (written > 0) {
        data.remove_prefix(static_cast<size_t>(written));
      } else if (written < 0 && errno != EAGAIN && errno != EINTR) {
        return absl::UnavailableError(strerror(errno));
      } else {
        RETURN_IF_ERROR(Poll(POLLOUT, deadline));
      }
    }
    return absl::OkStatus();
  }

  // Appends received bytes. False at the end.
  absl::StatusOr<bool> Read(std::string& data, absl::Duration deadline) {
    char buffer[16 << 10];
    for (;;) {
      ssize_t got = 0;
      if (ssl_ != nullptr) {
        ERR_clear_error();
        got = SSL_read(ssl_.get(), buffer, sizeof(buffer));
        // An end without a TLS close is an end, too. The reply's own length tells whether it is
        // whole.
        if (got <= 0) {
          const int error = SSL_get_error(ssl_.get(), static_cast<int>(got));
          if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) return false;
          RETURN_IF_ERROR(Poll(error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, deadline));
          continue;
        }
      } else {
        got = read(fd_.get(), buffer, sizeof(buffer));
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
          RETURN_IF_ERROR(Poll(POLLIN, deadline));
          continue;
        }
        if (got <= 0) return false;
      }
      data.append(buffer, static_cast<size_t>(got));
      return true;
    }
  }

 private:
  absl::Status Poll(short events, absl::Duration deadline) {
    return PollUntil(fd_.get(), events, deadline, clock_);
  }

  // Waits for what OpenSSL needs after a call that returned `result`.
  absl::Status Await(int result, absl::Duration deadline) {
    switch (SSL_get_error(ssl_.get(), result)) {
      case SSL_ERROR_WANT_READ:
        return Poll(POLLIN, deadline);
      case SSL_ERROR_WANT_WRITE:
        return Poll(POLLOUT, deadline);
      default:
        return absl::UnavailableError(OpensslReason());
    }
  }

  const UniqueFd fd_;
  Clock& clock_;
  Ssl ssl_;
};

absl::StatusOr<UniqueFd> Connect(const HostAddress& address, absl::Duration deadline,
                                 Clock& clock) {
  UniqueFd fd(socket(address.storage.ss_family, SOCK_STREAM, 0));
  if (!fd.valid()) return absl::UnavailableError(strerror(errno));
  fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
  fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) == 0) {
    return fd;
  }
  if (errno != EINPROGRESS) return absl::UnavailableError(strerror(errno));
  RETURN_IF_ERROR(PollUntil(fd.get(), POLLOUT, deadline, clock));
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return absl::UnavailableError(strerror(error));
  return fd;
}

// Connects to one of the host's addresses and verifies its identity.
absl::StatusOr<std::unique_ptr<Connection>> Reach(const HttpsUrl& url, const HttpsOptions& options,
                                                  Clock& clock) {
  SslContext context;
  if (url.tls) {
    ASSIGN_OR_RETURN(context, MakeContext(options.roots_files));
  }
  ASSIGN_OR_RETURN(
      const std::vector<HostAddress> addresses,
      Resolve(url.host, url.port, options.name_server, options.resolve_timeout, clock));
  absl::Status failure;
  for (const HostAddress& address : addresses) {
    const absl::Duration deadline = clock.SinceBoot() + options.connect_timeout;
    absl::StatusOr<UniqueFd> fd = Connect(address, deadline, clock);
    absl::Status status = fd.status();
    if (fd.ok()) {
      auto connection = std::make_unique<Connection>(*std::move(fd), clock);
      if (url.tls) status = connection->Handshake(context.get(), url.host, deadline);
      if (status.ok()) return connection;
    }
    status = Annotate(status, absl::StrCat("connect to ", address.text, " port ", url.port));
    // The wrong server's answer tells more than no answer.
    if (!absl::IsPermissionDenied(failure)) failure = status;
  }
  return failure;
}

std::string Format(const HttpsRequest& request, const HttpsUrl& url) {
  const bool ipv6 = absl::StrContains(url.host, ':');
  std::string text = absl::StrCat(
      request.method, " ", url.path, " HTTP/1.1\r\nHost: ", ipv6 ? "[" : "", url.host,
      ipv6 ? "]" : "", url.port == (url.tls ? 443 : 80) ? "" : absl::StrCat(":", url.port),
      "\r\nUser-Agent: gpuctl\r\nAccept: */*\r\nConnection: close\r\n");
  for (const auto& [name, value] : request.headers)
    absl::StrAppend(&text, name, ": ", value, "\r\n");
  absl::StrAppend(&text, "Content-Length: ", request.body.size(), "\r\n\r\n", request.body);
  return text;
}

absl::Status More() { return absl::UnavailableError("more"); }

absl::Status Broken(absl::string_view how) {
  return absl::DataLossError(absl::StrCat("read the reply: ", how));
}

// Returns the body in `rest`, which is sent in chunks. Ignores trailers.
absl::StatusOr<std::string> ParseChunks(absl::string_view rest, size_t max_bytes) {
  std::string body;
  for (;;) {
    const size_t line_end = rest.find("\r\n");
    if (line_end == absl::string_view::npos) {
      if (rest.size() > 1024) return Broken("a chunk without size");
      return More();
    }
    absl::string_view word = rest.substr(0, line_end);
    word = absl::StripAsciiWhitespace(word.substr(0, word.find(';')));
    size_t size = 0;
    if (word.empty() || word.size() > 8 || !absl::SimpleHexAtoi(word, &size)) {
      return Broken("a chunk without size");
    }
    rest.remove_prefix(line_end + 2);
    if (size == 0) return body;
    if (body.size() + size > max_bytes) return Broken("it is too long");
    if (rest.size() < size + 2) return More();
    if (rest.substr(size, 2) != "\r\n") return Broken("a chunk of another size");
    body.append(rest.data(), size);
    rest.remove_prefix(size + 2);
  }
}

absl::StatusOr<int> ParseStatusLine(absl::string_view line) {
  int status = 0;
  const std::vector<absl::string_view> words = absl::StrSplit(line, absl::MaxSplits(' ', 2));
  if (words.size() < 2 || !absl::StartsWith(words[0], "HTTP/1.") || words[1].size() != 3 ||
      !absl::SimpleAtoi(words[1], &status) || status < 100) {
    return Broken("it is not HTTP");
  }
  return status;
}

absl::Status FromSoFar(absl::StatusOr<std::string> body, bool ended, HttpsReply& reply) {
  if (!body.ok()) {
    return ended && absl::IsUnavailable(body.status()) ? Broken("it ends early") : body.status();
  }
  reply.body = *std::move(body);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<HttpsUrl> ParseHttpsUrl(absl::string_view text) {
  HttpsUrl url;
  const absl::Status bad = absl::InvalidArgumentError(absl::StrCat("not an https address: ", text));
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "http://")) {
    url.tls = false;
    url.port = 80;
  } else if (!absl::ConsumePrefix(&rest, "https://")) {
    return bad;
  }
  const size_t slash = std::min(rest.find('/'), rest.size());
  absl::string_view host = rest.substr(0, slash);
  url.path = slash == rest.size() ? "/" : std::string(rest.substr(slash));
  absl::string_view port;
  if (absl::ConsumePrefix(&host, "[")) {
    const size_t end = host.find(']');
    if (end == absl::string_view::npos) return bad;
    port = host.substr(end + 1);
    host = host.substr(0, end);
  } else if (const size_t colon = host.find(':'); colon != absl::string_view::npos) {
    port = host.substr(colon);
    host = host.substr(0, colon);
  }
  url.host = std::string(host);
  if (!port.empty() && (!absl::ConsumePrefix(&port, ":") || !absl::SimpleAtoi(port, &url.port) ||
                        url.port < 1 || url.port > 65535)) {
    return bad;
  }
  const auto is_word = [](char c) { return c > ' ' && c < 0x7f && c != '@' && c != '\\'; };
  if (host.empty() || !std::all_of(host.begin(), host.end(), is_word) ||
      !std::all_of(url.path.begin(), url.path.end(), is_word)) {
    return bad;
  }
  if (!url.tls && url.host != "127.0.0.1" && url.host != "::1" && url.host != "localhost") {
    return absl::InvalidArgumentError(
        absl::StrCat("not an https address, and not on this machine: ", text));
  }
  return url;
}

absl::StatusOr<HttpsReply> ParseHttpReply(absl::string_view bytes, bool ended,
                                          size_t max_body_bytes) {
  for (;;) {
    const size_t head_end = bytes.find("\r\n\r\n");
    if (head_end == absl::string_view::npos) {
      if (bytes.size() > kMaxHeadBytes) return Broken("it is not HTTP");
      if (ended) return Broken(bytes.empty() ? "there is none" : "it ends early");
      return More();
    }
    const std::vector<absl::string_view> lines = absl::StrSplit(bytes.substr(0, head_end), "\r\n");
    bytes.remove_prefix(head_end + 4);
    HttpsReply reply;
    ASSIGN_OR_RETURN(reply.status, ParseStatusLine(lines[0]));
    if (reply.status < 200) continue;  // "100 Continue" and similar
    bool chunked = false;
    bool sized = false;
    size_t size = 0;
    for (size_t i = 1; i < lines.size(); ++i) {
      const std::pair<absl::string_view, absl::string_view> header =
          absl::StrSplit(lines[i], absl::MaxSplits(':', 1));
      const absl::string_view value = absl::StripAsciiWhitespace(header.second);
      if (absl::EqualsIgnoreCase(header.first, "transfer-encoding")) {
        chunked = absl::EqualsIgnoreCase(value, "chunked");
      } else if (absl::EqualsIgnoreCase(header.first, "content-length")) {
        if (!absl::SimpleAtoi(value, &size)) return Broken("its length is none");
        sized = true;
      }
    }
    if (reply.status == 204 || reply.status == 304) return reply;
    if (chunked) {
      RETURN_IF_ERROR(FromSoFar(ParseChunks(bytes, max_body_bytes), ended, reply));
    } else if (sized) {
      if (size > max_body_bytes) return Broken("it is too long");
      RETURN_IF_ERROR(FromSoFar(bytes.size() < size ? absl::StatusOr<std::string>(More())
                                                    : std::string(bytes.substr(0, size)),
                                ended, reply));
    } else {
      if (bytes.size() > max_body_bytes) return Broken("it is too long");
      if (!ended) return More();
      reply.body = std::string(bytes);
    }
    return reply;
  }
}

absl::StatusOr<HttpsReply> SendHttps(const HttpsRequest& request, const HttpsOptions& options,
                                     Clock& clock) {
  ASSIGN_OR_RETURN(const HttpsUrl url, ParseHttpsUrl(request.url));
  for (const auto& [name, value] : request.headers) {
    if (absl::StrContains(name, '\n') || absl::StrContains(value, '\n') ||
        absl::StrContains(value, '\r')) {
      return absl::InvalidArgumentError(absl::StrCat("header ", name, " holds a line's end"));
    }
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Reach(url, options, clock));
  const absl::Duration deadline = clock.SinceBoot() + options.timeout;
  // A server may answer and close before it has read everything. Then its answer counts.
  const absl::Status sent = connection->Write(Format(request, url), deadline);
  std::string received;
  for (;;) {
    absl::StatusOr<bool> more = connection->Read(received, deadline);
    if (!more.ok()) return Annotate(more.status(), absl::StrCat("ask ", url.host));
    absl::StatusOr<HttpsReply> reply = ParseHttpReply(received, !*more, options.max_body_bytes);
    if (reply.ok()) return reply;
    if (*more && absl::IsUnavailable(reply.status())) continue;
    const absl::Status failure = received.empty() && !sent.ok() ? sent : reply.status();
    return Annotate(failure, absl::StrCat("ask ", url.host));
  }
}

}  // namespace gpuctl
