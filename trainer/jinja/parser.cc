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
  explicit Parser(const std::string& source)
      : tokens_(Tokenize(source)), expressions_(tokens_, names_) {}

  Statements ParseTemplate() {
    Statements statements = ParseUntil({});
    if (!tokens_.Is(TokenKind::kEnd)) tokens_.FailExpected("a statement");
    names_.Resolve();
    statements.insert(statements.begin(), HideStatement(1, names_.hidden()));
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

  // Parses statements that have a scope of their own, with these names in it.
  Statements ParsePart(const Ends& ends, const std::vector<std::string>& own = {}) {
    const int line = tokens_.line();
    const Names::Hidden hidden = names_.BeginPart(own);
    Statements part = ParseUntil(ends);
    names_.EndPart();
    part.insert(part.begin(), HideStatement(line, hidden));
    return part;
  }

  // Parses a body up to {% end %}, with these names in its scope.
  Statements ParseBody(const std::string& end, const std::vector<std::string>& own = {}) {
    return ParseRest(end, names_.BeginPart(own));
  }

  // Does so in a part that has begun.
  Statements ParseRest(const std::string& end, const Names::Hidden& hidden) {
    const int line = tokens_.line();
    EndBlock();
    Statements body = ParseUntil({end});
    names_.EndPart();
    body.insert(body.begin(), HideStatement(line, hidden));
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
    ParseBranch(&branches);
    // All {% elif %} are the second branch, an {% if %} each.
    names_.NextBranch();
    while (tokens_.SkipName("elif")) {
      ParseBranch(&branches);
      names_.NextBranch();
      names_.NextBranch();
      names_.EndBranches();
    }
    names_.NextBranch();
    if (tokens_.SkipName("else")) {
      EndBlock();
      branches.push_back({nullptr, ParseUntil({"endif"})});
    }
    names_.EndBranches();
    tokens_.ExpectName("endif");
    EndBlock();
    return IfStatement(line, std::move(branches));
  }

  void ParseBranch(std::vector<Branch>* branches) {
    ExpressionPtr condition = expressions_.ParseTuple(/*with_choice=*/false);
    EndBlock();
    names_.BeginBranches();
    names_.NextBranch();
    branches->push_back({std::move(condition), ParseUntil({"elif", "else", "endif"})});
  }

  StatementPtr ParseFor(int line) {
    Loop loop;
    loop.target = ParseTarget();
    tokens_.ExpectName("in");
    loop.items = expressions_.ParseTuple(/*with_choice=*/false);
    std::vector<std::string> own = {"loop"};
    AppendNames(loop.target, &own);
    if (tokens_.SkipName("if")) {
      names_.BeginPart(own);
      loop.condition = expressions_.Parse();
      names_.EndPart();
    }
    loop.recursive = tokens_.SkipName("recursive");
    EndBlock();
    ++loops_;
    loop.body = ParsePart({"else", "endfor"}, own);
    --loops_;
    if (tokens_.SkipName("else")) {
      EndBlock();
      loop.otherwise = ParsePart({"endfor"});
    }
    tokens_.ExpectName("endfor");
    EndBlock();
    return ForStatement(line, std::move(loop));
  }

  StatementPtr ParseSet(int line) {
    Target target = ParseTarget(/*may_be_attribute=*/true);
    if (tokens_.SkipOperator("=")) {
      ExpressionPtr value = expressions_.ParseTuple();
      Store(target);
      EndBlock();
      return SetStatement(line, std::move(target), std::move(value));
    }
    Filters filters;
    Store(target);
    if (tokens_.SkipOperator("|")) filters = ParseFilters();
    return SetBlockStatement(line, std::move(target), std::move(filters), OutsideOfLoops("endset"));
  }

  StatementPtr ParseMacro(int line) {
    std::string name = tokens_.ExpectAnyName();
    names_.Store(name);
    // What the values of parameters read is read in the macro.
    const Names::Hidden hidden = names_.BeginPart({"caller"});
    std::vector<Parameter> parameters = ParseParameters();
    const int loops = std::exchange(loops_, 0);
    const size_t before = names_.LoadsOf("caller");
    Statements body = ParseRest("endmacro", hidden);
    loops_ = loops;
    return MacroStatement(line, std::move(name), std::move(parameters), std::move(body),
                          names_.LoadsOf("caller") > before);
  }

  StatementPtr ParseCall(int line) {
    std::vector<Parameter> parameters;
    names_.BeginPart({});
    if (tokens_.IsOperator("(")) parameters = ParseParameters();
    names_.EndPart();
    const std::string name = tokens_.ExpectAnyName();
    names_.Load(name);
    ExpressionPtr function = NameOf(tokens_.line(), name);
    ArgumentList arguments = expressions_.ParseArguments();
    const std::vector<std::string> own = NamesOf(parameters);
    const size_t before = names_.LoadsOf("caller");
    Statements body = OutsideOfLoops("endcall", own);
    return CallStatement(line, std::move(parameters), std::move(function), std::move(arguments),
                         std::move(body), names_.LoadsOf("caller") > before);
  }

  StatementPtr ParseWith(int line) {
    std::vector<std::pair<Target, ExpressionPtr>> bindings;
    std::vector<std::string> own;
    while (!tokens_.Is(TokenKind::kBlockEnd)) {
      if (!bindings.empty()) tokens_.ExpectOperator(",");
      Target target = ParseOneTarget(/*may_be_attribute=*/false);
      AppendNames(target, &own);
      tokens_.ExpectOperator("=");
      bindings.emplace_back(std::move(target), expressions_.Parse());
    }
    return WithStatement(line, std::move(bindings), ParseBody("endwith", own));
  }

  static void AppendNames(const Target& target, std::vector<std::string>* names) {
    if (target.parts.empty()) names->push_back(target.name);
    for (const Target& part : target.parts) AppendNames(part, names);
  }

  static std::vector<std::string> NamesOf(const std::vector<Parameter>& parameters) {
    std::vector<std::string> names = {"caller"};
    for (const Parameter& parameter : parameters) names.push_back(parameter.name);
    return names;
  }

  void Store(const Target& target) {
    for (const Target& part : target.parts) Store(part);
    if (!target.parts.empty()) return;
    target.attribute.empty() ? names_.Store(target.name) : names_.Load(target.name);
  }

  // Parses a body that is rendered by itself, so that it cannot leave a loop around it.
  Statements OutsideOfLoops(const std::string& end, const std::vector<std::string>& own = {}) {
    const int loops = std::exchange(loops_, 0);
    Statements body = ParseBody(end, own);
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
      names_.Own(parameter.name);
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
  Names names_;
  ExpressionParser expressions_;
  int depth_ = 0;
  int loops_ = 0;  // around the current token
};

}  // namespace

Statements Parse(const std::string& source) { return Parser(source).ParseTemplate(); }

}  // namespace gpuctl::trainer::jinja
