#include "trainer/jinja/statements.h"

#include <memory>

#include "trainer/jinja/functions.h"
#include "trainer/jinja/loop.h"
#include "trainer/jinja_values/arguments.h"
#include "trainer/jinja_values/filters.h"

namespace gpuctl::trainer::jinja {
namespace {

// A statement that a function object does.
template <typename Body>
class Done : public Statement {
 public:
  Done(int line, Body body) : Statement(line), body_(std::move(body)) {}

 private:
  Flow Act(Run& run, const ScopePtr& scope) const override { return body_(run, scope); }

  const Body body_;
};

template <typename Body>
StatementPtr MakeStatement(int line, Body body) {
  return std::make_unique<Done<Body>>(line, std::move(body));
}

void Assign(const Target& target, const Value& value, Scope& scope) {
  if (!target.parts.empty()) {
    const Value::Items items = ItemsOf(value);
    if (items.size() != target.parts.size()) {
      throw TemplateError((items.size() < target.parts.size() ? "not enough" : "too many") +
                          std::string(" values to unpack (expected ") +
                          std::to_string(target.parts.size()) + ")");
    }
    for (size_t i = 0; i < items.size(); ++i) Assign(target.parts[i], items[i], scope);
  } else if (target.attribute.empty()) {
    scope.Set(target.name, value);
  } else {
    const Value* found = scope.Find(target.name);
    const auto* space = found != nullptr && found->IsObject()
                            ? dynamic_cast<const Namespace*>(&found->object())
                            : nullptr;
    if (space == nullptr) throw TemplateError("cannot assign attribute on non-namespace object");
    space->Set(target.attribute, value);
  }
}

std::string CaptureAll(const Statements& body, Run& run, const ScopePtr& scope) {
  return run.Capture([&] { ExecuteAll(body, run, std::make_shared<Scope>(scope)); });
}

Value ApplyFilters(const Filters& filters, Value value, Run& run, const ScopePtr& scope) {
  for (const auto& [name, arguments] : filters.each) {
    value = Filter(name, value, EvaluateArguments(arguments, run, scope));
  }
  return value;
}

// A macro, or the body of a call block. It lives no longer than the template and the rendering.
class Macro : public Object {
 public:
  Macro(std::string name, const std::vector<Parameter>& parameters, const Statements& body,
        bool reads_caller, Run& run, const ScopePtr& scope)
      : name_(std::move(name)),
        parameters_(parameters),
        body_(body),
        reads_caller_(reads_caller),
        run_(run),
        scope_(scope) {}

  Value Call(const Arguments& arguments) const override {
    const ScopePtr outer = scope_.lock();
    if (outer == nullptr) throw TemplateError("the block of macro " + name_ + " is over");
    std::vector<std::string> names;
    for (const Parameter& parameter : parameters_) names.push_back(parameter.name);
    names.emplace_back("caller");
    const Bound bound(name_, arguments, names);
    const auto scope = std::make_shared<Scope>(outer);
    for (const Parameter& parameter : parameters_) {
      scope->Set(parameter.name,
                 bound.GetOr(parameter.name,
                             Undefined{"parameter '" + parameter.name + "' was not provided"}));
    }
    // That of a macro around it is another one.
    if (reads_caller_ || bound.Get("caller") != nullptr) {
      scope->Set("caller", bound.GetOr("caller", Undefined{"No caller defined"}));
    }
    for (const Parameter& parameter : parameters_) {
      if (bound.Get(parameter.name) == nullptr && parameter.otherwise != nullptr) {
        scope->Set(parameter.name, parameter.otherwise->Evaluate(run_, scope));
      }
    }
    return run_.Capture([&] { ExecuteAll(body_, run_, scope); });
  }
  bool callable() const override { return true; }

