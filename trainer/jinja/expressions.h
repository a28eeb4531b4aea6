// The expressions of a template.

#ifndef TRAINER_JINJA_EXPRESSIONS_H_
#define TRAINER_JINJA_EXPRESSIONS_H_

#include <string>
#include <utility>
#include <vector>

#include "trainer/jinja/nodes.h"
#include "trainer/jinja_values/operators.h"

namespace gpuctl::trainer::jinja {

struct ArgumentList {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};

ExpressionPtr Literal(int line, Value value);
ExpressionPtr NameOf(int line, std::string name);
ExpressionPtr ListOf(int line, std::vector<ExpressionPtr> items, bool is_tuple);
ExpressionPtr DictOf(int line, std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries);
ExpressionPtr AttributeOf(int line, ExpressionPtr object, std::string name);
ExpressionPtr ItemOf(int line, ExpressionPtr object, ExpressionPtr key);
// What is left out is null.
ExpressionPtr SliceOf(int line, ExpressionPtr object, ExpressionPtr start, ExpressionPtr stop,
                      ExpressionPtr step);
ExpressionPtr CallOf(int line, ExpressionPtr function, ArgumentList arguments);
ExpressionPtr Filtered(int line, std::string filter, ExpressionPtr value, ArgumentList arguments);
ExpressionPtr Tested(int line, std::string test, ExpressionPtr value, ArgumentList arguments);
ExpressionPtr NotOf(int line, ExpressionPtr value);
ExpressionPtr SignedOf(int line, bool negative, ExpressionPtr value);
// "or" gives the first value that is true, "and" the first that is not, else the last.
ExpressionPtr EitherOf(int line, bool is_or, ExpressionPtr left, ExpressionPtr right);
ExpressionPtr ArithmeticOf(int line, Arithmetic what, ExpressionPtr left, ExpressionPtr right);
ExpressionPtr Concatenation(int line, ExpressionPtr left, ExpressionPtr right);
// a < b < c: the operators are tests by their symbols, "in" and "not in".
ExpressionPtr Comparison(int line, ExpressionPtr first,
                         std::vector<std::pair<std::string, ExpressionPtr>> others);
// `otherwise` may be null.
ExpressionPtr Choice(int line, ExpressionPtr condition, ExpressionPtr value,
                     ExpressionPtr otherwise);

Arguments EvaluateArguments(const ArgumentList& list, Run& run, const ScopePtr& scope);

}  // namespace gpuctl::trainer::jinja

#endif  // TRAINER_JINJA_EXPRESSIONS_H_
