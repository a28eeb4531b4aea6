#include "trainer/jinja/parser.h"

#include <set>
#include <utility>

#include "trainer/jinja/expression_parser.h"
#include "trainer/jinja/statements.h"
#include "trainer/jinja/token_reader.h"

namespace gpuctl::trainer::jinja {
namespace {

constexpr int kMostNestedStatements = 100;  // of statements within each other

class Parser {
 public:
  explicit Parser(const std::string& source) : tokens_(Tokenize(source)), expressions_(tokens_) {}

  Statements ParseTemplate() {
    Statements statements = ParseUntil({});
    if (!tokens_.Is(TokenKind::kEnd)) tokens_.FailExpected("a statement");
    return statements;
  }

 private:
  using Ends = std::set<std::string>;

  // Parses up to a block with one of these names, whose name is the current token then, or to the
  // template's end.
  Statements ParseUntil(const Ends& ends) {
    if (++depth_ > kMostNestedStatements) tokens_.Fail("statements are nested too deeply");
    Statements statements;
    while (!tokens_.Is(TokenKind::kEnd)) {
      const Token token = tokens_.Take();
      if (token.kind == TokenKind::kText) {
        statements.push_back(TextStatement(token.line, token.text));
      } else if (token.kind == TokenKind::kVariableBegin) {
        statements.push_back(PrintStatement(token.line, expressions_.ParseTuple()));
        tokens_.Expect(TokenKind::kVariableEnd, "the end of the expression");
      } else if (ends.count(tokens_.current().text) > 0) {
        --depth_;
        return statements;
      } else {
        statements.push_back(ParseBlock());
      }
    }
    if (!ends.empty()) tokens_.FailExpected("{% " + *ends.rbegin() + " %}");
    --depth_;
    return statements;
  }

  // Parses a body up to {% end %}.
  Statements ParseBody(const std::string& end) {
    EndBlock();
    Statements body = ParseUntil({end});
    tokens_.ExpectName(end.c_str());
    EndBlock();
    return body;
  }

  void EndBlock() { tokens_.Expect(TokenKind::kBlockEnd, "the end of the block"); }

  StatementPtr ParseBlock() {
    const int line = tokens_.line();
    const std::string name = tokens_.ExpectAnyName();
    if (name == "if") return ParseIf(line);
    if (name == "for") return ParseFor(line);
    if (name == "set") return ParseSet(line);
    if (name == "macro") return ParseMacro(line);
    if (name == "call") return ParseCall(line);
    if (name == "with") return ParseWith(line);
    if (name == "filter") {
      Filters filters = ParseFilters();
      return FilterStatement(line, std::move(filters), ParseBody("endfilter"));
    }
    if (name == "generation") return GenerationStatement(line, ParseBody("endgeneration"));
    if (name == "break" || name == "continue") {
      if (loops_ == 0) tokens_.Fail(name + " outside of a loop");
      EndBlock();
      return FlowStatement(line, name == "break" ? Flow::kBreak : Flow::kContinue);
    }
    if (name.compare(0, 3, "end") == 0 || name == "else" || name == "elif") {
      tokens_.Fail("{% " + name + " %} without its beginning");
    }
    tokens_.Fail("the statement '" + name + "' is not supported");
  }

  StatementPtr ParseIf(int line) {
    std::vector<Branch> branches;
    branches.push_back(ParseBranch());
    while (tokens_.SkipName("elif")) branches.push_back(ParseBranch());
    if (tokens_.SkipName("else")) {
      EndBlock();
      branches.push_back({nullptr, ParseUntil({"endif"})});
    }
    tokens_.ExpectName("endif");
    EndBlock();
    return IfStatement(line, std::move(branches));
  }

  Branch ParseBranch() {
    ExpressionPtr condition = expressions_.ParseTuple(/*with_choice=*/false);
    EndBlock();
    return {std::move(condition), ParseUntil({"elif", "else", "endif"})};
  }

  StatementPtr ParseFor(int line) {
    Loop loop;
    loop.target = ParseTarget();
    tokens_.ExpectName("in");
    loop.items = expressions_.ParseTuple(/*with_choice=*/false);
    if (tokens_.SkipName("if")) loop.condition = expressions_.Parse();
    loop.recursive = tokens_.SkipName("recursive");
    EndBlock();
    ++loops_;
    loop.body = ParseUntil({"else", "endfor"});
    --loops_;
    if (tokens_.SkipName("else")) {
      EndBlock();
      loop.otherwise = ParseUntil({"endfor"});
    }
    tokens_.ExpectName("endfor");
    EndBlock();
    return ForStatement(line, std::move(loop));
  }

