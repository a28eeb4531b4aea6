// Generates names, patterns and rule files that two programs are likely to read differently.
#ifndef GPUCTL_CLIENT_IGNORE_TEST_IGNORE_GENERATOR_H_
#define GPUCTL_CLIENT_IGNORE_TEST_IGNORE_GENERATOR_H_

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace gpuctl {

// Removes line ends: unlike a name, a pattern cannot hold one.
inline std::string WithoutLineEnds(std::string text) {
  text.erase(std::remove(text.begin(), text.end(), '\n'), text.end());
  return text;
}

// The same seed gives the same things. Not thread-safe.
class IgnoreGenerator {
 public:
  explicit IgnoreGenerator(unsigned seed) : random_(seed) {}

  int Below(int limit) { return std::uniform_int_distribution<int>(0, limit - 1)(random_); }
  bool Percent(int percent) { return Below(100) < percent; }
  const std::string& Pick(const std::vector<std::string>& from) {
    return from[static_cast<size_t>(Below(static_cast<int>(from.size())))];
  }

  std::string Name() {
    static const std::vector<std::string> kNames = {
        "a",     "b",     "ab",  "abc",        "foo",      "Foo",   "FOO",  "bar",  "foo.txt",
        "b.txt", "a.b",   "x-y", "é",          "\xff",     "É\xe9", " x",   "x ",   "a b",
        "a\nb",  "q\"q",  "[a]", "*",          "?",        "a*b",   "\\",   "a\\b", "!a",
        "#c",    "-",     "]",   "^",          "\ty",      ":a",    "~",    "a]",   "data",
        "deep",  "z9",    "a\r", "{a,b}",      "a\x0b",    "\x0b",  "\x0c", "\x7f", "_",
        "aaab",  "build", "BAR", "\xc3\xa9.x", "x\xf0\x9f"};
    return Percent(50) ? kNames[static_cast<size_t>(Below(14))] : Pick(kNames);
  }

  std::string Class() {
    static const std::vector<std::string> kClasses = {"[ab]",         "[!a]",
                                                      "[^a]",         "[]a]",
                                                      "[!]a]",        "[^]]",
                                                      "[a-c]",        "[A-F]",
                                                      "[c-a]",        "[a-]",
                                                      "[-a]",         "[a-c-e]",
                                                      "[[:alpha:]]",  "[[:upper:]]",
                                                      "[[:lower:]]",  "[[:digit:]x]",
                                                      "[^[:alnum:]]", "[[:space:]]",
                                                      "[[:punct:]]",  "[[:cntrl:]]",
                                                      "[[:graph:]]",  "[[:print:]]",
                                                      "[[:xdigit:]]", "[[:blank:]]",
                                                      "[[:foo:]]",    "[[:alpha:]",
                                                      "[[:alpha]",    "[[:]",
                                                      "[[::]]",       "[[:]a]",
                                                      "[a",           "[",
                                                      "[]",           "[!",
                                                      "[\\]]",        "[\\",
                                                      "[a\\-c]",      "[a-\\c]",
                                                      "[/]",          "[a/b]",
                                                      "[^/]",         "[--0]",
                                                      "[\xc3-\xff]",  "[\x80-\xff]",
                                                      "[^\xc3]",      "[[:alpha:]-z]",
                                                      "[!-~]",        "[\\a]",
                                                      "[[a]",         "[a[:digit:]",
                                                      "[,-.]",        "[A]",
                                                      "[^A]",         "[*?]"};
    return Pick(kClasses);
  }

  // Returns a path of the tree with wildcards for some of its parts, or parts of patterns in any
  // order.
  std::string Pattern(const std::vector<std::string>& paths) {
    std::string text = Percent(60) && !paths.empty() ? Wild(Pick(paths)) : Parts();
    if (Percent(20)) text = absl::StrCat("/", text);
    if (Percent(20)) text += "/";
    if (Percent(3)) text += "/";
    if (Percent(25)) text = absl::StrCat("!", text);
    if (Percent(6)) text += Pick({" ", "   ", "\\ ", "\\  ", " \\", "\t", "\r", "\\"});
    if (Percent(1)) text += std::string("\0x", 2);
    return text;
  }

  std::string RuleFile(const std::vector<std::string>& paths) {
    const std::string end = Percent(10) ? "\r\n" : "\n";
    std::string text = Percent(5) ? "\xef\xbb\xbf" : "";
    for (int lines = 1 + Below(7); lines > 0; --lines) {
      if (Percent(8))
        absl::StrAppend(&text, Pick({"", "# comment", "#", " ", "!", "/", "!/"}), end);
      absl::StrAppend(&text, WithoutLineEnds(Pattern(paths)), end);
    }
    if (Percent(20)) text.resize(text.size() - end.size());
    return text;
  }

 private:
  std::string Wild(const std::string& path) {
    std::vector<std::string> parts = absl::StrSplit(path, '/');
    // Drop some leading parts: the rest is relative to the rule file's directory.
    parts.erase(parts.begin(), parts.begin() + Below(static_cast<int>(parts.size())));
    for (std::string& part : parts) {
      if (Percent(25)) {
        part = Pick({"*", "**", "?", "***", "?*", "*?", "**\\"});
      } else if (Percent(40)) {
        part = WildName(part);
      }
    }
    if (Percent(20)) parts.insert(parts.begin() + Below(static_cast<int>(parts.size()) + 1), "**");
    return absl::StrJoin(parts, "/");
  }

  std::string WildName(const std::string& name) {
    std::string out;
    for (const char c : name) {
      // Classes disagree about characters that are not letters.
      const bool odd = !absl::ascii_isalnum(static_cast<unsigned char>(c));
      const int kind = odd && Percent(25) ? 6 : Below(12);
      if (kind == 0) {
        out += "*";
      } else if (kind == 1) {
        out += "?";
      } else if (kind == 2) {
        absl::StrAppend(&out, "\\", std::string(1, c));
      } else if (kind == 3) {
        absl::StrAppend(&out, "[", Pick({"", "x", "a-c", "!", "^"}), std::string(1, c), "]");
      } else if (kind == 4) {
        out += "**";
      } else if (kind == 5) {
        out += static_cast<char>(absl::ascii_toupper(static_cast<unsigned char>(c)));
      } else if (kind == 6 && (odd || Percent(40))) {
        static const std::vector<std::string> kClasses = {"alnum", "alpha", "blank", "cntrl",
                                                          "digit", "graph", "lower", "print",
                                                          "punct", "space", "upper", "xdigit"};
        absl::StrAppend(&out, "[", Pick({"", "", "^", "a"}), "[:", Pick(kClasses), ":]]");
      } else {
        out += c;
      }
    }
    if (absl::EndsWith(out, " ") && Percent(60)) out.insert(out.size() - 1, "\\");
    return Percent(10) ? absl::StrCat(Percent(50) ? out : "", "*", out) : out;
  }

  std::string Parts() {
    static const std::vector<std::string> kParts = {"*",   "**",   "***", "?",     "/",   "**/",
                                                    "/**", "/**/", "*/",  "/*",    "//",  "\\",
                                                    "\\*", "\\/",  "\\a", "**\\/", "a**", "**b"};
    std::string out;
    for (int parts = 1 + Below(5); parts > 0; --parts) {
      const int kind = Below(10);
      out += kind < 4 ? Name() : kind < 6 ? Class() : Pick(kParts);
    }
    return out;
  }

  std::mt19937 random_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_IGNORE_TEST_IGNORE_GENERATOR_H_
