// Walks over the tokens of a template.

#ifndef TRAINER_JINJA_TOKEN_READER_H_
#define TRAINER_JINJA_TOKEN_READER_H_

#include <string>
#include <utility>
#include <vector>

#include "trainer/jinja/lexer.h"

namespace gpuctl::trainer::jinja {

class TokenReader {
 public:
  explicit TokenReader(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  int line() const { return current().line; }

  Token Take();
  bool Is(TokenKind kind) const { return current().kind == kind; }
  // True directly behind a token of that kind.
  bool IsBehind(TokenKind kind) const { return at_ > 0 && tokens_[at_ - 1].kind == kind; }
  bool IsOperator(const char* text) const;
  bool IsName(const char* text) const;
  // Takes the token if it is that one.
  bool SkipOperator(const char* text);
  bool SkipName(const char* text);
  // These throw if the token is another one.
  void ExpectOperator(const char* text);
  void ExpectName(const char* text);
  std::string ExpectAnyName();
  void Expect(TokenKind kind, const char* what);

  [[noreturn]] void Fail(const std::string& message) const;
  [[noreturn]] void FailExpected(const std::string& what) const;

 private:
  const std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace gpuctl::trainer::jinja

#endif  // TRAINER_JINJA_TOKEN_READER_H_
