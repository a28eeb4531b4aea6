// One HTTPS request from a static program on an unknown machine. c-ares resolves names, and trust
// comes from files that the caller names. It uses neither the system's name service nor its OpenSSL
// configuration.
#ifndef GPUCTL_AGENT_HTTPS_HTTPS_CLIENT_H_
#define GPUCTL_AGENT_HTTPS_HTTPS_CLIENT_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace gpuctl {

struct HttpsRequest {
  std::string method;
  std::string url;
  // The request's headers. Host, Connection, Content-Length and User-Agent are added.
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
};

struct HttpsReply {
  int status = 0;
  std::string body;
};

// The files in which Linux distributions keep trusted roots.
inline constexpr const char* kSystemRoots[] = {
    "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};

struct HttpsOptions {
  // PEM files with trusted roots; missing files are skipped. A chain must end in one of the roots.
  std::vector<std::string> roots_files;
  absl::Duration resolve_timeout = absl::Seconds(20);
  absl::Duration connect_timeout = absl::Seconds(10);  // each address
  absl::Duration timeout = absl::Seconds(60);          // from the connection to the reply's end
  size_t max_body_bytes = 1 << 20;
  // "address:port" of a name server that replaces those of /etc/resolv.conf.
  std::string name_server;
};

struct HttpsUrl {
  bool tls = true;
  std::string host;  // without brackets
  int port = 443;
  std::string path;  // at least "/"
};
// Parses a URL. INVALID_ARGUMENT for anything but https://, or http:// to a loopback address.
absl::StatusOr<HttpsUrl> ParseHttpsUrl(absl::string_view url);

// Sends `request` once and returns the reply, whatever its status. Does not follow redirects. Tries
// addresses in turn until one completes the TLS handshake. The caller ignores SIGPIPE. UNAVAILABLE:
// no address, no connection, or a broken connection; PERMISSION_DENIED: the server is not the right
// one; DATA_LOSS: the reply is not HTTP or ends early; DEADLINE_EXCEEDED.
absl::StatusOr<HttpsReply> SendHttps(const HttpsRequest& request, const HttpsOptions& options,
                                     Clock& clock);

// Reads a whole HTTP/1.1 reply from `bytes`; `ended` says that no more will come. UNAVAILABLE
// "more" when the reply is not complete yet.
absl::StatusOr<HttpsReply> ParseHttpReply(absl::string_view bytes, bool ended,
                                          size_t max_body_bytes);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_HTTPS_HTTPS_CLIENT_H_
