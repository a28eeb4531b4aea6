// Makes text safe for a terminal: nothing in it moves the cursor, begins a line, reverses the
// direction of writing or is invisible. Pure.
#ifndef GPUCTL_CLIENT_TERMINAL_SAFE_TEXT_H_
#define GPUCTL_CLIENT_TERMINAL_SAFE_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace gpuctl {

// One code point of a text in UTF-8, or one byte that is not UTF-8.
struct CodePoint {
  size_t bytes = 1;         // its length
  bool well_formed = true;  // false: one byte that is not UTF-8
  char32_t value = 0;       // the byte itself when it is not well formed
};
// Returns the first code point of `text`, which is not empty. Overlong forms, surrogates, truncated
// sequences and values above U+10FFFF are not well formed.
CodePoint FirstCodePoint(absl::string_view text);

// Returns the length of the printable ASCII at the beginning of `text`. Nearly all text is that.
size_t PlainLength(absl::string_view text);

// True for C0 controls (newline and tab too), DEL and C1 controls.
bool IsControl(char32_t code_point);
// True for code points that no terminal shows, and for those that change how the rest is shown or
// read: marks of direction, separators of lines and paragraphs, joiners and spaces of no width,
// tags, selectors of rare variants, invisible operators and fillers, annotation and noncharacters.
bool IsHidden(char32_t code_point);

// Returns `text` as one line of a terminal. Controls, hidden characters and bytes that are not
// UTF-8 become readable escapes: \n, \t, \x1b, \u202e, \U000e0041, \xff. A joiner (U+200C, U+200D)
// between two visible characters that are not ASCII stays: words of several scripts and many emoji
// are spelled with it, and it only changes how its neighbours join. Safe text is unchanged.
std::string MakeSafe(absl::string_view text);

// Returns `json` with every control and hidden character of a string written as \uXXXX. `json` is
// well-formed JSON in UTF-8; both texts have the same values.
std::string MakeJsonSafe(absl::string_view json);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TERMINAL_SAFE_TEXT_H_
