#include "trainer/jinja/lexer.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "trainer/jinja_values/characters.h"
#include "trainer/jinja_values/value.h"

namespace gpuctl::trainer::jinja {
namespace {

bool IsNumeral(char c) { return c >= '0' && c <= '9'; }

// Every kind of newline becomes "\n", and one at the end is dropped.
std::string Normalized(const std::string& source) {
  std::string text;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
    } else {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> Run() {
    while (at_ < source_.size()) ReadTextAndTag();
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  // Reads the text up to the next tag, and that tag.
  void ReadTextAndTag() {
    size_t open = at_;
    while (open + 1 < source_.size() &&
           !(source_[open] == '{' && std::strchr("{%#", source_[open + 1]) != nullptr &&
             source_[open + 1] != '\0')) {
      ++open;
    }
    if (open + 1 >= source_.size()) {
      AddText(std::string_view(source_).substr(at_));
      Advance(source_.size() - at_);
      return;
    }
    const char kind = source_[open + 1];
    const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
    std::string_view text = std::string_view(source_).substr(at_, open - at_);
    const bool has_sign = sign == '-' || sign == '+';
    if (sign == '-') {
      text = Strip(text, nullptr, Ends::kRight);
    } else if (!has_sign && kind != '{') {
      text = WithoutIndentation(text);
    }
    AddText(text);
    Advance(open + 2 + (has_sign ? 1 : 0) - at_);
    if (kind == '#') {
      SkipComment();
    } else {
      ReadTag(kind == '%');
    }
    line_starting_ = at_ > 0 && source_[at_ - 1] == '\n';
  }

  // lstrip_blocks: removes white space between the line's beginning and a block.
  std::string_view WithoutIndentation(std::string_view text) const {
    const size_t newline = text.rfind('\n');
    const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (begin == 0 && !line_starting_) return text;
    return Strip(text.substr(begin), nullptr, Ends::kBoth).empty() ? text.substr(0, begin) : text;
  }

  void SkipComment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) Fail("missing end of comment tag");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    Advance(end + 2 - at_);
    AfterTag(sign, /*is_block=*/true);
  }

  // The white space that a tag's end takes away: all behind "-", one newline behind a block.
  void AfterTag(char sign, bool is_block) {
    if (sign == '-') {
      const std::string_view rest = std::string_view(source_).substr(at_);
      Advance(rest.size() - Strip(rest, nullptr, Ends::kLeft).size());
    } else if (sign != '+' && is_block && at_ < source_.size() && source_[at_] == '\n') {
      Advance(1);
    }
  }

  void ReadTag(bool is_block) {
    Add(is_block ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, is_block ? "{%" : "{{");
    std::string open;  // brackets
    while (true) {
      SkipSpace();
      if (at_ >= source_.size()) Fail("a tag is not closed");
      if (open.empty() && EndTag(is_block)) break;
      ReadToken(&open);
    }
    if (is_block) RefuseRaw();
  }

  bool EndTag(bool is_block) {
    const char* end = is_block ? "%}" : "}}";
    const char c = source_[at_];
    const bool has_sign = c == '-' || (c == '+' && is_block);
    if (source_.compare(at_ + (has_sign ? 1 : 0), 2, end) != 0) return false;
    Add(is_block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, end);
    Advance(has_sign ? 3 : 2);
    AfterTag(has_sign ? c : '\0', is_block);
    return true;
  }

  void RefuseRaw() const {
    const size_t n = tokens_.size();
    if (n < 3 || tokens_[n - 2].text != "raw" || tokens_[n - 3].kind != TokenKind::kBlockBegin)
      return;
    Fail("{% raw %} is not supported");
  }

  void ReadToken(std::string* open) {
    const char c = source_[at_];
    if (BeginsName(CodePointAt(at_))) {
      ReadName();
    } else if (IsNumeral(c)) {
      ReadNumber();
    } else if (c == '"' || c == '\'') {
      ReadString(c);
    } else {
      ReadOperator(open);
    }
  }

  void ReadName() {
    size_t end = at_;
    while (end < source_.size() && BelongsToName(CodePointAt(end))) {
      end += CodePointBytes(source_[end]);
    }
    Add(TokenKind::kName, source_.substr(at_, end - at_));
    Advance(end - at_);
  }

  void ReadNumber() {
    size_t end = at_;
    const auto digits = [&] {
      for (; end < source_.size(); ++end) {
        const bool between = source_[end] == '_' && end + 1 < source_.size() &&
                             IsNumeral(source_[end + 1]) && IsNumeral(source_[end - 1]);
        if (!IsNumeral(source_[end]) && !between) break;
      }
    };
    bool is_float = false;
    digits();
    if (end + 1 < source_.size() && source_[end] == '.' && IsNumeral(source_[end + 1])) {
      is_float = true;
      ++end;
      digits();
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t digit = end + 1;
      if (digit < source_.size() && (source_[digit] == '+' || source_[digit] == '-')) ++digit;
      if (digit < source_.size() && IsNumeral(source_[digit])) {
        is_float = true;
        end = digit;
        digits();
      }
    }
    if (end < source_.size() && BelongsToName(CodePointAt(end))) {
      Fail("numbers that are not decimal, with the digits 0 to 9, are not supported");
    }
    std::string text = source_.substr(at_, end - at_);
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    if (!is_float && text.size() > 18) Fail("the number " + text + " is too large");
    Add(is_float ? TokenKind::kFloat : TokenKind::kInteger, text);
    Advance(end - at_);
  }

