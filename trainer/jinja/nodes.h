// The tree that a template is parsed into.

#ifndef TRAINER_JINJA_NODES_H_
#define TRAINER_JINJA_NODES_H_

#include <memory>
#include <vector>

#include "trainer/jinja/run.h"
#include "trainer/jinja_values/value.h"

namespace gpuctl::trainer::jinja {

class Expression {
 public:
  explicit Expression(int line) : line_(line) {}
  virtual ~Expression() = default;

  Value Evaluate(Run& run, const ScopePtr& scope) const {
    const Run::Nested nested(run, line_);
    return Compute(run, scope);
  }
  int line() const { return line_; }

 private:
  virtual Value Compute(Run& run, const ScopePtr& scope) const = 0;

  const int line_;
};
using ExpressionPtr = std::unique_ptr<Expression>;

// What follows a statement.
enum class Flow { kNext, kBreak, kContinue };

class Statement {
 public:
  explicit Statement(int line) : line_(line) {}
  virtual ~Statement() = default;

  Flow Execute(Run& run, const ScopePtr& scope) const {
    const Run::Nested nested(run, line_);
    return Act(run, scope);
  }

 private:
  virtual Flow Act(Run& run, const ScopePtr& scope) const = 0;

  const int line_;
};
using StatementPtr = std::unique_ptr<Statement>;
using Statements = std::vector<StatementPtr>;

// Executes one after the other, until one breaks or continues a loop.
inline Flow ExecuteAll(const Statements& statements, Run& run, const ScopePtr& scope) {
  for (const StatementPtr& statement : statements) {
    if (const Flow flow = statement->Execute(run, scope); flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

}  // namespace gpuctl::trainer::jinja

#endif  // TRAINER_JINJA_NODES_H_
