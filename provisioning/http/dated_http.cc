#include "provisioning/http/dated_http.h"

#include <string>
#include <utility>

namespace gpuctl {
namespace {

class DatedHttp : public Http {
 public:
  DatedHttp(std::unique_ptr<Http> inner, Clock& clock, std::shared_ptr<ClockSkew> skew)
      : inner_(std::move(inner)), clock_(clock), skew_(std::move(skew)) {}

  absl::StatusOr<HttpResponse> Send(const HttpRequest& request) override {
    absl::StatusOr<HttpResponse> response = inner_->Send(request);
    if (!response.ok()) return response;
    for (const auto& [name, value] : response->headers) {
      absl::Time date;
      if (name == "date" &&
          absl::ParseTime("%a, %d %b %Y %H:%M:%S GMT", value, &date, /*err=*/nullptr)) {
        skew_->Set(clock_.Now() - date);
      }
    }
    return response;
  }

 private:
  const std::unique_ptr<Http> inner_;
  Clock& clock_;
  const std::shared_ptr<ClockSkew> skew_;
};

}  // namespace

std::unique_ptr<Http> MakeDatedHttp(std::unique_ptr<Http> inner, Clock& clock,
                                    std::shared_ptr<ClockSkew> skew) {
  return std::make_unique<DatedHttp>(std::move(inner), clock, std::move(skew));
}

}  // namespace gpuctl
