#include "provisioning/market/rest_api.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "provisioning/http/redact.h"

namespace gpuctl {
namespace {

// The beginning of a body, for a message. JSON, whole or torn, may have an instance's key in it.
std::string BodyInWords(absl::string_view body, size_t limit) {
  const absl::string_view text = absl::StripLeadingAsciiWhitespace(body);
  const bool json = absl::StartsWith(text, "{") || absl::StartsWith(text, "[");
  return json ? PrintableText(RedactBody(text), limit) : PrintableText(body, limit);
}

constexpr size_t kMaxBodyBytes = 32 << 20;
constexpr int kMaxDepth = 64;
// Some services refuse requests without one.
constexpr char kUserAgent[] = "gpuctl/0.1";

bool IsAlnum(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); }

bool AllOf(absl::string_view text, absl::string_view more) {
  return !text.empty() && text[0] != '-' && std::all_of(text.begin(), text.end(), [&](char c) {
    return IsAlnum(c) || absl::StrContains(more, c);
  });
}

std::optional<int64_t> WholeNumber(const nlohmann::json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  // Beyond 2^53 a double no longer tells neighbours apart.
  if (std::abs(number) > 9e15 || number != std::floor(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

}  // namespace

absl::StatusOr<nlohmann::json> ParseWireJson(absl::string_view body) {
  if (body.size() > kMaxBodyBytes) {
    return absl::UnknownError(absl::StrCat("the answer has ", body.size(), " bytes"));
  }
  bool too_deep = false;
  const auto depth = [&too_deep](int level, nlohmann::json::parse_event_t /*event*/,
                                 nlohmann::json& /*parsed*/) {
    too_deep = too_deep || level > kMaxDepth;
    return level <= kMaxDepth;
  };
  nlohmann::json json = nlohmann::json::parse(body.begin(), body.end(), depth, false);
  if (too_deep) return absl::UnknownError("the answer is nested too deeply");
  if (json.is_discarded()) {
    return absl::UnknownError(absl::StrCat("the answer is no JSON: ", BodyInWords(body, 80)));
  }
  return json;
}

WireObject::WireObject(const nlohmann::json& json, absl::string_view what)
    : json_(&json), what_(what) {
  if (!json.is_object()) status_ = absl::UnknownError(absl::StrCat(what_, " is no JSON object"));
}

const nlohmann::json* WireObject::Find(const char* field) const {
  if (!json_->is_object()) return nullptr;
  const auto found = json_->find(field);
  return found == json_->end() || found->is_null() ? nullptr : &*found;
}

void WireObject::Fail(const char* field, absl::string_view problem) {
  if (status_.ok()) {
    status_ = absl::UnknownError(absl::StrCat("field ", field, " of ", what_, " ", problem));
  }
}

void WireObject::Check(const absl::Status& status) {
  if (status_.ok()) status_ = status;
}

const nlohmann::json* WireObject::Require(const char* field) {
  const nlohmann::json* value = Find(field);
  if (value == nullptr) Fail(field, "is missing");
  return value;
}

const nlohmann::json* WireObject::Typed(const char* field, const nlohmann::json* value, bool fits,
                                        const char* wanted) {
  if (value == nullptr || fits) return value;
  Fail(field, absl::StrCat("is a JSON ", value->type_name(), ", not ", wanted));
  return nullptr;
}

std::optional<std::string> WireObject::OptionalString(const char* field) {
  const nlohmann::json* value = Find(field);
  value = Typed(field, value, value != nullptr && value->is_string(), "a string");
  if (value == nullptr) return std::nullopt;
  return value->get<std::string>();
}

std::string WireObject::String(const char* field) {
  return Require(field) == nullptr ? "" : OptionalString(field).value_or("");
}

std::optional<double> WireObject::OptionalNumber(const char* field) {
  const nlohmann::json* value = Find(field);
  value = Typed(field, value, value != nullptr && value->is_number(), "a number");
  if (value == nullptr) return std::nullopt;
  return value->get<double>();
}

double WireObject::Number(const char* field) {
  return Require(field) == nullptr ? 0 : OptionalNumber(field).value_or(0);
}

std::optional<int64_t> WireObject::OptionalInt(const char* field) {
  const nlohmann::json* value = Find(field);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = WholeNumber(*value);
  Typed(field, value, number.has_value(), "a whole number");
  return number;
}

int64_t WireObject::Int(const char* field) {
  return Require(field) == nullptr ? 0 : OptionalInt(field).value_or(0);
}

std::optional<int64_t> WireObject::LooseInt(const char* field) {
  const nlohmann::json* value = Find(field);
  int64_t number = 0;
  if (value != nullptr && value->is_string() &&
      absl::SimpleAtoi(value->get_ref<const std::string&>(), &number)) {
    return number;
  }
  return OptionalInt(field);
}

std::optional<bool> WireObject::OptionalBool(const char* field) {
  const nlohmann::json* value = Find(field);
  value = Typed(field, value, value != nullptr && value->is_boolean(), "true or false");
  if (value == nullptr) return std::nullopt;
  return value->get<bool>();
}

const nlohmann::json* WireObject::OptionalObject(const char* field) {
  const nlohmann::json* value = Find(field);
  return Typed(field, value, value != nullptr && value->is_object(), "an object");
}

const nlohmann::json* WireObject::OptionalArray(const char* field) {
  const nlohmann::json* value = Find(field);
  return Typed(field, value, value != nullptr && value->is_array(), "an array");
}

const nlohmann::json* WireObject::Object(const char* field) {
  return Require(field) == nullptr ? nullptr : OptionalObject(field);
}

const nlohmann::json* WireObject::Array(const char* field) {
  return Require(field) == nullptr ? nullptr : OptionalArray(field);
}

std::string PrintableText(absl::string_view text, size_t limit) {
  std::string printable;
  for (const char c : text) {
    if (printable.size() == limit) {
      // Not in the middle of a character.
      while (!printable.empty() && (printable.back() & 0xc0) == 0x80) printable.pop_back();
      if (!printable.empty() && (printable.back() & 0x80) != 0) printable.pop_back();
      return printable + "...";
    }
    const auto byte = static_cast<unsigned char>(c);
    const bool blank = byte < 0x20 || byte == 0x7f;
    if (blank && (printable.empty() || printable.back() == ' ')) continue;
    printable += blank ? ' ' : c;
  }
  // Bytes that are no UTF-8 become the replacement character.
  const std::string quoted =
      nlohmann::json(printable).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const nlohmann::json clean = nlohmann::json::parse(quoted, nullptr, false);
  return clean.is_string() ? clean.get<std::string>() : "";
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
    case 408:
    case 409:
    case 429:
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
  if (absl::IsUnknown(status) || absl::IsDeadlineExceeded(status) || absl::IsNotFound(status)) {
    return absl::UnavailableError(status.message());
  }
  return status;
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

HttpRequest ApiRequest(const ProviderAccess& access, absl::string_view method,
                       absl::string_view path, absl::string_view rate_class, bool repeatable,
                       const std::optional<nlohmann::json>& body) {
  HttpRequest request;
  request.method = std::string(method);
  request.url = absl::StrCat(access.base_url, path);
  request.headers = {{"Authorization", absl::StrCat("Bearer ", access.api_key)},
                     {"Accept", "application/json"},
                     {"User-Agent", kUserAgent}};
  request.rate_class = std::string(rate_class);
  request.repeatable = repeatable;
  if (body.has_value()) {
    request.headers.emplace_back("Content-Type", "application/json");
    request.body = body->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  return request;
}

std::string UrlEncode(absl::string_view text) {
  std::string encoded;
  for (const char c : text) {
    if (IsAlnum(c) || absl::StrContains("-._~", c)) {
      encoded += c;
    } else {
      absl::StrAppend(&encoded, "%",
                      absl::AsciiStrToUpper(absl::BytesToHexString(absl::string_view(&c, 1))));
    }
  }
  return encoded;
}

bool IsSafeHost(absl::string_view text) { return text.size() <= 255 && AllOf(text, ".-:_"); }
bool IsSafeUser(absl::string_view text) { return text.size() <= 64 && AllOf(text, ".-_"); }

std::string SshKeyIdentity(absl::string_view line) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(line, absl::ByAnyChar(" \t\r\n"), absl::SkipEmpty());
  if (words.size() < 2 || words[1].size() < 16) return "";
  return absl::StrCat(words[0], " ", words[1]);
}

int64_t DiskGb(int64_t disk_bytes, int64_t fallback_gb) {
  if (disk_bytes <= 0) return fallback_gb;
  return disk_bytes / kDiskGb + (disk_bytes % kDiskGb != 0 ? 1 : 0);
}

std::string GzipBase64(absl::string_view text) {
  z_stream stream = {};
  constexpr int kGzipWindow = 15 + 16;
  std::string packed;
  if (deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) ==
      Z_OK) {
    packed.resize(deflateBound(&stream, static_cast<uLong>(text.size())));
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(packed.data());
    stream.avail_out = static_cast<uInt>(packed.size());
    deflate(&stream, Z_FINISH);
    packed.resize(stream.total_out);
    deflateEnd(&stream);
  }
  return absl::Base64Escape(packed);
}

std::string QuoteForShell(absl::string_view word) {
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

bool IsEnvName(absl::string_view name) {
  return !name.empty() && !absl::ascii_isdigit(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), [](char c) { return IsAlnum(c) || c == '_'; });
}

void KeepAffordable(const Requirements& requirements, std::vector<Offer>& offers) {
  if (requirements.max_price_usd_per_hour.has_value()) {
    const double most = *requirements.max_price_usd_per_hour;
    offers.erase(std::remove_if(offers.begin(), offers.end(),
                                [most](const Offer& o) { return o.price_usd_per_hour > most; }),
                 offers.end());
  }
  std::sort(offers.begin(), offers.end(), [](const Offer& a, const Offer& b) {
    return std::tie(a.price_usd_per_hour, a.ref) < std::tie(b.price_usd_per_hour, b.ref);
  });
  // Alternatives may ask for the same machine.
  offers.erase(std::unique(offers.begin(), offers.end(),
                           [](const Offer& a, const Offer& b) { return a.ref == b.ref; }),
               offers.end());
}

bool IsElsewhere(const Requirements& requirements, absl::string_view provider) {
  return requirements.volume.has_value() && requirements.volume->provider != provider;
}

std::vector<Requirements::Gpu> AskedGpus(const Requirements& requirements) {
  return requirements.gpus.empty() ? std::vector<Requirements::Gpu>(1) : requirements.gpus;
}

}  // namespace gpuctl
