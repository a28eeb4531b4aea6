#include "trainer/unicode/oniguruma.h"

#include <array>
#include <cctype>
#include <cstring>
#include <map>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/text.h"
#include "trainer/unicode/utf8.h"
#include "trainer/unicode/versions.h"

namespace gpuctl::trainer {
namespace {

constexpr size_t kMaxNesting = 100;
constexpr int kMaxRepeats = 1000;
constexpr char kAnything[] = "[\\x{0}-\\x{10FFFF}]";

std::string Hex(uint32_t point) { return Format("\\x{%X}", point); }

std::string HexRange(uint32_t first, uint32_t last) {
  return first == last ? Hex(first) : Hex(first) + "-" + Hex(last);
}

// What both \w have: Alphabetic, marks, digits and connectors.
std::string CommonWordItems() {
  return CategoryItems("L") + CategoryItems("M") + CategoryItems("Nd") + CategoryItems("Nl") +
         CategoryItems("Pc") +
         "\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}";
}

// Oniguruma's \w. These six are digits and fractions of Latin-1.
std::string WordItems() { return CommonWordItems() + "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}"; }

// Scripts, with what they got since Unicode 14. PCRE2's \p{Han} is another set: Script_Extensions.
const std::map<std::string, std::string>& Scripts() {
  static const std::map<std::string, std::string> scripts = {
      {"Arabic", "\\x{897}\\x{10EC2}-\\x{10EC4}\\x{10EFC}-\\x{10EFF}"},
      {"Cyrillic", "\\x{1C89}\\x{1C8A}\\x{1E030}-\\x{1E06D}\\x{1E08F}"},
      {"Han", "\\x{2B739}\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}"},
      {"Hangul", ""},
      {"Hiragana", "\\x{1B132}"},
      {"Katakana", "\\x{1B155}"},
      {"Latin", "\\x{A7CB}-\\x{A7CD}\\x{A7DA}-\\x{A7DC}\\x{1DF25}-\\x{1DF2A}"},
      {"Thai", ""}};
  return scripts;
}

// What a class matches: the items of a PCRE2 class, and whole classes whose code points it has as
// well. A set like \S has no items that a class could add the differences to.
struct ClassParts {
  std::string items;
  std::vector<std::string> also;
};

class Translator {
 public:
  explicit Translator(const std::string& expression) : in_(expression) {}

  std::string Translate() {
    if (ValidUtf8Prefix(in_) != in_.size()) Refuse("no valid UTF-8");
    while (at_ < in_.size()) Next();
    if (!groups_.empty()) Refuse("a group has no end");
    return out_;
  }

 private:
  // A group that is open: where it and what is in it begin in out_, and whether case counts behind
  // it.
  struct Group {
    size_t start;
    size_t inside;
    bool ignores_case;
  };
  static constexpr size_t kNone = static_cast<size_t>(-1);

  [[noreturn]] void Refuse(const std::string& what) const {
    throw DataError("regular expression \"" + in_.substr(0, 200) + "\": " + what);
  }

  bool Has(const char* next) const { return in_.compare(at_, std::string(next).size(), next) == 0; }
  bool Take(const char* next) {
    if (!Has(next)) return false;
    at_ += std::string(next).size();
    return true;
  }
  char Peek() const { return at_ < in_.size() ? in_[at_] : '\0'; }

  // Adds something that a quantifier may follow.
  void Atom(const std::string& text) {
    atom_ = out_.size();
    repeated_ = false;
    previous_literal_ = 0;
    out_ += text;
  }

  void Next();
  void OpenGroup();
  void CloseGroup();
  void Inline(bool on);
  void Quantifier();
  bool Interval(std::string* text, bool* exact);
  void Literal(uint32_t point);
  void Escape();
  uint32_t Character(char kind);
  uint32_t HexDigits(size_t least, size_t most);
  bool Set(char kind, ClassParts* parts);
  void Property(bool negated, ClassParts* parts);
  void PosixClass(ClassParts* parts);
  std::string Class();
  void ClassItem(ClassParts* parts);
  void Inner(size_t depth, ClassParts* parts);
  std::string Join(const ClassParts& parts, bool negated) const;
  void ClassBody(size_t depth, bool* negated, ClassParts* parts);

