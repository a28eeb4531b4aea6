// Small text functions that several parts use for output.

#ifndef TRAINER_BASE_TEXT_H_
#define TRAINER_BASE_TEXT_H_

#include <string>
#include <string_view>
#include <vector>

namespace gpuctl::trainer {

// Returns the entry of `known` nearest to `word` by edit distance, or "" when none is near.
std::string NearestWord(const std::string& word, const std::vector<std::string>& known);
// Returns "; did you mean \"x\"?" or "".
std::string DidYouMean(const std::string& word, const std::vector<std::string>& known);

// True when `text` is `pattern`, in which each * stands for any text, also for none.
bool MatchesPattern(const std::string& text, const std::string& pattern);

// Does printf into a string.
std::string Format(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Returns `text` with control characters other than newline and tab as \xNN, for terminals. Those
// of Latin-1 (U+0080 to U+009F in UTF-8) count, too.
std::string Printable(const std::string& text);

struct JsonExtent {
  int depth = 0;    // how many arrays and objects lie within each other at most
  size_t keys = 0;  // how many the largest object has
};

// Measures a JSON text before it is parsed: a parser must not get more than its recursion bears,
// nor an object whose keys it compares one by one. Stops at depth 1000.
JsonExtent MeasureJson(std::string_view json);

}  // namespace gpuctl::trainer

#endif  // TRAINER_BASE_TEXT_H_
