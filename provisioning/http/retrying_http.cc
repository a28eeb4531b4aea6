#include "provisioning/http/retrying_http.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/backoff.h"

namespace gpuctl {
namespace {

constexpr int kTooManyRequests = 429;

bool MaySendAgain(const HttpRequest& request, const absl::StatusOr<HttpResponse>& result) {
  if (request.creates) return false;
  if (result.ok() && result->status == kTooManyRequests) return true;
  if (!request.repeatable) return false;
  if (result.ok()) return result->status >= 500;
  return absl::IsUnavailable(result.status()) || absl::IsUnknown(result.status()) ||
         absl::IsDeadlineExceeded(result.status());
}

class RetryingHttp : public Http {
 public:
  RetryingHttp(std::unique_ptr<Http> inner, Clock& clock, RetryPolicy policy)
      : inner_(std::move(inner)), clock_(clock), policy_(policy) {}

  absl::StatusOr<HttpResponse> Send(const HttpRequest& request) override {
    const absl::Duration begin = clock_.SinceBoot();
    Backoff backoff(policy_.first_wait, policy_.longest_wait);
    for (int attempt = 1;; ++attempt) {
      absl::StatusOr<HttpResponse> result = inner_->Send(request);
      if (attempt >= policy_.max_attempts || !MaySendAgain(request, result)) return result;
      absl::Duration wait = backoff.Next();
      if (result.ok()) wait = std::max(wait, RetryAfter(*result, clock_.Now()).value_or(wait));
      if (clock_.SinceBoot() - begin + wait > policy_.total) return result;
      clock_.SleepFor(wait);
    }
  }

 private:
  const std::unique_ptr<Http> inner_;
  Clock& clock_;
  const RetryPolicy policy_;
};

// Returns the longest time after which a limit of a RateLimit header has more, of those that are
// used up; absent when it names none.
std::optional<absl::Duration> RefilledIn(absl::string_view header) {
  std::optional<absl::Duration> longest;
  for (const absl::string_view limit : absl::StrSplit(header, ',')) {
    int64_t remaining = 0, seconds = 0;
    bool told = false;
    for (absl::string_view part : absl::StrSplit(limit, ';')) {
      part = absl::StripAsciiWhitespace(part);
      if (absl::ConsumePrefix(&part, "r=")) (void)absl::SimpleAtoi(part, &remaining);
      if (absl::ConsumePrefix(&part, "t=")) told = absl::SimpleAtoi(part, &seconds);
    }
    if (remaining > 0 || !told) continue;
    const absl::Duration wait = absl::Seconds(std::clamp<int64_t>(seconds, 0, 1'000'000));
    longest = std::max(longest.value_or(wait), wait);
  }
  return longest;
}

}  // namespace

std::unique_ptr<Http> MakeRetryingHttp(std::unique_ptr<Http> inner, Clock& clock,
                                       RetryPolicy policy) {
  return std::make_unique<RetryingHttp>(std::move(inner), clock, policy);
}

std::optional<absl::Duration> RetryAfter(const HttpResponse& response, absl::Time now) {
  std::optional<absl::Duration> limited;
  for (const auto& [name, value] : response.headers) {
    if (name == "ratelimit") limited = RefilledIn(value);
    if (name != "retry-after") continue;
    int64_t seconds = 0;
    if (absl::SimpleAtoi(value, &seconds)) {
      return absl::Seconds(std::clamp<int64_t>(seconds, 0, 1'000'000));
    }
    absl::Time until;
    if (absl::ParseTime("%a, %d %b %Y %H:%M:%S GMT", value, &until, nullptr)) {
      return std::max(until - now, absl::ZeroDuration());
    }
  }
  return limited;
}

}  // namespace gpuctl
