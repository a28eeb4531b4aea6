#include "trainer/jinja/expression_parser.h"

#include <cstdlib>
#include <map>

#include "trainer/base/text.h"
#include "trainer/jinja_values/filters.h"
#include "trainer/jinja_values/predicates.h"

namespace gpuctl::trainer::jinja {
namespace {

// Of expressions within each other, and of operators in one row: what is read is walked by
// recursion.
constexpr int kMostNestedExpressions = 200;
constexpr int kMostInRow = 1000;

class InRow {
 public:
  explicit InRow(const TokenReader& tokens) : tokens_(tokens) {}
  void Count() {
    if (++count_ > kMostInRow) tokens_.Fail("the expression is too long");
  }

 private:
  const TokenReader& tokens_;
  int count_ = 0;
};

}  // namespace

ExpressionPtr ExpressionParser::Parse(bool with_choice) {
  if (++depth_ > kMostNestedExpressions) tokens_.Fail("expressions are nested too deeply");
  ExpressionPtr value = ParseOr();
  for (InRow row(tokens_); with_choice && tokens_.IsName("if"); row.Count()) {
    const int line = tokens_.Take().line;
    ExpressionPtr condition = ParseOr();
    ExpressionPtr otherwise = tokens_.SkipName("else") ? Parse() : nullptr;
    value = Choice(line, std::move(condition), std::move(value), std::move(otherwise));
  }
  --depth_;
  return value;
}

ExpressionPtr ExpressionParser::ParseTuple(bool with_choice) {
  const int line = tokens_.line();
  ExpressionPtr first = Parse(with_choice);
  if (!tokens_.IsOperator(",")) return first;
  std::vector<ExpressionPtr> items;
  items.push_back(std::move(first));
  while (tokens_.SkipOperator(",")) {
    if (tokens_.Is(TokenKind::kVariableEnd) || tokens_.Is(TokenKind::kBlockEnd) ||
        tokens_.IsOperator(")")) {
      break;
    }
    items.push_back(Parse(with_choice));
  }
  return ListOf(line, std::move(items), /*is_tuple=*/true);
}

ExpressionPtr ExpressionParser::ParseOr() {
  ExpressionPtr left = ParseAnd();
  for (InRow row(tokens_); tokens_.IsName("or"); row.Count()) {
    const int line = tokens_.Take().line;
    left = EitherOf(line, /*is_or=*/true, std::move(left), ParseAnd());
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseAnd() {
  ExpressionPtr left = ParseNot();
  for (InRow row(tokens_); tokens_.IsName("and"); row.Count()) {
    const int line = tokens_.Take().line;
    left = EitherOf(line, /*is_or=*/false, std::move(left), ParseNot());
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseNot() {
  if (!tokens_.IsName("not")) return ParseComparison();
  if (++depth_ > kMostNestedExpressions) tokens_.Fail("expressions are nested too deeply");
  const int line = tokens_.Take().line;
  ExpressionPtr value = NotOf(line, ParseNot());
  --depth_;
  return value;
}

ExpressionPtr ExpressionParser::ParseComparison() {
  const int line = tokens_.line();
  ExpressionPtr first = ParseSum();
  std::vector<std::pair<std::string, ExpressionPtr>> others;
  while (true) {
    std::string symbol;
    for (const char* each : {"==", "!=", "<", "<=", ">", ">="}) {
      if (tokens_.IsOperator(each)) symbol = each;
    }
    if (!symbol.empty()) {
      tokens_.Take();
    } else if (tokens_.SkipName("in")) {
      symbol = "in";
    } else if (tokens_.IsName("not") && tokens_.next().text == "in" &&
               tokens_.next().kind == TokenKind::kName) {
      tokens_.Take();
      tokens_.Take();
      symbol = "not in";
    } else {
      break;
    }
    others.emplace_back(symbol, ParseSum());
  }
  return others.empty() ? std::move(first) : Comparison(line, std::move(first), std::move(others));
}

ExpressionPtr ExpressionParser::ParseSum() {
  ExpressionPtr left = ParseConcatenation();
  for (InRow row(tokens_); tokens_.IsOperator("+") || tokens_.IsOperator("-"); row.Count()) {
    const Token sign = tokens_.Take();
    left = ArithmeticOf(sign.line, sign.text == "+" ? Arithmetic::kAdd : Arithmetic::kSubtract,
                        std::move(left), ParseConcatenation());
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseConcatenation() {
  ExpressionPtr left = ParseProduct();
  for (InRow row(tokens_); tokens_.IsOperator("~"); row.Count()) {
    const int line = tokens_.Take().line;
    left = Concatenation(line, std::move(left), ParseProduct());
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseProduct() {
  static const auto* const kinds =
      new std::map<std::string, Arithmetic>{{"*", Arithmetic::kMultiply},
                                            {"/", Arithmetic::kDivide},
                                            {"//", Arithmetic::kFloorDivide},
                                            {"%", Arithmetic::kModulo}};
  ExpressionPtr left = ParsePower();
  for (InRow row(tokens_); tokens_.Is(TokenKind::kOperator); row.Count()) {
    const auto kind = kinds->find(tokens_.current().text);
    if (kind == kinds->end()) break;
    const int line = tokens_.Take().line;
    left = ArithmeticOf(line, kind->second, std::move(left), ParsePower());
  }
  return left;
}

ExpressionPtr ExpressionParser::ParsePower() {
  ExpressionPtr left = ParseUnary(/*with_filters=*/true);
  for (InRow row(tokens_); tokens_.IsOperator("**"); row.Count()) {
    const int line = tokens_.Take().line;
    left = ArithmeticOf(line, Arithmetic::kPower, std::move(left), ParseUnary(true));
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseUnary(bool with_filters) {
  const bool of_print = tokens_.IsBehind(TokenKind::kVariableBegin);
  ExpressionPtr value;
  if (tokens_.IsOperator("-") || tokens_.IsOperator("+")) {
    if (++depth_ > kMostNestedExpressions) tokens_.Fail("expressions are nested too deeply");
    const Token sign = tokens_.Take();
    value = ParseUnary(/*with_filters=*/false);
    value = SignedOf(sign.line, sign.text == "-", std::move(value));
    --depth_;
  } else {
    value = ParsePrimary();
  }
  value = ParsePostfix(std::move(value));
  return with_filters ? ParseFilters(std::move(value), of_print) : std::move(value);
}

ExpressionPtr ExpressionParser::ParsePrimary() {
  const int line = tokens_.line();
  if (tokens_.Is(TokenKind::kName)) return ParseNameOrConstant();
  if (tokens_.Is(TokenKind::kInteger) || tokens_.Is(TokenKind::kFloat)) return ParseNumber();
  if (tokens_.Is(TokenKind::kString)) {
    std::string text;
    while (tokens_.Is(TokenKind::kString)) text += tokens_.Take().text;
    return Literal(line, std::move(text));
  }
  if (tokens_.IsOperator("(")) return ParseParenthesis();
  if (tokens_.IsOperator("[")) return ParseList();
  if (tokens_.IsOperator("{")) return ParseDict();
  tokens_.FailExpected("a value");
}

ExpressionPtr ExpressionParser::ParseNameOrConstant() {
  const Token name = tokens_.Take();
  if (name.text == "true" || name.text == "True") return Literal(name.line, true);
  if (name.text == "false" || name.text == "False") return Literal(name.line, false);
  if (name.text == "none" || name.text == "None") return Literal(name.line, {});
  names_.Load(name.text);
  return NameOf(name.line, name.text);
}

ExpressionPtr ExpressionParser::ParseNumber() {
  const Token token = tokens_.Take();
  if (token.kind == TokenKind::kFloat) {
    return Literal(token.line, std::strtod(token.text.c_str(), nullptr));
  }
  return Literal(token.line, static_cast<int64_t>(std::strtoll(token.text.c_str(), nullptr, 10)));
}

ExpressionPtr ExpressionParser::ParseParenthesis() {
  const int line = tokens_.Take().line;
  if (tokens_.SkipOperator(")")) return ListOf(line, {}, /*is_tuple=*/true);
  ExpressionPtr value = ParseTuple();
  tokens_.ExpectOperator(")");
  return value;
}

ExpressionPtr ExpressionParser::ParseList() {
  const int line = tokens_.Take().line;
  std::vector<ExpressionPtr> items;
  while (!tokens_.SkipOperator("]")) {
    if (!items.empty()) tokens_.ExpectOperator(",");
    if (tokens_.SkipOperator("]")) break;
    items.push_back(Parse());
  }
  return ListOf(line, std::move(items), /*is_tuple=*/false);
}

ExpressionPtr ExpressionParser::ParseDict() {
  const int line = tokens_.Take().line;
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
  while (!tokens_.SkipOperator("}")) {
    if (!entries.empty()) tokens_.ExpectOperator(",");
    if (tokens_.SkipOperator("}")) break;
    ExpressionPtr key = Parse();
    tokens_.ExpectOperator(":");
    entries.emplace_back(std::move(key), Parse());
  }
  return DictOf(line, std::move(entries));
}

ExpressionPtr ExpressionParser::ParsePostfix(ExpressionPtr value) {
  for (InRow row(tokens_); true; row.Count()) {
    const int line = tokens_.line();
    if (tokens_.IsOperator(".")) {
      value = ParseDot(std::move(value));
    } else if (tokens_.IsOperator("[")) {
      value = ParseSubscript(std::move(value));
    } else if (tokens_.IsOperator("(")) {
      value = CallOf(line, std::move(value), ParseArguments());
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::ParseFilters(ExpressionPtr value, bool of_print) {
  for (InRow row(tokens_); true; row.Count()) {
    const int line = tokens_.line();
    if (tokens_.SkipOperator("|")) {
      auto [name, arguments] = ParseFilter(of_print);
      value = Filtered(line, std::move(name), std::move(value), std::move(arguments));
    } else if (tokens_.IsName("is")) {
      value = ParseTest(std::move(value));
    } else if (tokens_.IsOperator("(")) {
      value = CallOf(line, std::move(value), ParseArguments());
    } else {
      return value;
    }
  }
}

// Jinja's extensions may have filters and tests of such names.
std::string ExpressionParser::ExpectDottedName() {
  std::string name = tokens_.ExpectAnyName();
  while (tokens_.SkipOperator(".")) name += "." + tokens_.ExpectAnyName();
  return name;
}

std::pair<std::string, ArgumentList> ExpressionParser::ParseFilter(bool of_print) {
  const std::string name = ExpectDottedName();
  if (!IsFilter(name)) {
    tokens_.Fail("the filter '" + name + "' is not supported" + DidYouMean(name, FilterNames()));
  }
  ArgumentList arguments;
  if (tokens_.IsOperator("(")) arguments = ParseArguments();
  // Jinja's result is no plain text: it escapes what is added to it.
  if (name == "safe" && !(of_print && tokens_.Is(TokenKind::kVariableEnd))) {
    tokens_.Fail("the filter 'safe' is not supported but at the end of {{ }}");
  }
  return {name, std::move(arguments)};
}

ExpressionPtr ExpressionParser::ParseTest(ExpressionPtr value) {
  const int line = tokens_.Take().line;
  const bool negated = tokens_.SkipName("not");
  const std::string name = ExpectDottedName();
  if (!IsPredicate(name)) {
    tokens_.Fail("the test '" + name + "' is not supported" + DidYouMean(name, PredicateNames()));
  }
  ArgumentList arguments;
  if (tokens_.IsOperator("(")) {
    arguments = ParseArguments();
  } else if (tokens_.Is(TokenKind::kString) || tokens_.Is(TokenKind::kInteger) ||
             tokens_.Is(TokenKind::kFloat) || tokens_.IsOperator("[") || tokens_.IsOperator("{") ||
             (tokens_.Is(TokenKind::kName) && !tokens_.IsName("else") && !tokens_.IsName("or") &&
              !tokens_.IsName("and"))) {
    if (tokens_.IsName("is")) tokens_.Fail("tests cannot be chained with is");
    arguments.positional.push_back(ParsePostfix(ParsePrimary()));
  }
  ExpressionPtr tested = Tested(line, name, std::move(value), std::move(arguments));
  return negated ? NotOf(line, std::move(tested)) : std::move(tested);
}

ExpressionPtr ExpressionParser::ParseDot(ExpressionPtr value) {
  const int line = tokens_.Take().line;
  if (tokens_.Is(TokenKind::kInteger)) return ItemOf(line, std::move(value), ParseNumber());
  const std::string name = tokens_.ExpectAnyName();
  if (name.compare(0, 2, "__") == 0) tokens_.Fail("access to " + name + " is not supported");
  return AttributeOf(line, std::move(value), name);
}

// No key is the empty tuple, and several are one.
ExpressionPtr ExpressionParser::ParseSubscript(ExpressionPtr value) {
  const int line = tokens_.Take().line;
  std::vector<ExpressionPtr> keys;
  while (!tokens_.SkipOperator("]")) {
    if (!keys.empty()) tokens_.ExpectOperator(",");
    ExpressionPtr first = tokens_.IsOperator(":") ? nullptr : Parse();
    if (tokens_.IsOperator(":")) {
      if (keys.empty()) return ParseSlice(line, std::move(value), std::move(first));
      tokens_.Fail("slices among the keys of [] are not supported");
    }
    keys.push_back(std::move(first));
  }
  if (keys.size() == 1) return ItemOf(line, std::move(value), std::move(keys.front()));
  return ItemOf(line, std::move(value), ListOf(line, std::move(keys), /*is_tuple=*/true));
}

// Behind the first bound, which may be null.
ExpressionPtr ExpressionParser::ParseSlice(int line, ExpressionPtr value, ExpressionPtr first) {
  const auto at_end = [this] {
    return tokens_.IsOperator("]") || tokens_.IsOperator(":") || tokens_.IsOperator(",");
  };
  ExpressionPtr others[2];
  for (ExpressionPtr& bound : others) {
    if (tokens_.SkipOperator(":") && !at_end()) bound = Parse();
  }
  if (tokens_.IsOperator(",")) tokens_.Fail("slices among the keys of [] are not supported");
  tokens_.ExpectOperator("]");
  return SliceOf(line, std::move(value), std::move(first), std::move(others[0]),
                 std::move(others[1]));
}

ArgumentList ExpressionParser::ParseArguments() {
  ArgumentList arguments;
  tokens_.ExpectOperator("(");
  bool first = true;
  while (!tokens_.SkipOperator(")")) {
    if (!first) tokens_.ExpectOperator(",");
    if (tokens_.SkipOperator(")")) break;
    first = false;
    if (tokens_.IsOperator("*") || tokens_.IsOperator("**")) {
      tokens_.Fail("arguments with * are not supported");
    }
    if (tokens_.Is(TokenKind::kName) && tokens_.next().kind == TokenKind::kOperator &&
        tokens_.next().text == "=") {
      std::string name = tokens_.Take().text;
      tokens_.Take();
      arguments.named.emplace_back(std::move(name), Parse());
    } else {
      if (!arguments.named.empty()) tokens_.Fail("an argument without a name behind one with it");
      arguments.positional.push_back(Parse());
    }
  }
  return arguments;
}

}  // namespace gpuctl::trainer::jinja
