#include "client/ignore/git_glob.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gpuctl {
namespace {

bool IsLower(uint8_t c) { return c >= 'a' && c <= 'z'; }
bool IsUpper(uint8_t c) { return c >= 'A' && c <= 'Z'; }
bool IsAlpha(uint8_t c) { return IsLower(c) || IsUpper(c); }
bool IsDigit(uint8_t c) { return c >= '0' && c <= '9'; }
bool IsAlnum(uint8_t c) { return IsAlpha(c) || IsDigit(c); }
bool IsPrint(uint8_t c) { return c >= 0x20 && c <= 0x7e; }
bool IsBlank(uint8_t c) { return c == ' ' || c == '\t'; }
// True for git's [:space:], which lacks vertical tab and form feed.
bool IsSpace(uint8_t c) { return IsBlank(c) || c == '\n' || c == '\r'; }
bool IsGraph(uint8_t c) { return IsPrint(c) && c != ' '; }
bool IsPunct(uint8_t c) { return IsGraph(c) && !IsAlnum(c); }
bool IsControl(uint8_t c) { return c < 0x20 || c == 0x7f; }
bool IsHex(uint8_t c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

using Predicate = bool (*)(uint8_t);
constexpr std::pair<absl::string_view, Predicate> kNamedClasses[] = {
    {"alnum", IsAlnum}, {"alpha", IsAlpha}, {"blank", IsBlank}, {"cntrl", IsControl},
    {"digit", IsDigit}, {"graph", IsGraph}, {"lower", IsLower}, {"print", IsPrint},
    {"punct", IsPunct}, {"space", IsSpace}, {"upper", IsUpper}, {"xdigit", IsHex},
};

}  // namespace

bool EqualBytes(absl::string_view a, absl::string_view b, bool ignore_case) {
  if (a.size() != b.size()) return false;
  if (!ignore_case) return a == b;
  for (size_t i = 0; i < a.size(); ++i) {
    if (FoldAscii(a[i]) != FoldAscii(b[i])) return false;
  }
  return true;
}

size_t LiteralPrefix(absl::string_view pattern) {
  const size_t special = pattern.find_first_of("*?[\\");
  return special == absl::string_view::npos ? pattern.size() : special;
}

GitGlob::GitGlob(absl::string_view pattern, bool ignore_case) : ignore_case_(ignore_case) {
  for (size_t at = 0; at < pattern.size() && !malformed_;) {
    char c = pattern[at];
    switch (c) {
      case '*':
        at = AddStars(pattern, at);
        continue;
      case '?':
        elements_.push_back({Kind::kAnyByte});
        ++at;
        continue;
      case '[':
        malformed_ = !AddClass(pattern, at);
        continue;
      case '\\':
        if (++at == pattern.size()) {
          malformed_ = true;
          continue;
        }
        c = pattern[at];
        break;
      default:
        if (ignore_case_) c = FoldAscii(c);
    }
    elements_.push_back({Kind::kByte, static_cast<uint8_t>(c)});
    ++at;
  }
}

// Adds the run of stars at `at`; returns the position after it.
size_t GitGlob::AddStars(absl::string_view pattern, size_t at) {
  size_t end = pattern.find_first_not_of('*', at);
  if (end == absl::string_view::npos) end = pattern.size();
  const absl::string_view rest = pattern.substr(end);
  const bool escaped_slash = rest.size() >= 2 && rest[0] == '\\' && rest[1] == '/';
  const bool names_directories =
      (at == 0 || pattern[at - 1] == '/') && (rest.empty() || rest[0] == '/' || escaped_slash);
  if (end - at == 1 || !names_directories) {
    elements_.push_back({Kind::kStar});
    return end;
  }
  const bool with_slash = !rest.empty() && rest[0] == '/';
  elements_.push_back({with_slash ? Kind::kDirectories : Kind::kStarStar});
  return with_slash ? end + 1 : end;
}

// Reads the class whose first byte after "[" and "!" is at `at`.
class GitGlob::ClassReader {
 public:
  ClassReader(absl::string_view pattern, size_t at, bool ignore_case)
      : pattern_(pattern), at_(at), ignore_case_(ignore_case) {}

  // Returns false for a class that git calls malformed; else at() is the position after its end.
  bool Read() {
    // A "]" in first position is a member.
    for (bool first = true; first || (at_ < pattern_.size() && pattern_[at_] != ']');
         first = false) {
      if (at_ >= pattern_.size()) return false;
      const absl::string_view rest = pattern_.substr(at_);
      const bool range = rest[0] == '-' && previous_ != 0 && rest.size() > 1 && rest[1] != ']';
      const bool named = rest[0] == '[' && rest.size() > 1 && rest[1] == ':';
      if (!(range ? AddRange() : named ? AddNamed() : AddByte())) return false;
    }
    return at_++ < pattern_.size();
  }

  size_t at() const { return at_; }
  const ByteSet& set() const { return set_; }

 private:
  void Add(int c) { set_[static_cast<size_t>(c) / 64] |= uint64_t{1} << (c % 64); }

