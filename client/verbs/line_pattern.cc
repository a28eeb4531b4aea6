#include "client/verbs/line_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>
#include <new>

#include "absl/strings/str_cat.h"

namespace gpuctl {
namespace {

constexpr size_t kLongestExpression = 4096;
constexpr uint32_t kMostSteps = 10'000'000;
constexpr uint32_t kMostHeapKib = 32 << 10;

std::string Pcre2Words(int error) {
  PCRE2_UCHAR8 words[256] = {};
  pcre2_get_error_message_8(error, words, sizeof(words));
  return reinterpret_cast<const char*>(words);
}

}  // namespace

absl::StatusOr<LinePattern> LinePattern::Compile(absl::string_view expression) {
  if (expression.empty()) return absl::InvalidArgumentError("the expression is empty");
  if (expression.size() > kLongestExpression) {
    return absl::InvalidArgumentError("the expression is too long");
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  LinePattern pattern;
  pattern.code_.reset(
      pcre2_compile_8(reinterpret_cast<PCRE2_SPTR8>(expression.data()), expression.size(),
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C,
                      &error, &offset, nullptr),
      [](pcre2_code_8* code) { pcre2_code_free_8(code); });
  if (pattern.code_ == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(Pcre2Words(error), ", at character ", offset + 1));
  }
  pattern.data_.reset(pcre2_match_data_create_8(1, nullptr), pcre2_match_data_free_8);
  pattern.context_.reset(pcre2_match_context_create_8(nullptr), pcre2_match_context_free_8);
  if (pattern.data_ == nullptr || pattern.context_ == nullptr) throw std::bad_alloc();
  pcre2_set_match_limit_8(pattern.context_.get(), kMostSteps);
  pcre2_set_heap_limit_8(pattern.context_.get(), kMostHeapKib);
  return pattern;
}

absl::StatusOr<bool> LinePattern::Matches(absl::string_view line) {
  const int found =
      pcre2_match_8(code_.get(), reinterpret_cast<PCRE2_SPTR8>(line.empty() ? "" : line.data()),
                    line.size(), 0, 0, data_.get(), context_.get());
  if (found >= 0) return true;
  if (found == PCRE2_ERROR_NOMATCH) return false;
  return absl::ResourceExhaustedError(Pcre2Words(found));
}

}  // namespace gpuctl
