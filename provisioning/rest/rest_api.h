// A rental market's API over HTTP: requests with a key, and the meaning of HTTP statuses. Nothing
// here is about one market.
#ifndef GPUCTL_PROVISIONING_REST_REST_API_H_
#define GPUCTL_PROVISIONING_REST_REST_API_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "provisioning/http/http.h"
#include "provisioning/market/provider_access.h"
#include "provisioning/rest/printable.h"

namespace gpuctl {

// The effect of a call. HttpRequest explains "repeatable".
enum class CallKind {
  kRead,    // changes nothing, repeatable; only an answer of 200 is whole
  kRepeat,  // changes something, repeatable
  kOnce,    // changes something, not repeatable
  kCreate,  // makes something that bills, not repeatable
};

struct ApiCall {
  absl::string_view doing;  // the beginning of its errors: "list Runpod pods"
  CallKind kind = CallKind::kOnce;
  absl::string_view method;
  absl::string_view path;          // begins with '/'
  absl::string_view rate_class{};  // as in HttpRequest
  nlohmann::json body{};           // null: none
  // For an answer without an end: what came of it within this time is the answer.
  std::optional<absl::Duration> endless_for{};
};

// How a request shows the key: "Authorization: Bearer KEY", or a header of the market's own.
struct KeyHeader {
  absl::string_view name = "Authorization";
  absl::string_view before_key = "Bearer ";
};

// For a market whose key, "ID:SECRET", is exchanged for a token that expires. The token is then
// sent in the place of the key. It stays in memory. A new one is asked for after half the old one's
// life, and once when an answer is 401.
struct TokenExchange {
  absl::string_view path;  // POST {"grant_type": "client_credentials", <id>: …, <secret>: …}
  absl::string_view id = "client_id";
  absl::string_view secret = "client_secret";
  // Of the answer: the token, and its life in seconds.
  absl::string_view token = "access_token";
  absl::string_view life = "expires_in";
};

// Used by one thread at a time.
class RestApi {
 public:
  // A function that returns the error in an answer without success, by the market's own words. With
  // `creating` it is UNKNOWN, unless the answer shows that nothing was made.
  using Explain = absl::Status (*)(const HttpResponse& response, bool creating);

  // `base_url` is used when `access` has none.
  RestApi(std::shared_ptr<Http> http, ProviderAccess access, absl::string_view base_url,
          Explain explain, KeyHeader key_header = {},
          std::optional<TokenExchange> exchange = std::nullopt, Clock& clock = Clock::Real());

  const std::string& base_url() const { return access_.base_url; }

  // Sends `call` and returns the answer, whatever its HTTP status. Errors of all calls begin with
  // `doing`.
  absl::StatusOr<HttpResponse> Send(const ApiCall& call) const;

  // Returns OK for an answer of 2xx, else the error by Explain.
  absl::Status Explained(const HttpResponse& response, absl::string_view doing,
                         bool creating = false) const;

  // Sends `call`. An answer without success (2xx; 200 for kRead) becomes an error by Explain.
  absl::StatusOr<HttpResponse> Ask(const ApiCall& call) const;

  // Sends `call` as Ask does, and returns the result of `parse` for the answer's body.
  template <typename T>
  absl::StatusOr<T> Ask(const ApiCall& call,
                        absl::StatusOr<T> (*parse)(absl::string_view body)) const {
    ASSIGN_OR_RETURN(const HttpResponse response, Ask(call));
    absl::StatusOr<T> parsed = parse(response.body);
    if (!parsed.ok()) return Annotate(parsed.status(), call.doing);
    return parsed;
  }

  // Reads `path` by GET and returns the result of `parse` for the answer's body.
  template <typename T>
  absl::StatusOr<T> Get(absl::string_view doing, absl::string_view path,
                        absl::StatusOr<T> (*parse)(absl::string_view body),
                        absl::string_view rate_class = "") const {
    return Ask({doing, CallKind::kRead, "GET", path, rate_class}, parse);
  }

 private:
  struct Token {
    std::string text;         // empty: none
    absl::Duration renew_at;  // as Clock::SinceBoot
  };
  // Returns what the header shows: the key, or the present token.
  absl::StatusOr<std::string> Credential() const;
  absl::StatusOr<HttpResponse> SendWith(absl::string_view credential, const ApiCall& call) const;

  std::shared_ptr<Http> http_;
  ProviderAccess access_;
  Explain explain_;
  KeyHeader key_header_;
  std::optional<TokenExchange> exchange_;
  Clock* clock_;
  mutable Token token_;
};

// Returns "HTTP 400: <said>", or "HTTP 502: <the beginning of the body>" when `said` is empty. For
// 429 it adds Retry-After if there is one.
std::string HttpSaid(const HttpResponse& response, absl::string_view said);

// Returns the status for an HTTP status of anything but a create; `said` becomes the message. 401
// UNAUTHENTICATED, 402 RESOURCE_EXHAUSTED, 403 PERMISSION_DENIED, 404 NOT_FOUND, 408, 409 and 5xx
// UNAVAILABLE, 429 BusyError, 410 FAILED_PRECONDITION, other 4xx INVALID_ARGUMENT, the rest
// UNKNOWN.
absl::Status StatusOfHttp(int http_status, absl::string_view said);
// Returns the same for a create that was sent. It is UNKNOWN when something may have been made
// (408, 5xx, redirects, unexpected 2xx); 404 is INVALID_ARGUMENT, 409 ABORTED.
absl::Status StatusOfCreate(int http_status, absl::string_view said);

// Returns the error of a step before the create (a key, a list) as the error of the rent. A code
// that would mean that something may be rented, or that the create was refused with 429, becomes
// UNAVAILABLE.
absl::Status BeforeCreate(const absl::Status& status);

// Returns `text` percent-encoded as one part of a path or a query.
std::string UrlEncode(absl::string_view text);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_REST_REST_API_H_