  const std::string& in_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = kNone;
  bool repeated_ = false;
  bool ignores_case_ = false;
  uint32_t previous_literal_ = 0;  // while case is ignored
  std::vector<Group> groups_;
};

void Translator::Next() {
  const char next = Peek();
  if (std::strchr("()|^$*+?{", next) != nullptr) previous_literal_ = 0;
  switch (next) {
    case '\\':
      return Escape();
    case '[':
      return Atom(Class());
    case '(':
      return OpenGroup();
    case ')':
      return CloseGroup();
    case '*':
    case '+':
    case '?':
      return Quantifier();
    case '{': {
      const size_t before = at_;
      std::string text;
      bool exact;
      const bool is_interval = Interval(&text, &exact);
      at_ = before;
      if (is_interval) return Quantifier();
      return Literal(ReadCodePoint(in_, &at_));
    }
    case '|':
      atom_ = kNone;
      out_ += in_[at_++];
      return;
    case '^':
    case '$':
      atom_ = kNone;
      out_ += in_[at_++];
      return;
    case '.':
      ++at_;
      return Atom(".");
    default:
      return Literal(ReadCodePoint(in_, &at_));
  }
}

void Translator::OpenGroup() {
  if (groups_.size() == kMaxNesting) Refuse("groups are nested too deeply");
  const bool ignored = ignores_case_;
  if (Has("(?i)") || Has("(?-i)")) {
    // It lasts to the group's end, but takes the branches behind it along: PCRE2 sees another group
    // there unless it stands at the beginning.
    const size_t inside = groups_.empty() ? 0 : groups_.back().inside;
    if (out_.size() != inside)
      Refuse("(?i) inside a group is not supported, only at its beginning");
    Inline(Take("(?i)") || !Take("(?-i)"));
    return;
  }
  const size_t start = out_.size();
  bool found = false;
  for (const char* const opening : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"}) {
    if (found || !Take(opening)) continue;
    out_ += opening;
    found = true;
    if (std::string(opening) == "(?i:") ignores_case_ = true;
    if (std::string(opening) == "(?-i:") ignores_case_ = false;
  }
  if (!found) {
    if (Has("(?") || Has("(*")) Refuse("\"" + in_.substr(at_, 4) + "\" is not supported");
    ++at_;
    out_ += "(?:";  // captures have no use here
  }
  groups_.push_back({start, out_.size(), ignored});
  atom_ = kNone;
}

void Translator::Inline(bool on) {
  ignores_case_ = on;
  out_ += on ? "(?i)" : "(?-i)";
}

void Translator::CloseGroup() {
  ++at_;
  if (groups_.empty()) Refuse("\")\" without \"(\"");
  ignores_case_ = groups_.back().ignores_case;
  atom_ = groups_.back().start;
  groups_.pop_back();
  out_ += ')';
  repeated_ = false;
}

// Reads {n}, {n,}, {,m} or {n,m}.
bool Translator::Interval(std::string* text, bool* exact) {
  size_t end = at_ + 1;
  std::array<std::string, 2> numbers;
  size_t which = 0;
  for (; end < in_.size() && in_[end] != '}'; ++end) {
    if (in_[end] == ',' && which == 0) {
      which = 1;
    } else if (in_[end] >= '0' && in_[end] <= '9' && numbers[which].size() < 9) {
      numbers[which] += in_[end];
    } else {
      return false;
    }
  }
  if (end == in_.size() || (numbers[0].empty() && numbers[1].empty())) return false;
  *exact = which == 0;
  const int least = numbers[0].empty() ? 0 : std::stoi(numbers[0]);
  const int most = numbers[1].empty() ? least : std::stoi(numbers[1]);
  if (least > most || most > kMaxRepeats) Refuse("a number of repeats is out of range");
  *text = "{" + std::to_string(least);
  if (which == 1) *text += "," + numbers[1];
  *text += "}";
  at_ = end + 1;
  return true;
}

void Translator::Quantifier() {
  if (atom_ == kNone) Refuse("nothing to repeat before \"" + in_.substr(at_, 4) + "\"");
  const auto wrap = [this] {
    out_.insert(atom_, "(?:");
    out_ += ')';
  };
  if (repeated_) wrap();
  std::string text;
  bool exact = false;
  if (Peek() == '{') {
    Interval(&text, &exact);
    out_ += text;
    // Behind an interval "+" repeats the whole once more, and so does "?" behind {n}.
    if (Peek() == '?' && !exact) {
      ++at_;
      out_ += '?';
    }
  } else {
    out_ += in_[at_++];
    if (Peek() == '?' || Peek() == '+') out_ += in_[at_++];
  }
  repeated_ = true;
}

void Translator::Literal(uint32_t point) {
  std::string text;
  if (point < 0x80 && !std::isalnum(static_cast<int>(point))) {
    text = Hex(point);
  } else {
    AppendCodePoint(point, &text);
  }
  if (ignores_case_) {
    // Oniguruma also takes one character for two: the German sharp s for ss, ligatures.
    if (point >= 0x80) Refuse("characters other than ASCII under (?i) are not supported");
    const uint32_t lower = point >= 'A' && point <= 'Z' ? point + 32 : point;
    for (const char* const pair : {"ss", "ff", "fi", "fl", "st"}) {
      if (previous_literal_ == static_cast<uint32_t>(pair[0]) &&
          lower == static_cast<uint32_t>(pair[1])) {
        Refuse(std::string("\"") + pair + "\" under (?i) is not supported");
      }
    }
    Atom(text);
    previous_literal_ = lower;
  } else {
    Atom(text);
  }
}

uint32_t Translator::HexDigits(size_t least, size_t most) {
  uint32_t value = 0;
  size_t count = 0;
  for (; count < most && std::isxdigit(static_cast<unsigned char>(Peek())); ++count) {
    value = value * 16 + static_cast<uint32_t>(std::stoi(std::string(1, in_[at_++]), nullptr, 16));
  }
  if (count < least) Refuse("hexadecimal digits are missing");
  return value;
}

// Reads the rest of an escape that stands for one character, behind \ and `kind`.
uint32_t Translator::Character(char kind) {
  uint32_t point = 0;
  switch (kind) {
    case 't':
      return '\t';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case 'a':
      return '\a';
    case 'e':
      return 0x1b;
    case 'u':
      point = HexDigits(4, 4);
      break;
    case 'x':
      if (Take("{")) {
        point = HexDigits(1, 8);
        if (!Take("}")) Refuse("\\x{ has no end");
      } else {
        point = HexDigits(1, 2);
        if (point >= 0x80) Refuse("\\x of a byte is not supported");
      }
      break;
    default:
      if (std::isalnum(static_cast<unsigned char>(kind))) {
        Refuse(std::string("\\") + kind + " is not supported");
      }
      --at_;
      return ReadCodePoint(in_, &at_);
  }
  if (point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) Refuse("no such code point");
  return point;
}

// Reads the rest of an escape that stands for a set of characters. Returns false for others.
bool Translator::Set(char kind, ClassParts* parts) {
  std::string items;
  switch (kind) {
    case 's':
    case 'S':
      items = SpaceItems();
      break;
    case 'd':
    case 'D':
      items = CategoryItems("Nd");
      break;
    case 'w':
    case 'W':
      items = WordItems();
      break;
    case 'h':
    case 'H':
      items = "0-9A-Fa-f";
      break;
    case 'p':
    case 'P':
      Property(kind == 'P', parts);
      return true;
    default:
      return false;
  }
  if (kind >= 'a') {
    parts->items += items;
  } else {
    parts->also.push_back("[^" + items + "]");
  }
  return true;
}

void Translator::Property(bool negated, ClassParts* parts) {
  const size_t end = in_.find('}', at_);
  if (!Take("{") || end == std::string::npos) Refuse("\\p without {NAME}");
  if (Take("^")) negated = !negated;
  const std::string name = in_.substr(at_, end - at_);
  at_ = end + 1;
  std::string items;
  if (const auto script = Scripts().find(name); script != Scripts().end()) {
    items = "\\p{sc:" + name + "}" + script->second;
  } else {
    items = CategoryItems(name);
    if (items.empty()) Refuse("\\p{" + name.substr(0, 40) + "} is not supported");
  }
  if (negated) {
    parts->also.push_back("[^" + items + "]");
  } else {
    parts->items += items;
  }
}

void Translator::Escape() {
  ++at_;
  if (at_ == in_.size()) Refuse("ends with \\");
  const char kind = in_[at_++];
  ClassParts parts;
  if (Set(kind, &parts)) {
    previous_literal_ = 0;
    return Atom(Join(parts, false));
  }
  const std::string word = "[" + WordItems() + "]";
  switch (kind) {
    case 'A':
    case 'z':
    case 'Z':
      atom_ = kNone;
      out_ += std::string("\\") + kind;
      return;
    case 'b':
      return Atom("(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))");
    case 'B':
      return Atom("(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))");
    default:
      return Literal(Character(kind));
  }
}

std::string Translator::Join(const ClassParts& parts, bool negated) const {
  if (parts.items.empty() && parts.also.empty()) Refuse("a class is empty");
  if (parts.also.empty()) return (negated ? "[^" : "[") + parts.items + "]";
  std::string branches;
  for (const std::string& other : parts.also) branches += (branches.empty() ? "" : "|") + other;
  if (!negated) {
    return parts.items.empty() && parts.also.size() == 1
               ? branches
               : "(?:" + branches + (parts.items.empty() ? "" : "|[" + parts.items + "]") + ")";
  }
  return "(?:(?!" + branches + ")" +
         (parts.items.empty() ? std::string(kAnything) : "[^" + parts.items + "]") + ")";
}

std::string Translator::Class() {
  bool negated;
  ClassParts parts;
  ClassBody(0, &negated, &parts);
  return Join(parts, negated);
}

void Translator::ClassBody(size_t depth, bool* negated, ClassParts* parts) {
  if (depth > kMaxNesting) Refuse("classes are nested too deeply");
  ++at_;  // [
  *negated = Take("^");
  if (Take("]")) {
    if (in_.find(']', at_) == std::string::npos) Refuse("a class is empty");
    parts->items += Hex(']');
  }
  while (!Take("]")) {
    if (at_ >= in_.size()) Refuse("a class has no end");
    if (Has("&&")) Refuse("&& in a class is not supported");
    if (Has("[:")) {
      PosixClass(parts);
    } else if (Peek() == '[') {
      Inner(depth, parts);
    } else {
      ClassItem(parts);
    }
  }
}

// A class within a class adds its code points.
void Translator::Inner(size_t depth, ClassParts* parts) {
  bool negated;
  ClassParts inner;
  ClassBody(depth + 1, &negated, &inner);
  if (negated) {
    parts->also.push_back(Join(inner, true));
    return;
  }
  if (inner.items.empty() && inner.also.empty()) Refuse("a class is empty");
  parts->items += inner.items;
  parts->also.insert(parts->also.end(), inner.also.begin(), inner.also.end());
}

void Translator::PosixClass(ClassParts* parts) {
  const size_t end = in_.find(":]", at_);
  const std::string name = end == std::string::npos ? "" : in_.substr(at_ + 2, end - at_ - 2);
  if (name == "space") {
    parts->items += SpaceItems();
  } else if (name == "digit") {
    parts->items += CategoryItems("Nd");
  } else if (name == "punct") {
    parts->items += CategoryItems("P") + CategoryItems("S");
  } else if (name == "word") {
    parts->items += WordItems();
  } else {
    Refuse("[:" + name.substr(0, 40) + ":] is not supported");
  }
  at_ = end + 2;
}

// Reads one character, range or set of a class.
void Translator::ClassItem(ClassParts* parts) {
  const auto character = [&](uint32_t* point) {
    if (!Take("\\")) {
      *point = ReadCodePoint(in_, &at_);
      return true;
    }
    if (at_ == in_.size()) Refuse("ends with \\");
    const char kind = in_[at_++];
    if (Set(kind, parts)) return false;
    *point = kind == 'b' ? '\b' : Character(kind);
    return true;
  };
  uint32_t first;
  if (!character(&first)) return;
  uint32_t last = first;
  if (Peek() == '-' && at_ + 1 < in_.size() && in_[at_ + 1] != ']' && first != '-') {
    ++at_;
    if (Peek() == '[' || !character(&last)) Refuse("a range in a class ends with no character");
    if (last < first) Refuse("a range in a class is empty");
  }
  if (ignores_case_ && last >= 0x80) {
    Refuse("characters other than ASCII under (?i) are not supported");
  }
  parts->items += HexRange(first, last);
}

}  // namespace

std::string TranslateOniguruma(const std::string& expression) {
  return Translator(expression).Translate();
}

std::string CategoryItems(const std::string& category) {
  static const std::string known =
      " L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp Cc ";
  if (category.empty() || known.find(" " + category + " ") == std::string::npos) return "";
  std::string items = "\\p{" + category + "}";
  for (const AssignedRange& range : AssignedSince14()) {
    if (std::string(range.category).compare(0, category.size(), category) == 0) {
      items += HexRange(range.first, range.last);
    }
  }
  return items;
}

std::string SpaceItems() {
  return "\\t-\\r\\x20\\x85\\xA0\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}"
         "\\x{3000}";
}

std::string RustWordItems() { return CommonWordItems() + "\\x{200C}\\x{200D}"; }

}  // namespace gpuctl::trainer