 private:
  const std::string name_;
  const std::vector<Parameter>& parameters_;
  const Statements& body_;
  const bool reads_caller_;
  Run& run_;
  const std::weak_ptr<Scope> scope_;  // the scope has the macro
};

// Runs the loop over `items`. A recursive one calls itself with the items of loop(items).
void RunLoop(const Loop& loop, const Value& items, int depth, Run& run, const ScopePtr& scope) {
  Value::Items chosen;
  const int line = run.line();
  for (const Value& item : ItemsOf(items)) {
    run.Step(line);
    const auto inner = std::make_shared<Scope>(scope);
    if (loop.condition != nullptr) {
      Assign(loop.target, item, *inner);
      if (!loop.condition->Evaluate(run, inner).Truth()) continue;
    }
    chosen.push_back(item);
  }
  if (chosen.empty()) {
    ExecuteAll(loop.otherwise, run, std::make_shared<Scope>(scope));
    return;
  }
  LoopVariable::Recursion recursion;
  if (loop.recursive) {
    recursion = [&loop, &run, scope, depth](const Value& deeper) {
      const Run::Nested nested(run, run.line());
      return run.Capture([&] { RunLoop(loop, deeper, depth + 1, run, scope); });
    };
  }
  const auto variable =
      std::make_shared<LoopVariable>(std::move(chosen), depth, std::move(recursion));
  for (; !variable->AtEnd(); variable->Advance()) {
    run.Step(line);
    const auto inner = std::make_shared<Scope>(scope);
    inner->Set("loop", std::shared_ptr<const Object>(variable));
    Assign(loop.target, variable->item(), *inner);
    if (ExecuteAll(loop.body, run, inner) == Flow::kBreak) break;
  }
}

}  // namespace

StatementPtr TextStatement(int line, std::string text) {
  return MakeStatement(line, [text = std::move(text)](Run& run, const ScopePtr&) {
    run.Write(text);
    return Flow::kNext;
  });
}

StatementPtr HideStatement(int line, std::shared_ptr<const std::vector<std::string>> names) {
  return MakeStatement(line, [names = std::move(names)](Run&, const ScopePtr& scope) {
    for (const std::string& name : *names) {
      scope->Set(name, Undefined{"'" + name + "' is undefined"});
    }
    return Flow::kNext;
  });
}

StatementPtr PrintStatement(int line, ExpressionPtr value) {
  return MakeStatement(line, [value = std::move(value)](Run& run, const ScopePtr& scope) {
    run.Write(value->Evaluate(run, scope).Text());
    return Flow::kNext;
  });
}

StatementPtr IfStatement(int line, std::vector<Branch> branches) {
  return MakeStatement(line, [branches = std::move(branches)](Run& run, const ScopePtr& scope) {
    for (const Branch& branch : branches) {
      if (branch.condition == nullptr || branch.condition->Evaluate(run, scope).Truth()) {
        return ExecuteAll(branch.body, run, scope);
      }
    }
    return Flow::kNext;
  });
}

StatementPtr ForStatement(int line, Loop loop) {
  return MakeStatement(line, [loop = std::move(loop)](Run& run, const ScopePtr& scope) {
    RunLoop(loop, loop.items->Evaluate(run, scope), 0, run, scope);
    return Flow::kNext;
  });
}

StatementPtr SetStatement(int line, Target target, ExpressionPtr value) {
  return MakeStatement(line, [target = std::move(target), value = std::move(value)](
                                 Run& run, const ScopePtr& scope) {
    Assign(target, value->Evaluate(run, scope), *scope);
    return Flow::kNext;
  });
}

StatementPtr SetBlockStatement(int line, Target target, Filters filters, Statements body) {
  return MakeStatement(line, [target = std::move(target), filters = std::move(filters),
                              body = std::move(body)](Run& run, const ScopePtr& scope) {
    const std::string text = CaptureAll(body, run, scope);
    Assign(target, ApplyFilters(filters, text, run, scope), *scope);
    return Flow::kNext;
  });
}

StatementPtr WithStatement(int line, std::vector<std::pair<Target, ExpressionPtr>> bindings,
                           Statements body) {
  return MakeStatement(line, [bindings = std::move(bindings), body = std::move(body)](
                                 Run& run, const ScopePtr& scope) {
    const auto inner = std::make_shared<Scope>(scope);
    for (const auto& [target, value] : bindings) {  // values do not see each other
      Assign(target, value->Evaluate(run, scope), *inner);
    }
    return ExecuteAll(body, run, inner);
  });
}

StatementPtr MacroStatement(int line, std::string name, std::vector<Parameter> parameters,
                            Statements body, bool reads_caller) {
  return MakeStatement(
      line, [name = std::move(name), parameters = std::move(parameters), body = std::move(body),
             reads_caller](Run& run, const ScopePtr& scope) {
        scope->Set(name, std::shared_ptr<const Object>(std::make_shared<Macro>(
                             name, parameters, body, reads_caller, run, scope)));
        return Flow::kNext;
      });
}

StatementPtr CallStatement(int line, std::vector<Parameter> parameters, ExpressionPtr function,
                           ArgumentList arguments, Statements body, bool reads_caller) {
  return MakeStatement(line, [parameters = std::move(parameters), function = std::move(function),
                              arguments = std::move(arguments), body = std::move(body),
                              reads_caller](Run& run, const ScopePtr& scope) {
    const Value callee = function->Evaluate(run, scope);
    if (!callee.IsObject()) throw TemplateError("a call block needs a macro");
    Arguments values = EvaluateArguments(arguments, run, scope);
    values.named.emplace_back("caller", std::shared_ptr<const Object>(std::make_shared<Macro>(
                                            "caller", parameters, body, reads_caller, run, scope)));
    run.Write(callee.object().Call(values).Text());
    return Flow::kNext;
  });
}

StatementPtr FilterStatement(int line, Filters filters, Statements body) {
  return MakeStatement(line, [filters = std::move(filters), body = std::move(body)](
                                 Run& run, const ScopePtr& scope) {
    const std::string text = CaptureAll(body, run, scope);
    run.Write(ApplyFilters(filters, text, run, scope).Text());
    return Flow::kNext;
  });
}

StatementPtr FlowStatement(int line, Flow flow) {
  return MakeStatement(line, [flow](Run&, const ScopePtr&) { return flow; });
}

StatementPtr GenerationStatement(int line, Statements body) {
  return MakeStatement(line, [body = std::move(body)](Run& run, const ScopePtr& scope) {
    run.Generation([&] { ExecuteAll(body, run, std::make_shared<Scope>(scope)); });
    return Flow::kNext;
  });
}

}  // namespace gpuctl::trainer::jinja
