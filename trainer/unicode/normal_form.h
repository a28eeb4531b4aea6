// The normal forms of Unicode, by utf8proc.

#ifndef TRAINER_UNICODE_NORMAL_FORM_H_
#define TRAINER_UNICODE_NORMAL_FORM_H_

#include <string>

namespace gpuctl::trainer {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Returns the form of valid UTF-8. Code points that came after Unicode 9 stay as they are, as in
// Hugging Face's library.
std::string Normalize(const std::string& text, NormalForm form);

// Returns valid UTF-8 in lower case, each code point for itself.
std::string Lowercase(const std::string& text);

}  // namespace gpuctl::trainer

#endif  // TRAINER_UNICODE_NORMAL_FORM_H_
