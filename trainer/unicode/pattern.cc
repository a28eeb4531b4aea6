#include "trainer/unicode/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <time.h>

#include <algorithm>
#include <new>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/unicode/oniguruma.h"
#include "trainer/unicode/utf8.h"

namespace gpuctl::trainer {
namespace {

constexpr size_t kMaxExpressionBytes = 20000;
constexpr size_t kMaxGrowth = 64 << 20;
constexpr uint32_t kMaxSteps = 10'000'000;
constexpr uint32_t kMaxHeapKib = 64 << 10;
constexpr size_t kFirstStackBytes = 32 << 10;
constexpr size_t kMaxStackBytes = 16 << 20;
// PCRE2's limit of steps holds for one place where a match may begin, and there are as many as the
// text has bytes. So it gets a part of them at a time.
constexpr size_t kFirstWindow = 64;
constexpr double kQuickWindow = 1e-4;  // seconds
constexpr uint32_t kCallsPerLook = 16;

// Returns the processor's time that this thread has used.
double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

const PCRE2_UCHAR8* Units(std::string_view text) {
  return reinterpret_cast<const PCRE2_UCHAR8*>(text.data());
}

std::string Pcre2Message(int error) {
  PCRE2_UCHAR8 message[256] = {};
  pcre2_get_error_message_8(error, message, sizeof(message));
  return reinterpret_cast<const char*>(message);
}

}  // namespace

PatternScratch::PatternScratch(double most_seconds)
    : data_(pcre2_match_data_create_8(1, nullptr)),
      context_(pcre2_match_context_create_8(nullptr)),
      stack_(pcre2_jit_stack_create_8(kFirstStackBytes, kMaxStackBytes, nullptr)),
      most_seconds_(most_seconds) {
  if (data_ == nullptr || context_ == nullptr) throw std::bad_alloc();
  pcre2_set_match_limit_8(context_, kMaxSteps);
  pcre2_set_heap_limit_8(context_, kMaxHeapKib);
  if (stack_ != nullptr) pcre2_jit_stack_assign_8(context_, nullptr, stack_);
}

void PatternScratch::BeginText() {
  calls_ = 0;
  began_ = 0;
}

double PatternScratch::Look() {
  const double now = ThreadSeconds();
  if (began_ == 0) began_ = now;
  if (now - began_ < most_seconds_) return now;
  throw DataError("encode: a regular expression takes too long on this text");
}

void PatternScratch::CheckTime() {
  if (++calls_ % kCallsPerLook == 0) Look();
}

PatternScratch::~PatternScratch() {
  pcre2_match_context_free_8(context_);
  pcre2_match_data_free_8(data_);
  if (stack_ != nullptr) pcre2_jit_stack_free_8(stack_);
}

Pattern Pattern::FromPcre2(const std::string& expression) {
  const std::unique_ptr<pcre2_compile_context_8, void (*)(pcre2_compile_context_8*)> context(
      pcre2_compile_context_create_8(nullptr), pcre2_compile_context_free_8);
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline_8(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code_8* code = pcre2_compile_8(
      Units(expression), expression.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT,
      &error, &offset, context.get());
  if (code == nullptr) throw DataError("regular expression: " + Pcre2Message(error));
  Pattern pattern;
  pattern.code_ = std::shared_ptr<const pcre2_code_8>(
      code, [](const pcre2_code_8* done) { pcre2_code_free_8(const_cast<pcre2_code_8*>(done)); });
  pattern.compiled_ = pcre2_jit_compile_8(code, PCRE2_JIT_COMPLETE) == 0;
  return pattern;
}

Pattern Pattern::FromLiteral(std::string literal) {
  Pattern pattern;
  pattern.literal_ = std::move(literal);
  return pattern;
}

Pattern Pattern::FromOniguruma(const std::string& expression) {
  if (expression.size() > kMaxExpressionBytes) throw DataError("regular expression: is too long");
  return FromPcre2(TranslateOniguruma(expression));
}

bool Pattern::Find(std::string_view text, size_t from, PatternScratch& scratch,
                   Match* match) const {
  if (code_ == nullptr) {
    match->begin = text.find(literal_, from);
    if (match->begin == std::string_view::npos) return false;
    match->end = match->begin + literal_.size();
    return true;
  }
  scratch.CheckTime();
  size_t window = kFirstWindow;
  double looked = 0;
  for (;;) {
    const size_t last = std::min(text.size(), from + window);
    if (FindWithin(text, from, last, scratch, match)) return true;
    if (last == text.size()) return false;
    for (from = last + 1; from < text.size() && (text[from] & 0xc0) == 0x80;) ++from;
    // Most expressions are quick, so that windows become large soon.
    const double now = scratch.Look();
    const bool quick = looked == 0 || now - looked < kQuickWindow;
    window = quick ? 2 * window : std::max<size_t>(1, window / 2);
    looked = now;
  }
}

bool Pattern::FindWithin(std::string_view text, size_t from, size_t last, PatternScratch& scratch,
                         Match* match) const {
  pcre2_set_offset_limit_8(scratch.context_, last);
  // pcre2_jit_match wants an address, also for no text.
  const PCRE2_UCHAR8* units = text.data() == nullptr ? Units("") : Units(text);
  const int result = compiled_
                         ? pcre2_jit_match_8(code_.get(), units, text.size(), from,
                                             PCRE2_NO_UTF_CHECK, scratch.data_, scratch.context_)
                         : pcre2_match_8(code_.get(), units, text.size(), from, PCRE2_NO_UTF_CHECK,
                                         scratch.data_, scratch.context_);
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0) {
    throw DataError("encode: a regular expression gave up on this text: " + Pcre2Message(result));
  }
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer_8(scratch.data_);
  match->begin = ends[0];
  match->end = ends[1];
  return true;
}

bool MatchIterator::Next(Match* match) {
  while (from_ <= text_.size()) {
    if (!pattern_.Find(text_, from_, scratch_, match)) return false;
    if (match->begin == match->end && match->end == last_end_) {
      if (from_ == text_.size()) return false;
      from_ += CodePointBytes(text_[from_]);
      continue;
    }
    from_ = last_end_ = match->end;
    return true;
  }
  return false;
}

std::string ReplaceAll(const Pattern& pattern, const std::string& with, const std::string& text,
                       PatternScratch& scratch) {
  std::string out;
  size_t copied = 0;
  Match match;
  for (MatchIterator matches(pattern, text, scratch); matches.Next(&match);) {
    out.append(text, copied, match.begin - copied);
    out += with;
    copied = match.end;
    if (out.size() > kMaxGrowth + 16 * text.size()) {
      throw DataError("encode: replacing makes the text too long");
    }
  }
  if (copied == 0 && out.empty()) return text;
  out.append(text, copied, std::string::npos);
  return out;
}

}  // namespace gpuctl::trainer
