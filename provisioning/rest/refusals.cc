#include "provisioning/rest/refusals.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "provisioning/market/provider.h"
#include "provisioning/rest/rest_api.h"

namespace gpuctl {
namespace {

bool IsCode(absl::string_view pattern, absl::string_view code) {
  if (pattern.empty()) return true;
  if (pattern.back() != '*') return code == pattern;
  pattern.remove_suffix(1);
  return !code.empty() && absl::StartsWith(code, pattern);
}

bool HasWords(absl::string_view text, absl::string_view words) {
  return absl::StrContains(absl::AsciiStrToLower(text), absl::AsciiStrToLower(words));
}

bool Holds(const Refusal& refusal, int http_status, const MarketError& error) {
  return (refusal.http == 0 || refusal.http == http_status) && IsCode(refusal.code, error.code) &&
         (HasWords(error.code, refusal.words) || HasWords(error.message, refusal.words));
}

}  // namespace

absl::Status StatusOfRefusal(const HttpResponse& response, const MarketError& error,
                             absl::Span<const Refusal> refusals, bool creating) {
  std::string words = error.message;
  if (!error.code.empty()) absl::StrAppend(&words, words.empty() ? "" : " ", "(", error.code, ")");
  const std::string said = HttpSaid(response, words);
  if (response.status == 429) return BusyError(said);
  const bool own_words = !error.code.empty() || !error.message.empty();
  if (response.status < 500 && own_words) {
    for (const Refusal& refusal : refusals) {
      if (!Holds(refusal, response.status, error)) continue;
      const absl::StatusCode code = creating ? refusal.creating : refusal.reading;
      if (code != absl::StatusCode::kOk) return absl::Status(code, said);
      break;
    }
  }
  if (creating) return StatusOfCreate(response.status, said);
  return response.status == 404 ? absl::UnknownError(said) : StatusOfHttp(response.status, said);
}

}  // namespace gpuctl
