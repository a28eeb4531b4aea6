// A rental market's API over HTTP: requests with a key, and the meaning of HTTP statuses. Nothing
// here is about one market.
#ifndef GPUCTL_PROVISIONING_MARKET_REST_API_H_
#define GPUCTL_PROVISIONING_MARKET_REST_API_H_

#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "provisioning/http/http.h"
#include "provisioning/market/provider_access.h"
#include "provisioning/market/types.h"

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

class RestApi {
 public:
  // A function that returns the error in an answer without success, by the market's own words. With
  // `creating` it is UNKNOWN, unless the answer shows that nothing was made.
  using Explain = absl::Status (*)(const HttpResponse& response, bool creating);

  // `base_url` is used when `access` has none.
  RestApi(std::shared_ptr<Http> http, ProviderAccess access, absl::string_view base_url,
          Explain explain, KeyHeader key_header = {});

  // Sends `call` and returns the answer, whatever its HTTP status. Errors of all calls begin with
  // `doing`.
  absl::StatusOr<HttpResponse> Send(const ApiCall& call) const;

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
  std::shared_ptr<Http> http_;
  ProviderAccess access_;
  Explain explain_;
  KeyHeader key_header_;
};

// One page of a list of instances.
struct InstancePage {
  std::vector<InstanceId> ids;      // of all rows
  std::vector<Instance> instances;  // of the rows that still bill
  std::string next;                 // names the next page; empty: there is none
};

// Reads page after page and returns all instances. `read` gets the `next` of the page before; the
// first time it is empty. UNKNOWN, with `doing` first, when there are more than `max_pages` or an
// id comes twice: a server that does not know the parameter sends its first page for ever.
absl::StatusOr<std::vector<Instance>> ReadPages(
    absl::string_view doing, int max_pages,
    absl::FunctionRef<absl::StatusOr<InstancePage>(const std::string& next)> read);

// Returns `text` for a message or a table: one line of printable UTF-8, at most `limit` bytes.
std::string PrintableText(absl::string_view text, size_t limit = 300);

// Returns the beginning of an answer's body for a message, at most `limit` bytes. Secrets in JSON,
// whole or torn, are hidden.
std::string BodyInWords(absl::string_view body, size_t limit);

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

#endif  // GPUCTL_PROVISIONING_MARKET_REST_API_H_
