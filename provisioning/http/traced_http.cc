#include "provisioning/http/traced_http.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "provisioning/http/redact.h"
#include "provisioning/http/request_keys.h"

namespace gpuctl {
namespace {

constexpr size_t kMaxBodyShown = 400;

std::vector<std::string> Credentials(const HttpRequest& request) {
  std::vector<std::string> credentials = KeysOf(request);
  // A service may repeat a part of the request in its error.
  for (std::string& text : SecretTexts(request.body)) credentials.push_back(std::move(text));
  return credentials;
}

std::string Without(const std::vector<std::string>& credentials, std::string text) {
  for (const std::string& credential : credentials) {
    text = absl::StrReplaceAll(text, {{credential, "[hidden]"}});
  }
  return text;
}

std::string Outcome(const absl::StatusOr<HttpResponse>& result) {
  if (!result.ok()) {
    return absl::StrCat(absl::StatusCodeToString(result.status().code()), " (",
                        result.status().message(), ")");
  }
  return absl::StrCat(result->status);
}

class TracedHttp : public Http {
 public:
  TracedHttp(std::unique_ptr<Http> inner, Clock& clock, TraceSink sink)
      : inner_(std::move(inner)), clock_(clock), sink_(std::move(sink)) {}

  absl::StatusOr<HttpResponse> Send(const HttpRequest& request) override {
    const absl::Duration begin = clock_.SinceBoot();
    absl::StatusOr<HttpResponse> result = inner_->Send(request);
    const std::vector<std::string> credentials = Credentials(request);
    std::string line =
        absl::StrFormat("%s %s: %s in %.1f ms", request.method, RedactUrl(request.url),
                        Outcome(result), absl::ToDoubleMilliseconds(clock_.SinceBoot() - begin));
    if (result.ok()) {
      for (const auto& [name, value] : result->headers) {
        if (name == "x-request-id") absl::StrAppend(&line, ", request ", value);
      }
      if (result->status >= 400) {
        // What is cut could no longer be recognised.
        absl::StrAppend(&line, ": ",
                        Without(credentials, RedactBody(result->body)).substr(0, kMaxBodyShown));
      }
    }
    line = Without(credentials, line);
    // The trace is one line, whatever the server sent.
    for (char& c : line) {
      if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = ' ';
    }
    sink_(line);
    return result;
  }

 private:
  const std::unique_ptr<Http> inner_;
  Clock& clock_;
  const TraceSink sink_;
};

}  // namespace

std::unique_ptr<Http> MakeTracedHttp(std::unique_ptr<Http> inner, Clock& clock, TraceSink sink) {
  return std::make_unique<TracedHttp>(std::move(inner), clock, std::move(sink));
}

}  // namespace gpuctl
