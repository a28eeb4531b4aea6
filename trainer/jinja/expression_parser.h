// Parses the expressions of a template, by Jinja's grammar.

#ifndef TRAINER_JINJA_EXPRESSION_PARSER_H_
#define TRAINER_JINJA_EXPRESSION_PARSER_H_

#include <string>
#include <vector>

#include "trainer/jinja/expressions.h"
#include "trainer/jinja/names.h"
#include "trainer/jinja/token_reader.h"

namespace gpuctl::trainer::jinja {

// All throw Error(kBadData) with the line.
class ExpressionParser {
 public:
  ExpressionParser(TokenReader& tokens, Names& names) : tokens_(tokens), names_(names) {}

  // Without `with_choice`, "if" ends the expression: for x in y if z.
  ExpressionPtr Parse(bool with_choice = true);
  // An expression, or several with commas, which are a tuple.
  ExpressionPtr ParseTuple(bool with_choice = true);
  // A filter's name with its arguments, behind "|". `of_print`: of all that {{ }} has.
  std::pair<std::string, ArgumentList> ParseFilter(bool of_print = false);
  ArgumentList ParseArguments();

 private:
  ExpressionPtr ParseOr();
  ExpressionPtr ParseAnd();
  ExpressionPtr ParseNot();
  ExpressionPtr ParseComparison();
  ExpressionPtr ParseSum();
  ExpressionPtr ParseConcatenation();
  ExpressionPtr ParseProduct();
  ExpressionPtr ParsePower();
  ExpressionPtr ParseUnary(bool with_filters);
  ExpressionPtr ParsePrimary();
  ExpressionPtr ParseParenthesis();
  ExpressionPtr ParseList();
  ExpressionPtr ParseDict();
  ExpressionPtr ParseNumber();
  ExpressionPtr ParseNameOrConstant();
  ExpressionPtr ParsePostfix(ExpressionPtr value);
  ExpressionPtr ParseFilters(ExpressionPtr value, bool of_print);
  std::string ExpectDottedName();
  ExpressionPtr ParseTest(ExpressionPtr value);
  ExpressionPtr ParseDot(ExpressionPtr value);
  ExpressionPtr ParseSubscript(ExpressionPtr value);
  ExpressionPtr ParseSlice(int line, ExpressionPtr value, ExpressionPtr first);

  TokenReader& tokens_;
  Names& names_;   // hears of the names that are read
  int depth_ = 0;  // of expressions within each other
};

}  // namespace gpuctl::trainer::jinja

#endif  // TRAINER_JINJA_EXPRESSION_PARSER_H_