  // Returns the byte at at_, or the one after a backslash, and moves past it. Negative at the end.
  int Take() {
    if (at_ < pattern_.size() && pattern_[at_] == '\\') ++at_;
    return at_ < pattern_.size() ? static_cast<uint8_t>(pattern_[at_++]) : -1;
  }

  bool AddByte() {
    previous_ = Take();
    if (previous_ < 0) return false;
    Add(previous_);
    return true;
  }

  bool AddRange() {
    ++at_;
    const int last = Take();
    if (last < 0) return false;
    for (int c = previous_; c <= last; ++c) {
      Add(c);
      if (ignore_case_ && IsUpper(static_cast<uint8_t>(c))) Add(c + 32);
    }
    previous_ = 0;
    return true;
  }

  bool AddNamed() {
    const size_t begin = at_ + 2;
    const size_t close = pattern_.find(']', begin);
    if (close == absl::string_view::npos) return false;
    if (close == begin || pattern_[close - 1] != ':') {
      // This is no name of a class: the bracket stands for itself.
      previous_ = '[';
      Add('[');
      ++at_;
      return true;
    }
    const absl::string_view name = pattern_.substr(begin, close - 1 - begin);
    const auto* known = std::find_if(std::begin(kNamedClasses), std::end(kNamedClasses),
                                     [name](const auto& entry) { return entry.first == name; });
    if (known == std::end(kNamedClasses)) return false;
    for (int c = 0; c < 256; ++c) {
      const uint8_t tested = static_cast<uint8_t>(c);
      const bool folded = ignore_case_ && name == "upper" && IsLower(tested);
      if (folded || known->second(tested)) Add(c);
    }
    previous_ = 0;
    at_ = close + 1;
    return true;
  }

  const absl::string_view pattern_;
  size_t at_;
  const bool ignore_case_;
  int previous_ = 0;  // first byte of a possible range; 0 for none
  ByteSet set_ = {};
};

// Adds the class at `at` and moves `at` past it. Returns false for a class that git calls
// malformed.
bool GitGlob::AddClass(absl::string_view pattern, size_t& at) {
  const bool negated =
      at + 1 < pattern.size() && (pattern[at + 1] == '!' || pattern[at + 1] == '^');
  ClassReader reader(pattern, at + (negated ? 2 : 1), ignore_case_);
  if (!reader.Read()) return false;
  ByteSet set = reader.set();
  if (negated) {
    for (uint64_t& word : set) word = ~word;
  }
  set['/' / 64] &= ~(uint64_t{1} << ('/' % 64));
  elements_.push_back({Kind::kClass, 0, static_cast<uint32_t>(classes_.size())});
  classes_.push_back(set);
  at = reader.at();
  return true;
}

bool GitGlob::ElementMatches(const Element& element, char c) const {
  const uint8_t byte = static_cast<uint8_t>(ignore_case_ ? FoldAscii(c) : c);
  switch (element.kind) {
    case Kind::kByte:
      return byte == element.byte;
    case Kind::kAnyByte:
      return byte != '/';
    case Kind::kClass:
      return (classes_[element.class_index][byte / 64] >> (byte % 64) & 1) != 0;
    default:
      return false;
  }
}

// Retries only the last "*" and the last "**" of the wildcards passed so far. This is enough: when
// the text between two wildcards matches as early as possible, the second wildcard keeps every
// choice that a later match would leave it. A "**" ends the retries of both before it, and "*"
// cannot grow over a slash.
bool GitGlob::Matches(absl::string_view text) const {
  if (malformed_) return false;
  constexpr size_t kNone = static_cast<size_t>(-1);
  size_t element = 0, at = 0;
  size_t star = kNone, star_end = 0;    // element after the last "*", and the end of its match
  size_t stars = kNone, stars_end = 0;  // the same for "**" and "**/"
  bool with_slash = false;              // it is a "**/"
  while (true) {
    bool failed = false;
    if (element == elements_.size()) {
      if (at == text.size()) return true;
      failed = true;
    } else if (elements_[element].kind == Kind::kStar) {
      star = ++element;
      star_end = at;
    } else if (elements_[element].kind >= Kind::kStarStar) {
      with_slash = elements_[element].kind == Kind::kDirectories;
      stars = ++element;
      stars_end = at;
      star = kNone;
    } else if (at < text.size() && ElementMatches(elements_[element], text[at])) {
      ++element;
      ++at;
    } else {
      failed = true;
    }
    if (!failed) continue;
    if (star != kNone && star_end < text.size() && text[star_end] != '/') {
      element = star;
      at = ++star_end;
      continue;
    }
    if (stars == kNone) return false;
    if (with_slash) {
      const size_t slash = text.find('/', stars_end);
      if (slash == absl::string_view::npos) return false;
      stars_end = slash;
    } else if (stars_end == text.size()) {
      return false;
    }
    star = kNone;
    element = stars;
    at = ++stars_end;
  }
}

}  // namespace gpuctl
