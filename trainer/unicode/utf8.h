// UTF-8: reading and writing code points, and the code points that versions of Unicode treat
// differently.

#ifndef TRAINER_UNICODE_UTF8_H_
#define TRAINER_UNICODE_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gpuctl::trainer {

// Returns the length of the longest valid beginning of `text`.
size_t ValidUtf8Prefix(std::string_view text);
// Returns `text` with U+FFFD for each longest piece that cannot be part of valid UTF-8, as the
// Unicode standard recommends (section 3.9) and as Rust's from_utf8_lossy does.
std::string RepairUtf8(std::string_view text);
// Returns how many bytes at the end of `text` may be the beginning of a code point that is not
// whole yet: 0 to 3.
size_t UnfinishedUtf8(std::string_view text);

// Returns the length of the code point that begins with `first`. The text must be valid.
inline size_t CodePointBytes(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

// Reads the code point at `*at` and moves `*at` behind it. The text must be valid, and not at its
// end.
inline uint32_t ReadCodePoint(std::string_view text, size_t* at) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(text[*at + i]) & 0xff; };
  const size_t bytes = CodePointBytes(text[*at]);
  uint32_t point = byte(0);
  if (bytes == 2) point = (point & 0x1f) << 6 | (byte(1) & 0x3f);
  if (bytes == 3) point = (point & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
  if (bytes == 4) {
    point =
        (point & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
  }
  *at += bytes;
  return point;
}

void AppendCodePoint(uint32_t point, std::string* text);

// Returns whether Unicode calls it White_Space.
bool IsSpace(uint32_t point);

}  // namespace gpuctl::trainer

#endif  // TRAINER_UNICODE_UTF8_H_
