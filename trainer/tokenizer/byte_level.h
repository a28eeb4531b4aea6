// The alphabet of byte-level BPE: each byte is written as a printable character, so that a
// vocabulary can be JSON. GPT-2 invented it.

#ifndef TRAINER_TOKENIZER_BYTE_LEVEL_H_
#define TRAINER_TOKENIZER_BYTE_LEVEL_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace gpuctl::trainer {

// Returns the character of a byte: itself for the printable ones of Latin-1, and U+0100, U+0101, …
// for the 68 others in their order.
uint32_t CharacterOfByte(unsigned char byte);
// Returns the byte of a character, or -1.
int ByteOfCharacter(uint32_t character);
// Appends the characters of all bytes.
void AppendByteLevel(std::string_view bytes, std::string* text);

}  // namespace gpuctl::trainer

#endif  // TRAINER_TOKENIZER_BYTE_LEVEL_H_
