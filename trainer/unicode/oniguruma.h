// Translates regular expressions of tokenizer.json, which are written for Oniguruma (Ruby's
// syntax), into PCRE2's. The two differ in more than one silent way: what \s, \w and \b match, the
// version of Unicode, a possessive {n,m}+, a lazy {n}?, scripts, (?i) inside a group. An expression
// that cannot be given exactly is refused.
//
// Source: Oniguruma's doc/RE, and doc/SYNTAX.md; pcre2pattern(3).

#ifndef TRAINER_UNICODE_ONIGURUMA_H_
#define TRAINER_UNICODE_ONIGURUMA_H_

#include <string>

namespace gpuctl::trainer {

// Returns the PCRE2 expression, for the options UTF, UCP and MULTILINE. Throws Error(kBadData) that
// says what is not supported, or wrong.
std::string TranslateOniguruma(const std::string& expression);

// Returns the inside of a PCRE2 class with the code points of one general category ("Lu") or of
// all that begin with a letter ("L"), as Unicode 16 has them.
std::string CategoryItems(const std::string& category);
// Returns the same for white space.
std::string SpaceItems();
// Returns the same for what \w is in regular expressions of Rust, which parts of Hugging Face's
// library use.
std::string RustWordItems();

}  // namespace gpuctl::trainer

#endif  // TRAINER_UNICODE_ONIGURUMA_H_
