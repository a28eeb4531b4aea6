// Python's view of characters. All texts are valid UTF-8.

#ifndef TRAINER_JINJA_VALUES_CHARACTERS_H_
#define TRAINER_JINJA_VALUES_CHARACTERS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/unicode/utf8.h"

namespace gpuctl::trainer::jinja {

std::vector<uint32_t> CodePoints(std::string_view text);
std::string Utf8(const std::vector<uint32_t>& code_points);

// Returns the number of code points.
int64_t CountCodePoints(std::string_view text);

// Returns what str.isspace() says.
bool IsSpace(uint32_t code_point);
// Returns what str.isprintable() says.
bool IsPrintable(uint32_t code_point);
bool IsAlpha(uint32_t code_point);
bool IsDigit(uint32_t code_point);
bool IsUpper(uint32_t code_point);
bool IsLower(uint32_t code_point);
// Return whether a name may begin with it, or have it: what str.isidentifier() says of "c" and
// "_c".
bool BeginsName(uint32_t code_point);
bool BelongsToName(uint32_t code_point);

// Returns str.lower(), str.upper(), str.title() or str.capitalize().
std::string Lower(std::string_view text);
std::string Upper(std::string_view text);
std::string Title(std::string_view text);
std::string Capitalize(std::string_view text);

// Removes characters at the ends: those of `characters`, or white space when that is null.
enum class Ends { kBoth, kLeft, kRight };
std::string_view Strip(std::string_view text, const std::string* characters, Ends ends);

}  // namespace gpuctl::trainer::jinja

#endif  // TRAINER_JINJA_VALUES_CHARACTERS_H_
