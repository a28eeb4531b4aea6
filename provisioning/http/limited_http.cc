#include "provisioning/http/limited_http.h"

#include "absl/strings/str_cat.h"
#include "provisioning/http/redact.h"
#include "provisioning/http/retrying_http.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(1);

class LimitedHttp : public Http {
 public:
  LimitedHttp(std::unique_ptr<Http> inner, std::unique_ptr<RateBuckets> buckets, Clock& clock)
      : inner_(std::move(inner)), buckets_(std::move(buckets)), clock_(clock) {}

  absl::StatusOr<HttpResponse> Send(const HttpRequest& request) override {
    const absl::Duration wait = buckets_->Take(request.rate_class, kPatience);
    if (wait > kPatience) {
      return absl::UnavailableError(
          absl::StrCat(request.method, " ", RedactUrl(request.url),
                       ": not sent, because the provider asked for patience; free in ",
                       absl::ToInt64Seconds(wait), " s"));
    }
    if (wait > absl::ZeroDuration()) clock_.SleepFor(wait);
    absl::StatusOr<HttpResponse> response = inner_->Send(request);
    if (response.ok() && response->status == 429) {
      buckets_->Refused(request.rate_class,
                        RetryAfter(*response, clock_.Now()).value_or(absl::ZeroDuration()));
    }
    return response;
  }

 private:
  const std::unique_ptr<Http> inner_;
  const std::unique_ptr<RateBuckets> buckets_;
  Clock& clock_;
};

}  // namespace

std::unique_ptr<Http> MakeLimitedHttp(std::unique_ptr<Http> inner,
                                      std::unique_ptr<RateBuckets> buckets, Clock& clock) {
  return std::make_unique<LimitedHttp>(std::move(inner), std::move(buckets), clock);
}

}  // namespace gpuctl
