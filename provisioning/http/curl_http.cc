#include "provisioning/http/curl_http.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "provisioning/http/curl_library.h"
#include "provisioning/http/redact.h"

namespace gpuctl {
namespace {

constexpr size_t kMaxHeaderBytes = 256 << 10;
constexpr size_t kMaxIdleHandles = 8;

// The outcome of one request, filled by libcurl's callbacks.
struct Exchange {
  HttpResponse response;
  size_t header_bytes = 0;
  int64_t max_reply_bytes = 0;
  bool too_large = false;
  // True when the empty line after the headers came. libcurl takes an end before it for an answer.
  bool headers_complete = false;
  // True when the connection was made and the request was about to be written.
  bool began_to_send = false;
};

size_t TakeBody(char* data, size_t, size_t size, void* context) {
  auto& exchange = *static_cast<Exchange*>(context);
  if (exchange.response.body.size() + size > static_cast<size_t>(exchange.max_reply_bytes)) {
    exchange.too_large = true;
    return 0;
  }
  exchange.response.body.append(data, size);
  return size;
}

size_t TakeHeader(char* data, size_t, size_t size, void* context) {
  auto& exchange = *static_cast<Exchange*>(context);
  exchange.header_bytes += size;
  if (exchange.header_bytes > kMaxHeaderBytes) {
    exchange.too_large = true;
    return 0;
  }
  const absl::string_view line(data, size);
  if (absl::StartsWith(line, "HTTP/")) {
    // A proxy's answer or "100 Continue" came before. Only the last answer's headers count.
    exchange.response.headers.clear();
    exchange.headers_complete = false;
    return size;
  }
  if (absl::StripAsciiWhitespace(line).empty()) exchange.headers_complete = true;
  const size_t colon = line.find(':');
  if (colon == line.npos) return size;
  exchange.response.headers.emplace_back(
      absl::AsciiStrToLower(absl::StripAsciiWhitespace(line.substr(0, colon))),
      std::string(absl::StripAsciiWhitespace(line.substr(colon + 1))));
  return size;
}

int BeginToSend(void* context, char*, char*, int, int) {
  static_cast<Exchange*>(context)->began_to_send = true;
  return CURL_PREREQFUNC_OK;
}

bool HasLineBreak(absl::string_view text) {
  return text.find_first_of(absl::string_view("\r\n\0", 3)) != text.npos;
}

absl::Status CheckRequest(const HttpRequest& request) {
  bool good = absl::StartsWith(request.url, "http://") || absl::StartsWith(request.url, "https://");
  good = good && !HasLineBreak(request.url) && !request.method.empty() &&
         std::all_of(request.method.begin(), request.method.end(),
                     [](unsigned char c) { return absl::ascii_isupper(c); });
  for (const auto& header : request.headers) {
    good = good && !header.first.empty() && !HasLineBreak(header.first) &&
           !HasLineBreak(header.second) && !absl::StrContains(header.first, ':');
  }
  if (good && request.timeout > absl::ZeroDuration()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(request.method, " ", RedactUrl(request.url),
                                                 ": method, address or a header is malformed"));
}

class HeaderList {
 public:
  explicit HeaderList(const CurlLibrary& curl) : curl_(curl) {}
  ~HeaderList() { curl_.slist_free_all(list_); }
  HeaderList(const HeaderList&) = delete;
  HeaderList& operator=(const HeaderList&) = delete;
  void Add(const std::string& line) {
    curl_slist* longer = curl_.slist_append(list_, line.c_str());
    if (longer != nullptr) list_ = longer;
  }
  curl_slist* get() const { return list_; }

 private:
  const CurlLibrary& curl_;
  curl_slist* list_ = nullptr;
};

class CurlHttp : public Http {
 public:
  explicit CurlHttp(CurlHttpOptions options) : options_(std::move(options)) {}
  ~CurlHttp() override {
    for (CURL* handle : idle_) (*LoadCurl())->easy_cleanup(handle);
  }

  absl::StatusOr<HttpResponse> Send(const HttpRequest& request) override {
    RETURN_IF_ERROR(CheckRequest(request));
    ASSIGN_OR_RETURN(const CurlLibrary* curl, LoadCurl());
    CURL* const handle = TakeHandle(*curl);
    if (handle == nullptr) {
      return absl::UnavailableError(absl::StrCat(Noun(request), ": libcurl is out of memory"));
    }
    Exchange exchange;
    exchange.max_reply_bytes = options_.max_reply_bytes;
    const absl::Status status = Perform(*curl, handle, request, exchange);
    ReturnHandle(*curl, handle);
    RETURN_IF_ERROR(status);
    return std::move(exchange.response);
  }

 private:
  static std::string Noun(const HttpRequest& request) {
    return absl::StrCat(request.method, " ", RedactUrl(request.url));
  }

  CURL* TakeHandle(const CurlLibrary& curl) {
    {
      MutexLock lock(mutex_);
      if (!idle_.empty()) {
        CURL* const handle = idle_.back();
        idle_.pop_back();
        return handle;
      }
    }
    return curl.easy_init();
  }

