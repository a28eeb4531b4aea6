#include "client/base/shell_quote.h"

namespace gpuctl {
namespace {

constexpr size_t kMaxPlainWord = 200;

bool NeedsNoQuotes(absl::string_view word) {
  return !word.empty() && word.find_first_not_of(
                              "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                              "0123456789_-+=./:,@%") == absl::string_view::npos;
}

}  // namespace

std::string ShellQuote(absl::string_view word) {
  if (NeedsNoQuotes(word)) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

bool IsPlainWord(absl::string_view word) {
  return NeedsNoQuotes(word) && word[0] != '-' && word.size() <= kMaxPlainWord;
}

}  // namespace gpuctl
