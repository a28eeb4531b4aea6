// A pattern that splits or replaces text: a literal, or a regular expression that PCRE2 runs.

#ifndef TRAINER_UNICODE_PATTERN_H_
#define TRAINER_UNICODE_PATTERN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

// PCRE2's own names, so that its header stays in one file.
struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace gpuctl::trainer {

struct Match {
  size_t begin;
  size_t end;
};

// What a thread needs to run patterns. One thread at a time uses it.
class PatternScratch {
 public:
  // `most_seconds` of the processor's time are what the matches of one text may take. Expressions
  // in use need a tenth of a second for a MB.
  explicit PatternScratch(double most_seconds = 10);
  ~PatternScratch();
  PatternScratch(const PatternScratch&) = delete;
  PatternScratch& operator=(const PatternScratch&) = delete;

 private:
  friend class Pattern;
  friend class MatchIterator;
  // Begins the time that a text may take.
  void BeginText();
  // Returns the clock's seconds. Throws Error(kBadData) when the text has taken too long.
  double Look();
  // Looks at each 16th call.
  void CheckTime();

  pcre2_real_match_data_8* data_;
  pcre2_real_match_context_8* context_;
  pcre2_real_jit_stack_8* stack_;
  uint32_t calls_ = 0;
  const double most_seconds_;
  double began_ = 0;  // seconds of the thread's processor time; 0: not taken yet
};

// Immutable and thread-safe.
class Pattern {
 public:
  // An expression of Oniguruma, as tokenizer.json has them. Throws Error(kBadData) for one that is
  // wrong, not supported, or too long.
  static Pattern FromOniguruma(const std::string& expression);
  // An expression of PCRE2, of this program itself.
  static Pattern FromPcre2(const std::string& expression);
  static Pattern FromLiteral(std::string literal);

  // Looks for the first match that begins at or behind `from`. `text` must be valid UTF-8. Throws
  // Error(kBadData) when the expression takes too many steps, too much memory, or too long: a wrong
  // result would be worse.
  bool Find(std::string_view text, size_t from, PatternScratch& scratch, Match* match) const;

 private:
  Pattern() = default;
  // Does the same for matches that begin at or before `last`.
  bool FindWithin(std::string_view text, size_t from, size_t last, PatternScratch& scratch,
                  Match* match) const;

  std::string literal_;
  std::shared_ptr<const pcre2_real_code_8> code_;  // null: the literal
  bool compiled_ = false;                          // to machine code
};

// Yields the matches of a text from left to right, without overlaps. An empty match directly behind
// another one does not count. All together may take the time that the scratch says.
class MatchIterator {
 public:
  MatchIterator(const Pattern& pattern, std::string_view text, PatternScratch& scratch)
      : pattern_(pattern), text_(text), scratch_(scratch) {
    scratch_.BeginText();
  }
  bool Next(Match* match);

 private:
  const Pattern& pattern_;
  std::string_view text_;
  PatternScratch& scratch_;
  size_t from_ = 0;
  size_t last_end_ = static_cast<size_t>(-1);
};

// Returns `text` with each match replaced. Throws Error(kBadData) when that makes it more than 16
// times as long, and as the pattern does.
std::string ReplaceAll(const Pattern& pattern, const std::string& with, const std::string& text,
                       PatternScratch& scratch);

}  // namespace gpuctl::trainer

#endif  // TRAINER_UNICODE_PATTERN_H_