  StatementPtr ParseSet(int line) {
    Target target = ParseTarget(/*may_be_attribute=*/true);
    if (tokens_.SkipOperator("=")) {
      ExpressionPtr value = expressions_.ParseTuple();
      EndBlock();
      return SetStatement(line, std::move(target), std::move(value));
    }
    Filters filters;
    if (tokens_.SkipOperator("|")) filters = ParseFilters();
    return SetBlockStatement(line, std::move(target), std::move(filters), OutsideOfLoops("endset"));
  }

  StatementPtr ParseMacro(int line) {
    std::string name = tokens_.ExpectAnyName();
    std::vector<Parameter> parameters = ParseParameters();
    return MacroStatement(line, std::move(name), std::move(parameters), OutsideOfLoops("endmacro"));
  }

  StatementPtr ParseCall(int line) {
    std::vector<Parameter> parameters;
    if (tokens_.IsOperator("(")) parameters = ParseParameters();
    ExpressionPtr function = NameOf(tokens_.line(), tokens_.ExpectAnyName());
    ArgumentList arguments = expressions_.ParseArguments();
    return CallStatement(line, std::move(parameters), std::move(function), std::move(arguments),
                         OutsideOfLoops("endcall"));
  }

  StatementPtr ParseWith(int line) {
    std::vector<std::pair<Target, ExpressionPtr>> bindings;
    while (!tokens_.Is(TokenKind::kBlockEnd)) {
      if (!bindings.empty()) tokens_.ExpectOperator(",");
      Target target = ParseOneTarget(/*may_be_attribute=*/false);
      tokens_.ExpectOperator("=");
      bindings.emplace_back(std::move(target), expressions_.Parse());
    }
    return WithStatement(line, std::move(bindings), ParseBody("endwith"));
  }

  // Parses a body that is rendered by itself, so that it cannot leave a loop around it.
  Statements OutsideOfLoops(const std::string& end) {
    const int loops = std::exchange(loops_, 0);
    Statements body = ParseBody(end);
    loops_ = loops;
    return body;
  }

  Filters ParseFilters() {
    Filters filters;
    do {
      filters.each.push_back(expressions_.ParseFilter());
    } while (tokens_.SkipOperator("|"));
    return filters;
  }

  std::vector<Parameter> ParseParameters() {
    std::vector<Parameter> parameters;
    tokens_.ExpectOperator("(");
    while (!tokens_.SkipOperator(")")) {
      if (!parameters.empty()) tokens_.ExpectOperator(",");
      Parameter parameter;
      parameter.name = tokens_.ExpectAnyName();
      if (tokens_.SkipOperator("=")) parameter.otherwise = expressions_.Parse();
      parameters.push_back(std::move(parameter));
    }
    return parameters;
  }

  Target ParseTarget(bool may_be_attribute = false) {
    Target first = ParseOneTarget(may_be_attribute);
    if (!tokens_.IsOperator(",")) return first;
    Target tuple;
    tuple.parts.push_back(std::move(first));
    while (tokens_.SkipOperator(",")) {
      if (!tokens_.Is(TokenKind::kName) && !tokens_.IsOperator("(")) break;
      tuple.parts.push_back(ParseOneTarget(may_be_attribute));
    }
    return tuple;
  }

  Target ParseOneTarget(bool may_be_attribute) {
    if (tokens_.SkipOperator("(")) {
      if (++depth_ > kMostNestedStatements) tokens_.Fail("targets are nested too deeply");
      Target target = ParseTarget();
      --depth_;
      tokens_.ExpectOperator(")");
      return target;
    }
    Target target;
    target.name = tokens_.ExpectAnyName();
    if (may_be_attribute && tokens_.SkipOperator(".")) target.attribute = tokens_.ExpectAnyName();
    return target;
  }

  TokenReader tokens_;
  ExpressionParser expressions_;
  int depth_ = 0;
  int loops_ = 0;  // around the current token
};

}  // namespace

Statements Parse(const std::string& source) { return Parser(source).ParseTemplate(); }

}  // namespace gpuctl::trainer::jinja
