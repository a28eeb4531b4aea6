#include "trainer/unicode/utf8.h"

#include <cstring>

namespace gpuctl::trainer {
namespace {

// Returns how many bytes the second byte of a code point allows: the first one narrows its range,
// so that there are no long forms, no surrogates and nothing above U+10FFFF.
bool IsSecondByte(unsigned char first, unsigned char second) {
  if (first == 0xe0) return second >= 0xa0 && second <= 0xbf;
  if (first == 0xed) return second >= 0x80 && second <= 0x9f;
  if (first == 0xf0) return second >= 0x90 && second <= 0xbf;
  if (first == 0xf4) return second >= 0x80 && second <= 0x8f;
  return second >= 0x80 && second <= 0xbf;
}

// Looks at the code point at `at`. Returns how many bytes of it are there and valid; `*whole` says
// whether that is all of it. 0 when no code point begins so.
size_t Look(std::string_view text, size_t at, bool* whole) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  *whole = true;
  if (first < 0x80) return 1;
  *whole = false;
  if (first < 0xc2 || first > 0xf4) return 0;
  const size_t bytes = CodePointBytes(text[at]);
  size_t have = 1;
  while (have < bytes && at + have < text.size()) {
    const unsigned char next = byte(at + have);
    if (have == 1 ? !IsSecondByte(first, next) : (next & 0xc0) != 0x80) return have;
    ++have;
  }
  *whole = have == bytes;
  return have;
}

}  // namespace

size_t ValidUtf8Prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t eight;
    while (text.size() - at >= sizeof(eight)) {
      std::memcpy(&eight, text.data() + at, sizeof(eight));
      if ((eight & 0x8080808080808080) != 0) break;
      at += sizeof(eight);
    }
    if (at == text.size()) break;
    bool whole;
    const size_t bytes = Look(text, at, &whole);
    if (!whole) break;
    at += bytes;
  }
  return at;
}

std::string RepairUtf8(std::string_view text) {
  std::string repaired;
  for (;;) {
    const size_t valid = ValidUtf8Prefix(text);
    repaired.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) return repaired;
    bool whole;
    const size_t bytes = Look(text, 0, &whole);
    repaired += "\xef\xbf\xbd";
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
}

size_t UnfinishedUtf8(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const size_t at = text.size() - back;
    if ((static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) continue;
    bool whole;
    return Look(text, at, &whole) == back && !whole ? back : 0;
  }
  return 0;
}

void AppendCodePoint(uint32_t point, std::string* text) {
  const auto add = [&](uint32_t byte) { text->push_back(static_cast<char>(byte)); };
  if (point < 0x80) {
    add(point);
  } else if (point < 0x800) {
    add(0xc0 | point >> 6);
    add(0x80 | (point & 0x3f));
  } else if (point < 0x10000) {
    add(0xe0 | point >> 12);
    add(0x80 | (point >> 6 & 0x3f));
    add(0x80 | (point & 0x3f));
  } else {
    add(0xf0 | point >> 18);
    add(0x80 | (point >> 12 & 0x3f));
    add(0x80 | (point >> 6 & 0x3f));
    add(0x80 | (point & 0x3f));
  }
}

bool IsSpace(uint32_t point) {
  return (point >= 9 && point <= 13) || point == ' ' || point == 0x85 || point == 0xa0 ||
         point == 0x1680 || (point >= 0x2000 && point <= 0x200a) || point == 0x2028 ||
         point == 0x2029 || point == 0x202f || point == 0x205f || point == 0x3000;
}

}  // namespace gpuctl::trainer