  // Keeps the handle, and in it the open connection, for the next request.
  void ReturnHandle(const CurlLibrary& curl, CURL* handle) {
    curl.easy_reset(handle);
    {
      MutexLock lock(mutex_);
      if (idle_.size() < kMaxIdleHandles) {
        idle_.push_back(handle);
        return;
      }
    }
    curl.easy_cleanup(handle);
  }

  absl::Status Perform(const CurlLibrary& curl, CURL* handle, const HttpRequest& request,
                       Exchange& exchange) {
    char cause[CURL_ERROR_SIZE] = "";
    HeaderList headers(curl);
    const bool body = !request.body.empty() || request.method == "POST" ||
                      request.method == "PUT" || request.method == "PATCH";
    for (const auto& header : request.headers) {
      // libcurl takes "name:" as "leave it out" and "name;" as "send it empty".
      headers.Add(header.second.empty() ? absl::StrCat(header.first, ";")
                                        : absl::StrCat(header.first, ": ", header.second));
    }
    headers.Add("Expect:");  // or a long body would wait for an answer that many servers never send
    curl.easy_setopt(handle, CURLOPT_ERRORBUFFER, cause);
    curl.easy_setopt(handle, CURLOPT_URL, request.url.c_str());
    if (body) {
      curl.easy_setopt(handle, CURLOPT_POSTFIELDS, request.body.data());
      curl.easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE,
                       static_cast<curl_off_t>(request.body.size()));
    }
    if (request.method == "HEAD") {
      curl.easy_setopt(handle, CURLOPT_NOBODY, 1L);
    } else {
      curl.easy_setopt(handle, CURLOPT_CUSTOMREQUEST, request.method.c_str());
    }
    curl.easy_setopt(handle, CURLOPT_HTTPHEADER, headers.get());
    SetCommonOptions(curl, handle, request, exchange);
    // An old libcurl does not know these options, so the time of connection is used.
    const bool knows_beginning =
        curl.easy_setopt(handle, CURLOPT_PREREQFUNCTION, &BeginToSend) == CURLE_OK &&
        curl.easy_setopt(handle, CURLOPT_PREREQDATA, &exchange) == CURLE_OK;
    const CURLcode code = curl.easy_perform(handle);
    long http_status = 0;
    curl.easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &http_status);
    exchange.response.status = static_cast<int>(http_status);
    const bool whole = code == CURLE_OK || (request.endless && code == CURLE_OPERATION_TIMEDOUT);
    if (whole && http_status != 0 && exchange.headers_complete) return absl::OkStatus();
    bool may_have_gone_out = exchange.began_to_send;
    if (!knows_beginning) {
      curl_off_t connected_us = 0;
      curl.easy_getinfo(handle, CURLINFO_CONNECT_TIME_T, &connected_us);
      may_have_gone_out = connected_us > 0;
    }
    return Explain(curl, code, request, exchange, may_have_gone_out, cause);
  }

  void SetCommonOptions(const CurlLibrary& curl, CURL* handle, const HttpRequest& request,
                        Exchange& exchange) {
    const auto ms = [this](absl::Duration duration) {
      return static_cast<long>(
          std::clamp<int64_t>(absl::ToInt64Milliseconds(duration / options_.speed), 1, 1 << 30));
    };
    curl.easy_setopt(handle, CURLOPT_TIMEOUT_MS, ms(request.timeout));
    curl.easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS,
                     ms(std::min(options_.connect_timeout, request.timeout)));
    curl.easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl.easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 0L);
    curl.easy_setopt(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    curl.easy_setopt(handle, CURLOPT_ACCEPT_ENCODING, "");
    curl.easy_setopt(handle, CURLOPT_FRESH_CONNECT, request.repeatable ? 0L : 1L);
    curl.easy_setopt(handle, CURLOPT_USERAGENT, options_.user_agent.c_str());
    curl.easy_setopt(handle, CURLOPT_WRITEFUNCTION, &TakeBody);
    curl.easy_setopt(handle, CURLOPT_WRITEDATA, &exchange);
    curl.easy_setopt(handle, CURLOPT_HEADERFUNCTION, &TakeHeader);
    curl.easy_setopt(handle, CURLOPT_HEADERDATA, &exchange);
    if (const char* roots = std::getenv("SSL_CERT_FILE"); roots != nullptr && *roots != '\0') {
      curl.easy_setopt(handle, CURLOPT_CAINFO, roots);
    }
  }

  absl::Status Explain(const CurlLibrary& curl, CURLcode code, const HttpRequest& request,
                       const Exchange& exchange, bool may_have_gone_out, const char* cause) {
    std::string text = *cause != '\0' ? cause : curl.easy_strerror(code);
    if (code == CURLE_OK) text = "the answer ends in its headers";
    if (exchange.too_large) {
      text = absl::StrCat("the reply is longer than ", options_.max_reply_bytes >> 20, " MiB");
    }
    const std::string message = absl::StrCat(Noun(request), ": ", text);
    if (!may_have_gone_out) return absl::UnavailableError(message);
    if (code == CURLE_OPERATION_TIMEDOUT) return absl::DeadlineExceededError(message);
    return absl::UnknownError(message);
  }

  const CurlHttpOptions options_;
  Mutex mutex_;
  std::vector<CURL*> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Http> MakeCurlHttp(CurlHttpOptions options) {
  return std::make_unique<CurlHttp>(std::move(options));
}

}  // namespace gpuctl
