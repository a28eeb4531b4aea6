#include "trainer/base/text.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace gpuctl::trainer {
namespace {

size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string NearestWord(const std::string& word, const std::vector<std::string>& known) {
  std::string nearest;
  size_t best = std::max<size_t>(2, word.size() / 2) + 1;
  for (const std::string& candidate : known) {
    const size_t distance = EditDistance(word, candidate);
    if (distance < best && distance < candidate.size()) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string DidYouMean(const std::string& word, const std::vector<std::string>& known) {
  const std::string nearest = NearestWord(word, known);
  return nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?";
}

bool MatchesPattern(const std::string& text, const std::string& pattern) {
  size_t at = 0, next = 0;                            // in text and in pattern
  size_t star = std::string::npos, star_matched = 0;  // the last * and the end of its part of text
  while (at < text.size()) {
    if (next < pattern.size() && pattern[next] == '*') {
      star = next++;
      star_matched = at;
    } else if (next < pattern.size() && pattern[next] == text[at]) {
      ++next;
      ++at;
    } else if (star != std::string::npos) {
      next = star + 1;
      at = ++star_matched;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', next) == std::string::npos;
}

std::string Format(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  va_list again;
  va_copy(again, arguments);
  const int size = std::vsnprintf(nullptr, 0, format, arguments);
  va_end(arguments);
  std::string text(size > 0 ? static_cast<size_t>(size) : 0, '\0');
  if (size > 0) std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  return text;
}

std::string Printable(const std::string& text) {
  std::string shown;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0) {
      shown += Format("\\x%02x", static_cast<unsigned char>(text[++i]));
    } else if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f) {
      shown += Format("\\x%02x", byte);
    } else {
      shown += c;
    }
  }
  return shown;
}

JsonExtent MeasureJson(std::string_view json) {
  constexpr size_t kMaxDepth = 1000;
  JsonExtent extent;
  std::vector<size_t> keys = {0};  // of the objects that are open
  bool quoted = false;
  for (size_t i = 0; i < json.size() && keys.size() <= kMaxDepth; ++i) {
    const char c = json[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      keys.push_back(0);
      extent.depth = std::max(extent.depth, static_cast<int>(keys.size()) - 1);
    } else if (c == ':') {
      extent.keys = std::max(extent.keys, ++keys.back());
    } else if ((c == ']' || c == '}') && keys.size() > 1) {
      keys.pop_back();
    }
  }
  return extent;
}

}  // namespace gpuctl::trainer
