#include "provisioning/http/keyless_http.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "provisioning/http/redact.h"
#include "provisioning/http/request_keys.h"

namespace gpuctl {
namespace {

class KeylessHttp : public Http {
 public:
  explicit KeylessHttp(std::unique_ptr<Http> inner) : inner_(std::move(inner)) {}

  absl::StatusOr<HttpResponse> Send(const HttpRequest& request) override {
    absl::StatusOr<HttpResponse> response = inner_->Send(request);
    if (!response.ok()) return response;
    for (const std::string& key : KeysOf(request)) {
      for (const std::string& written : {key, JsonEscaped(key)}) {
        if (absl::StrContains(response->body, written)) {
          absl::StrReplaceAll({{written, "[hidden]"}}, &response->body);
        }
      }
    }
    return response;
  }

 private:
  const std::unique_ptr<Http> inner_;
};

}  // namespace

std::unique_ptr<Http> MakeKeylessHttp(std::unique_ptr<Http> inner) {
  return std::make_unique<KeylessHttp>(std::move(inner));
}

}  // namespace gpuctl
