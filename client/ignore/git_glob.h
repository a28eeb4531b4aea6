// A glob pattern that matches paths as git does: "*" and "?" stay within a name, "**/", "/**" and
// "/**/" cross directories, "[…]" is a class. Works on bytes, not characters. Reads no files.
#ifndef GPUCTL_CLIENT_IGNORE_GIT_GLOB_H_
#define GPUCTL_CLIENT_IGNORE_GIT_GLOB_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace gpuctl {

// Returns `c` in lower case. Case is ignored as git does it: only ASCII letters fold; in the
// pattern neither an escaped letter nor one in a class folds (but a range does).
inline char FoldAscii(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
// True when `a` and `b` have the same bytes; `ignore_case` ignores the case of ASCII letters.
bool EqualBytes(absl::string_view a, absl::string_view b, bool ignore_case);
// Returns the position of the first `*`, `?`, `[` or `\` in `pattern`; its size if there is none.
size_t LiteralPrefix(absl::string_view pattern);

class GitGlob {
 public:
  GitGlob() = default;
  // Accepts every byte sequence as a pattern. A pattern that git calls malformed (a class without
  // an end or with an unknown name, a single backslash at the end) matches nothing.
  GitGlob(absl::string_view pattern, bool ignore_case);

  // True when all of `text` matches. Takes time in proportion to the product of both lengths at
  // most.
  bool Matches(absl::string_view text) const;

 private:
  enum class Kind : uint8_t {
    kByte,         // this byte
    kAnyByte,      // "?": one byte, no slash
    kClass,        // "[…]": one byte of a set, no slash
    kStar,         // any bytes but a slash
    kStarStar,     // any bytes
    kDirectories,  // "**/": nothing, or any bytes and a slash after them
  };
  struct Element {
    Kind kind;
    uint8_t byte = 0;          // kByte
    uint32_t class_index = 0;  // kClass
  };
  using ByteSet = std::array<uint64_t, 4>;
  class ClassReader;

  size_t AddStars(absl::string_view pattern, size_t at);
  bool AddClass(absl::string_view pattern, size_t& at);
  bool ElementMatches(const Element& element, char c) const;

  std::vector<Element> elements_;
  std::vector<ByteSet> classes_;
  bool ignore_case_ = false;
  bool malformed_ = false;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_IGNORE_GIT_GLOB_H_
