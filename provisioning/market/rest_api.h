// What the adapters of all rental markets share: requests with a key, JSON answers read with their
// types checked, HTTP statuses as errors. Nothing here knows a market.
#ifndef GPUCTL_PROVISIONING_MARKET_REST_API_H_
#define GPUCTL_PROVISIONING_MARKET_REST_API_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "provisioning/http/http.h"
#include "provisioning/market/provider_access.h"
#include "provisioning/market/types.h"

namespace gpuctl {

// One GB of disk as the markets bill it.
constexpr int64_t kDiskGb = 1'000'000'000;
constexpr double kHoursPerMonth = 730;

// The JSON of an answer. UNKNOWN, with its beginning, when it is none (a proxy's HTML page, a torn
// body), is larger than 32 MiB or nested deeper than 64.
absl::StatusOr<nlohmann::json> ParseWireJson(absl::string_view body);

// Reads the fields of one JSON object. The first field that is missing or has a wrong type makes
// status() an UNKNOWN error that names it; readers then return empty values. Null is the same as
// missing. Lives no longer than the JSON.
class WireObject {
 public:
  // `what` names the object in errors: "pod", "offer 3".
  WireObject(const nlohmann::json& json, absl::string_view what);

  std::string String(const char* field);
  std::optional<std::string> OptionalString(const char* field);
  double Number(const char* field);
  std::optional<double> OptionalNumber(const char* field);
  int64_t Int(const char* field);
  // A number without a fraction, also as 3.0.
  std::optional<int64_t> OptionalInt(const char* field);
  // As OptionalInt; "123" is taken too.
  std::optional<int64_t> LooseInt(const char* field);
  std::optional<bool> OptionalBool(const char* field);
  // The object or array of that name. Null pointer: missing, or of another type (then an error).
  const nlohmann::json* OptionalObject(const char* field);
  const nlohmann::json* OptionalArray(const char* field);
  const nlohmann::json* Object(const char* field);
  const nlohmann::json* Array(const char* field);

  // Makes status() an error about `field`, unless it is one already.
  void Fail(const char* field, absl::string_view problem);
  // Takes over the status of what was read inside.
  void Check(const absl::Status& status);
  bool Has(const char* field) const { return Find(field) != nullptr; }
  const absl::Status& status() const { return status_; }

 private:
  const nlohmann::json* Find(const char* field) const;
  const nlohmann::json* Require(const char* field);
  const nlohmann::json* Typed(const char* field, const nlohmann::json* value, bool fits,
                              const char* wanted);
  const nlohmann::json* json_;
  std::string what_;
  absl::Status status_;
};

// `text` as it may stand in a message or a table: one line of printable UTF-8, at most `limit`
// bytes.
std::string PrintableText(absl::string_view text, size_t limit = 300);

// What an HTTP status means for anything but a create; `said` is the provider's own sentence. 401
// UNAUTHENTICATED, 402 RESOURCE_EXHAUSTED, 403 PERMISSION_DENIED, 404 NOT_FOUND, 408, 409, 429 and
// 5xx UNAVAILABLE, 410 FAILED_PRECONDITION, other 4xx INVALID_ARGUMENT, the rest UNKNOWN.
absl::Status StatusOfHttp(int http_status, absl::string_view said);
// The same for a create that was sent: what does not rule out that something was made (408, 5xx,
// redirects, unexpected 2xx) is UNKNOWN; 404 is INVALID_ARGUMENT, 409 ABORTED.
absl::Status StatusOfCreate(int http_status, absl::string_view said);

// An error of a step before the create (a key, a list), whose own outcome does not matter: what
// would say that something may be rented becomes UNAVAILABLE.
absl::Status BeforeCreate(const absl::Status& status);

// "HTTP 400: <said>", or "HTTP 502: <the beginning of the body>" with nothing said; for 429 with
// Retry-After where there is one.
std::string HttpSaid(const HttpResponse& response, absl::string_view said);

// With the key as bearer token and the headers that all requests carry. `path` begins with '/'.
// An absent body is none; GET and DELETE have none.
HttpRequest ApiRequest(const ProviderAccess& access, absl::string_view method,
                       absl::string_view path, absl::string_view rate_class, bool repeatable,
                       const std::optional<nlohmann::json>& body = std::nullopt);

// Percent-encoded as one part of a path or a query.
std::string UrlEncode(absl::string_view text);

// True for a host name or address, and for a user name, that may be handed to ssh: nothing that
// begins with '-', no spaces.
bool IsSafeHost(absl::string_view text);
bool IsSafeUser(absl::string_view text);

// Type and blob of one line of authorized_keys, without its comment: what two lines of one key
// agree in. Empty when it is no such line.
std::string SshKeyIdentity(absl::string_view line);

// Whole GB, rounded up; `fallback_gb` for 0.
int64_t DiskGb(int64_t disk_bytes, int64_t fallback_gb);

// `text` by gzip and base64, without line breaks: how scripts travel inside a command line. A
// machine reads it with `base64 -d | gzip -d`.
std::string GzipBase64(absl::string_view text);

// `word` for a POSIX shell, in single quotes.
std::string QuoteForShell(absl::string_view word);

// True when `name` can be an environment variable.
bool IsEnvName(absl::string_view name);

// Cheapest first, then by reference, and none dearer than asked for.
void KeepAffordable(const Requirements& requirements, std::vector<Offer>& offers);

// True when a volume is asked for that is another provider's than `provider`.
bool IsElsewhere(const Requirements& requirements, absl::string_view provider);

// What is asked for, as a list that is never empty.
std::vector<Requirements::Gpu> AskedGpus(const Requirements& requirements);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_MARKET_REST_API_H_
