#include "client/ignore/ignore_pattern.h"

#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace gpuctl {
namespace {

constexpr absl::string_view kByteOrderMark = "\xef\xbb\xbf";

// Removes spaces at the end, unless a backslash stands before the first of them. A backslash as
// last character stops the search for them.
absl::string_view WithoutTrailingSpaces(absl::string_view line) {
  size_t spaces = absl::string_view::npos;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == ' ') {
      if (spaces == absl::string_view::npos) spaces = i;
      continue;
    }
    if (line[i] == '\\' && ++i == line.size()) return line;
    spaces = absl::string_view::npos;
  }
  return line.substr(0, spaces);
}

}  // namespace

IgnorePattern::IgnorePattern(absl::string_view text, int line, bool ignore_case)
    : text_(text), line_(line), ignore_case_(ignore_case) {
  negative_ = absl::ConsumePrefix(&text, "!");
  directories_only_ = absl::ConsumeSuffix(&text, "/");
  basename_only_ = !absl::StrContains(text, '/');
  if (basename_only_) {
    all_literal_ = LiteralPrefix(text) == text.size();
    any_suffix_ = absl::StartsWith(text, "*") && LiteralPrefix(text.substr(1)) == text.size() - 1;
    if (all_literal_ || any_suffix_) {
      literal_ = std::string(text.substr(any_suffix_ ? 1 : 0));
    } else {
      glob_ = GitGlob(text, ignore_case);
    }
    return;
  }
  // Only the text after the literal part is matched as a glob. So the "**/" of "a**/b" stands at
  // the beginning of the glob.
  absl::ConsumePrefix(&text, "/");
  const size_t literal = LiteralPrefix(text);
  all_literal_ = literal == text.size();
  literal_ = std::string(text.substr(0, literal));
  if (!all_literal_) glob_ = GitGlob(text.substr(literal), ignore_case);
}

bool IgnorePattern::Matches(absl::string_view name, absl::string_view basename,
                            bool is_directory) const {
  if (directories_only_ && !is_directory) return false;
  return basename_only_ ? MatchesBasename(basename) : MatchesPath(name);
}

bool IgnorePattern::MatchesBasename(absl::string_view basename) const {
  if (all_literal_) return EqualBytes(literal_, basename, ignore_case_);
  if (!any_suffix_) return glob_.Matches(basename);
  return basename.size() >= literal_.size() &&
         EqualBytes(literal_, basename.substr(basename.size() - literal_.size()), ignore_case_);
}

bool IgnorePattern::MatchesPath(absl::string_view name) const {
  if (name.size() < literal_.size() ||
      !EqualBytes(literal_, name.substr(0, literal_.size()), ignore_case_)) {
    return false;
  }
  name.remove_prefix(literal_.size());
  return all_literal_ ? name.empty() : glob_.Matches(name);
}

bool IgnorePattern::NamesSomething() const {
  absl::string_view last = absl::StripSuffix(text_, "/");
  absl::ConsumePrefix(&last, "!");
  if (const size_t slash = last.rfind('/'); slash != absl::string_view::npos) {
    last.remove_prefix(slash + 1);
  }
  bool in_class = false;
  for (size_t i = 0; i < last.size(); ++i) {
    const char c = last[i];
    if (in_class) {
      in_class = c != ']';
    } else if (c == '[') {
      in_class = true;
      if (i + 1 < last.size() && (last[i + 1] == '!' || last[i + 1] == '^')) ++i;
      if (i + 1 < last.size() && last[i + 1] == ']') ++i;
    } else if (c != '*' && c != '?' && c != '\\') {
      return true;
    }
  }
  return false;
}

std::vector<IgnorePattern> ParseIgnoreFile(absl::string_view contents, bool ignore_case) {
  std::vector<IgnorePattern> patterns;
  absl::ConsumePrefix(&contents, kByteOrderMark);
  for (int number = 1; !contents.empty(); ++number) {
    const size_t end = contents.find('\n');
    absl::string_view line = contents.substr(0, end);
    contents.remove_prefix(end == absl::string_view::npos ? contents.size() : end + 1);
    if (line.empty() || line[0] == '#') continue;
    absl::ConsumeSuffix(&line, "\r");
    line = line.substr(0, line.find('\0'));
    patterns.emplace_back(WithoutTrailingSpaces(line), number, ignore_case);
  }
  return patterns;
}

}  // namespace gpuctl