  void ReadString(char quote) {
    const int line = line_;
    std::string text;
    size_t i = at_ + 1;
    for (; i < source_.size() && source_[i] != quote; ++i) {
      if (source_[i] == '\\' && i + 1 < source_.size()) {
        i = ReadEscape(i + 1, &text);
      } else {
        text += source_[i];
      }
    }
    if (i >= source_.size()) Fail("a string is not closed");
    Advance(i + 1 - at_);
    tokens_.push_back({TokenKind::kString, text, line});
  }

  // Reads a Python escape whose letter is at `i`. Returns the place of its last character.
  size_t ReadEscape(size_t i, std::string* text) {
    static constexpr char kLetters[] = "\\'\"abfnrtv";
    static constexpr char kMeanings[] = "\\'\"\a\b\f\n\r\t\v";
    const char c = source_[i];
    if (c == '\n') return i;  // continues on the next line
    if (const char* letter = std::strchr(kLetters, c); letter != nullptr && c != '\0') {
      *text += kMeanings[letter - kLetters];
      return i;
    }
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (c >= '0' && c <= '7') return ReadCode(i, 3, 8, text);
    if (digits != 0) return ReadCode(i + 1, digits, 16, text);
    if (c == 'N') Fail("the escape \\N is not supported");
    if (static_cast<unsigned char>(c) >= 0x80) {
      // jinja2 writes such a character as an escape before it reads the escapes, so the backslash
      // before it is one of its own, and the character's number is left as text.
      const uint32_t code = CodePointAt(i);
      char number[16];
      std::snprintf(number, sizeof(number),
                    code <= 0xff     ? "\\x%02x"
                    : code <= 0xffff ? "\\u%04x"
                                     : "\\U%08x",
                    static_cast<unsigned>(code));
      *text += number;
      return i + CodePointBytes(c) - 1;
    }
    *text += '\\';
    *text += c;
    return i;
  }

  size_t ReadCode(size_t i, size_t digits, int base, std::string* text) {
    size_t end = i;
    uint32_t code = 0;
    while (end < source_.size() && end < i + digits) {
      const char c = source_[end];
      const int digit = IsNumeral(c)                         ? c - '0'
                        : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                             : 99;
      if (digit >= base) break;
      code = code * static_cast<uint32_t>(base) + static_cast<uint32_t>(digit);
      ++end;
    }
    const bool whole = base == 8 || end == i + digits;
    if (!whole || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      Fail("a string has a bad escape");
    }
    AppendCodePoint(code, text);
    return end - 1;
  }

  void ReadOperator(std::string* open) {
    static constexpr const char* kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                 "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                 ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const char* each : kOperators) {
      if (source_.compare(at_, std::strlen(each), each) != 0) continue;
      Balance(each[0], open);
      Add(TokenKind::kOperator, each);
      Advance(std::strlen(each));
      return;
    }
    Fail("unexpected character '" + source_.substr(at_, CodePointBytes(source_[at_])) + "'");
  }

  void Balance(char c, std::string* open) {
    static constexpr char kOpening[] = "([{";
    static constexpr char kClosing[] = ")]}";
    if (std::strchr(kOpening, c) != nullptr) open->push_back(c);
    const char* closing = std::strchr(kClosing, c);
    if (closing == nullptr) return;
    if (open->empty() || open->back() != kOpening[closing - kClosing]) {
      Fail(std::string("unexpected '") + c + "'");
    }
    open->pop_back();
  }

  void SkipSpace() {
    while (at_ < source_.size() && IsSpace(CodePointAt(at_))) Advance(CodePointBytes(source_[at_]));
  }

  uint32_t CodePointAt(size_t place) const { return ReadCodePoint(source_, &place); }

  void Advance(size_t bytes) {
    const auto begin = source_.begin() + static_cast<std::ptrdiff_t>(at_);
    line_ += static_cast<int>(std::count(begin, begin + static_cast<std::ptrdiff_t>(bytes), '\n'));
    at_ += bytes;
  }

  void AddText(std::string_view text) {
    if (!text.empty()) Add(TokenKind::kText, std::string(text));
  }

  void Add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  [[noreturn]] void Fail(const std::string& message) const {
    throw TemplateError("line " + std::to_string(line_) + ": " + message);
  }

  const std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // what was read last ended a line
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(const std::string& source) { return Lexer(Normalized(source)).Run(); }

}  // namespace gpuctl::trainer::jinja
