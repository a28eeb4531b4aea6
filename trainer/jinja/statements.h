// The statements of a template.

#ifndef TRAINER_JINJA_STATEMENTS_H_
#define TRAINER_JINJA_STATEMENTS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/jinja/expressions.h"
#include "trainer/jinja/nodes.h"

namespace gpuctl::trainer::jinja {

// What a value is assigned to: a name, a namespace's attribute, or several of them.
struct Target {
  std::string name;
  std::string attribute;      // of the namespace `name`, or ""
  std::vector<Target> parts;  // when it is a tuple
};

struct Filters {
  std::vector<std::pair<std::string, ArgumentList>> each;  // applied in this order
};

struct Parameter {
  std::string name;
  ExpressionPtr otherwise;  // may be null
};

struct Loop {
  Target target;
  ExpressionPtr items;
  ExpressionPtr condition;  // may be null
  bool recursive = false;
  Statements body;
  Statements otherwise;  // when there was no item
};

struct Branch {
  ExpressionPtr condition;  // null: else
  Statements body;
};

StatementPtr TextStatement(int line, std::string text);
// Gives each of the names an undefined value in the current scope.
StatementPtr HideStatement(int line, std::shared_ptr<const std::vector<std::string>> names);
StatementPtr PrintStatement(int line, ExpressionPtr value);
StatementPtr IfStatement(int line, std::vector<Branch> branches);
StatementPtr ForStatement(int line, Loop loop);
StatementPtr SetStatement(int line, Target target, ExpressionPtr value);
StatementPtr SetBlockStatement(int line, Target target, Filters filters, Statements body);
StatementPtr WithStatement(int line, std::vector<std::pair<Target, ExpressionPtr>> bindings,
                           Statements body);
StatementPtr MacroStatement(int line, std::string name, std::vector<Parameter> parameters,
                            Statements body, bool reads_caller);
// Calls `function` with the body as its caller().
StatementPtr CallStatement(int line, std::vector<Parameter> parameters, ExpressionPtr function,
                           ArgumentList arguments, Statements body, bool reads_caller);
StatementPtr FilterStatement(int line, Filters filters, Statements body);
StatementPtr FlowStatement(int line, Flow flow);
StatementPtr GenerationStatement(int line, Statements body);

}  // namespace gpuctl::trainer::jinja

#endif  // TRAINER_JINJA_STATEMENTS_H_
