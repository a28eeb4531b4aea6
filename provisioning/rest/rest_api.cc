#include "provisioning/rest/rest_api.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "provisioning/market/provider.h"
#include "provisioning/rest/json_reader.h"

namespace gpuctl {
namespace {

// Some services refuse requests without one.
constexpr char kUserAgent[] = "gpuctl/0.1";

}  // namespace

RestApi::RestApi(std::shared_ptr<Http> http, ProviderAccess access, absl::string_view base_url,
                 Explain explain, KeyHeader key_header, std::optional<TokenExchange> exchange,
                 Clock& clock)
    : http_(std::move(http)),
      access_(std::move(access)),
      explain_(explain),
      key_header_(key_header),
      exchange_(exchange),
      clock_(&clock) {
  if (access_.base_url.empty()) access_.base_url = std::string(base_url);
}

absl::StatusOr<std::string> RestApi::Credential() const {
  if (!exchange_.has_value()) return access_.api_key;
  if (!token_.text.empty() && clock_->SinceBoot() < token_.renew_at) return token_.text;
  constexpr absl::string_view kDoing = "exchange the key for a token";
  const size_t colon = access_.api_key.find(':');
  if (colon == std::string::npos) {
    return absl::UnauthenticatedError("the key is no \"ID:SECRET\"");
  }
  const nlohmann::json body = {{"grant_type", "client_credentials"},
                               {std::string(exchange_->id), access_.api_key.substr(0, colon)},
                               {std::string(exchange_->secret), access_.api_key.substr(colon + 1)}};
  ASSIGN_OR_RETURN(const HttpResponse response, SendWith("", {.doing = kDoing,
                                                              .kind = CallKind::kRepeat,
                                                              .method = "POST",
                                                              .path = exchange_->path,
                                                              .body = body}));
  RETURN_IF_ERROR(Explained(response, kDoing));
  const absl::StatusOr<Token> token =
      ParseAnswer<Token>(response.body, "the answer", [&](JsonReader& answer, Token& read) {
        double life_s = 0;
        answer.RequireId(exchange_->token, read.text);
        answer.Require(exchange_->life, life_s);
        read.renew_at = clock_->SinceBoot() + absl::Seconds(life_s) / 2;
        for (const char c : read.text) {
          if (c <= ' ' || c > '~') answer.Fail(exchange_->token, "is no token");
        }
      });
  if (!token.ok()) return Annotate(token.status(), kDoing);
  token_ = *token;
  return token_.text;
}

absl::StatusOr<HttpResponse> RestApi::Send(const ApiCall& call) const {
  for (const bool again : {false, true}) {
    const absl::StatusOr<std::string> credential = Credential();
    if (!credential.ok()) {
      // Nothing of the call itself was sent.
      return Annotate(
          exchange_.has_value() ? BeforeCreate(credential.status()) : credential.status(),
          call.doing);
    }
    ASSIGN_OR_RETURN(HttpResponse response, SendWith(*credential, call));
    // An answer of 401 says that nothing was done.
    if (response.status != 401 || !exchange_.has_value() || again) return response;
    token_ = {};
  }
  return absl::InternalError("not reached");
}

absl::StatusOr<HttpResponse> RestApi::SendWith(absl::string_view credential,
                                               const ApiCall& call) const {
  HttpRequest request;
  request.method = std::string(call.method);
  request.url = absl::StrCat(access_.base_url, call.path);
  const bool endless = call.endless_for.has_value();
  if (!credential.empty()) {
    request.headers.emplace_back(std::string(key_header_.name),
                                 absl::StrCat(key_header_.before_key, credential));
  }
  request.headers.emplace_back("Accept", endless ? "text/event-stream" : "application/json");
  request.headers.emplace_back("User-Agent", kUserAgent);
  request.rate_class = std::string(call.rate_class);
  request.repeatable = call.kind == CallKind::kRead || call.kind == CallKind::kRepeat;
  request.creates = call.kind == CallKind::kCreate;
  request.endless = endless;
  if (endless) request.timeout = *call.endless_for;
  if (!call.body.is_null()) {
    request.headers.emplace_back("Content-Type", "application/json");
    request.body = call.body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  absl::StatusOr<HttpResponse> response = http_->Send(request);
  if (!response.ok()) return Annotate(response.status(), call.doing);
  return response;
}

absl::Status RestApi::Explained(const HttpResponse& response, absl::string_view doing,
                                bool creating) const {
  if (response.status / 100 == 2) return absl::OkStatus();
  return Annotate(explain_(response, creating), doing);
}

absl::StatusOr<HttpResponse> RestApi::Ask(const ApiCall& call) const {
  ASSIGN_OR_RETURN(HttpResponse response, Send(call));
  const bool success =
      call.kind == CallKind::kRead ? response.status == 200 : response.status / 100 == 2;
  if (success) return response;
  return Annotate(explain_(response, call.kind == CallKind::kCreate), call.doing);
}

std::string HttpSaid(const HttpResponse& response, absl::string_view said) {
  std::string text = absl::StrCat("HTTP ", response.status);
  const std::string words =
      said.empty() ? BodyInWords(response.body, 120) : PrintableText(said, 300);
  if (!words.empty()) absl::StrAppend(&text, ": ", words);
  if (response.status == 429) {
    for (const auto& header : response.headers) {
      if (header.first == "retry-after") {
        absl::StrAppend(&text, " (retry after ", PrintableText(header.second, 20), " s)");
      }
    }
  }
  return text;
}

absl::Status StatusOfHttp(int http_status, absl::string_view said) {
  switch (http_status) {
    case 401:
      return absl::UnauthenticatedError(said);
    case 402:
      return absl::ResourceExhaustedError(said);
    case 403:
      return absl::PermissionDeniedError(said);
    case 404:
      return absl::NotFoundError(said);
    case 429:
      return BusyError(said);
    case 408:
    case 409:
      return absl::UnavailableError(said);
    case 410:
      return absl::FailedPreconditionError(said);
    default:
      if (http_status >= 500) return absl::UnavailableError(said);
      if (http_status >= 400) return absl::InvalidArgumentError(said);
      return absl::UnknownError(said);
  }
}

absl::Status StatusOfCreate(int http_status, absl::string_view said) {
  if (http_status == 408 || http_status >= 500) return absl::UnknownError(said);
  if (http_status == 404) return absl::InvalidArgumentError(said);
  if (http_status == 409) return absl::AbortedError(said);
  return StatusOfHttp(http_status, said);
}

absl::Status BeforeCreate(const absl::Status& status) {
  if (absl::IsUnknown(status) || absl::IsDeadlineExceeded(status) || absl::IsNotFound(status) ||
      IsBusy(status)) {
    return absl::UnavailableError(status.message());
  }
  return status;
}

std::string UrlEncode(absl::string_view text) {
  std::string encoded;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("-._~", c)) {
      encoded += c;
    } else {
      absl::StrAppend(&encoded, "%",
                      absl::AsciiStrToUpper(absl::BytesToHexString(absl::string_view(&c, 1))));
    }
  }
  return encoded;
}

}  // namespace gpuctl
