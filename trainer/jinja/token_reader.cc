#include "trainer/jinja/token_reader.h"

#include "trainer/base/text.h"
#include "trainer/jinja_values/value.h"

namespace gpuctl::trainer::jinja {

Token TokenReader::Take() {
  const Token token = current();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenReader::IsOperator(const char* text) const {
  return Is(TokenKind::kOperator) && current().text == text;
}

bool TokenReader::IsName(const char* text) const {
  return Is(TokenKind::kName) && current().text == text;
}

bool TokenReader::SkipOperator(const char* text) {
  if (!IsOperator(text)) return false;
  Take();
  return true;
}

bool TokenReader::SkipName(const char* text) {
  if (!IsName(text)) return false;
  Take();
  return true;
}

void TokenReader::ExpectOperator(const char* text) {
  if (!SkipOperator(text)) FailExpected(std::string("'") + text + "'");
}

void TokenReader::ExpectName(const char* text) {
  if (!SkipName(text)) FailExpected(std::string("'") + text + "'");
}

std::string TokenReader::ExpectAnyName() {
  if (!Is(TokenKind::kName)) FailExpected("a name");
  return Take().text;
}

void TokenReader::Expect(TokenKind kind, const char* what) {
  if (!Is(kind)) FailExpected(what);
  Take();
}

void TokenReader::Fail(const std::string& message) const {
  throw TemplateError("line " + std::to_string(line()) + ": " + message);
}

void TokenReader::FailExpected(const std::string& what) const {
  const std::string found =
      Is(TokenKind::kEnd) ? "the end of the template" : "'" + Printable(current().text) + "'";
  Fail("expected " + what + ", found " + found);
}

}  // namespace gpuctl::trainer::jinja
