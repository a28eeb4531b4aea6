// The tokens of a Jinja template.
//
// The options are those of transformers: trim_blocks and lstrip_blocks, one newline at the end of
// the template is dropped. See "Whitespace Control" in Jinja's documentation for designers of
// templates.

#ifndef TRAINER_JINJA_LEXER_H_
#define TRAINER_JINJA_LEXER_H_

#include <string>
#include <vector>

namespace gpuctl::trainer::jinja {

enum class TokenKind {
  kText,           // outside of all tags
  kBlockBegin,     // {%
  kBlockEnd,       // %}
  kVariableBegin,  // {{
  kVariableEnd,    // }}
  kName,
  kString,  // `text` is its value
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  std::string text;
  int line;  // from 1
};

// Returns the tokens; the last is kEnd. Throws Error(kBadData) with the line.
std::vector<Token> Tokenize(const std::string& source);

}  // namespace gpuctl::trainer::jinja

#endif  // TRAINER_JINJA_LEXER_H_
