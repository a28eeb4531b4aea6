#include "provisioning/market/rest_api.h"

#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "provisioning/http/redact.h"
#include "provisioning/market/provider.h"

namespace gpuctl {
namespace {

// Some services refuse requests without one.
constexpr char kUserAgent[] = "gpuctl/0.1";

}  // namespace

RestApi::RestApi(std::shared_ptr<Http> http, ProviderAccess access, absl::string_view base_url,
                 Explain explain, KeyHeader key_header)
    : http_(std::move(http)),
      access_(std::move(access)),
      explain_(explain),
      key_header_(key_header) {
  if (access_.base_url.empty()) access_.base_url = std::string(base_url);
}

absl::StatusOr<HttpResponse> RestApi::Send(const ApiCall& call) const {
  HttpRequest request;
  request.method = std::string(call.method);
  request.url = absl::StrCat(access_.base_url, call.path);
  const bool endless = call.endless_for.has_value();
  request.headers = {
      {std::string(key_header_.name), absl::StrCat(key_header_.before_key, access_.api_key)},
      {"Accept", endless ? "text/event-stream" : "application/json"},
      {"User-Agent", kUserAgent}};
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

absl::StatusOr<HttpResponse> RestApi::Ask(const ApiCall& call) const {
  ASSIGN_OR_RETURN(HttpResponse response, Send(call));
  const bool success =
      call.kind == CallKind::kRead ? response.status == 200 : response.status / 100 == 2;
  if (success) return response;
  return Annotate(explain_(response, call.kind == CallKind::kCreate), call.doing);
}

absl::StatusOr<std::vector<Instance>> ReadPages(
    absl::string_view doing, int max_pages,
    absl::FunctionRef<absl::StatusOr<InstancePage>(const std::string& next)> read) {
  std::vector<Instance> instances;
  std::set<InstanceId> seen;
  std::string next;
  for (int page_number = 0; page_number < max_pages; ++page_number) {
    ASSIGN_OR_RETURN(InstancePage page, read(next));
    for (const InstanceId& id : page.ids) {
      if (!seen.insert(id).second) {
        return absl::UnknownError(absl::StrCat(doing, ": ", id, " came twice"));
      }
    }
    for (Instance& instance : page.instances) instances.push_back(std::move(instance));
    if (page.next.empty()) return instances;
    next = std::move(page.next);
  }
  return absl::UnknownError(absl::StrCat(doing, ": more than ", max_pages, " pages"));
}

std::string PrintableText(absl::string_view text, size_t limit) {
  std::string printable;
  for (const char c : text) {
    if (printable.size() == limit) {
      // The cut is not in the middle of a character.
      while (!printable.empty() && (printable.back() & 0xc0) == 0x80) printable.pop_back();
      if (!printable.empty() && (printable.back() & 0x80) != 0) printable.pop_back();
      return printable + "...";
    }
    const auto byte = static_cast<unsigned char>(c);
    const bool blank = byte < 0x20 || byte == 0x7f;
    if (blank && (printable.empty() || printable.back() == ' ')) continue;
    printable += blank ? ' ' : c;
  }
  // Bytes that are not UTF-8 become the replacement character.
  const std::string quoted =
      nlohmann::json(printable).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const nlohmann::json clean = nlohmann::json::parse(quoted, nullptr, false);
  return clean.is_string() ? clean.get<std::string>() : "";
}

std::string BodyInWords(absl::string_view body, size_t limit) {
  const absl::string_view text = absl::StripLeadingAsciiWhitespace(body);
  const bool json = absl::StartsWith(text, "{") || absl::StartsWith(text, "[");
  return json ? PrintableText(RedactBody(text), limit) : PrintableText(body, limit);
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
