// Small text functions that several parts use for output.

#ifndef TRAINER_BASE_TEXT_H_
#define TRAINER_BASE_TEXT_H_

#include <string>
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

// Returns `text` with control bytes other than newline and tab as \xNN, for terminals.
std::string Printable(const std::string& text);

}  // namespace gpuctl::trainer

#endif  // TRAINER_BASE_TEXT_H_
