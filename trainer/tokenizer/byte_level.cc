#include "trainer/tokenizer/byte_level.h"

#include <array>

#include "trainer/unicode/utf8.h"

namespace gpuctl::trainer {
namespace {

constexpr uint32_t kFirstOther = 0x100;
constexpr uint32_t kOthers = 68;

struct Alphabet {
  std::array<uint32_t, 256> character_of;
  std::array<int, kFirstOther + kOthers> byte_of;
};

bool StandsForItself(uint32_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

const Alphabet& TheAlphabet() {
  static const Alphabet alphabet = [] {
    Alphabet made;
    made.byte_of.fill(-1);
    uint32_t other = kFirstOther;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t character = StandsForItself(byte) ? byte : other++;
      made.character_of[byte] = character;
      made.byte_of[character] = static_cast<int>(byte);
    }
    return made;
  }();
  return alphabet;
}

}  // namespace

uint32_t CharacterOfByte(unsigned char byte) { return TheAlphabet().character_of[byte]; }

int ByteOfCharacter(uint32_t character) {
  const auto& byte_of = TheAlphabet().byte_of;
  return character < byte_of.size() ? byte_of[character] : -1;
}

void AppendByteLevel(std::string_view bytes, std::string* text) {
  const auto& character_of = TheAlphabet().character_of;
  for (const char byte : bytes)
    AppendCodePoint(character_of[static_cast<unsigned char>(byte)], text);
}

}  // namespace gpuctl::trainer
