#include "trainer/jinja/expressions.h"

#include "trainer/jinja_values/filters.h"
#include "trainer/jinja_values/predicates.h"

namespace gpuctl::trainer::jinja {
namespace {

// An expression whose value a function object computes.
template <typename Body>
class Computed : public Expression {
 public:
  Computed(int line, Body body) : Expression(line), body_(std::move(body)) {}

 private:
  Value Compute(Run& run, const ScopePtr& scope) const override { return body_(run, scope); }

  const Body body_;
};

template <typename Body>
ExpressionPtr MakeExpression(int line, Body body) {
  return std::make_unique<Computed<Body>>(line, std::move(body));
}

Value EvaluateOrNone(const ExpressionPtr& expression, Run& run, const ScopePtr& scope) {
  return expression != nullptr ? expression->Evaluate(run, scope) : Value();
}

bool Compare(const std::string& symbol, const Value& a, const Value& b) {
  if (symbol == "not in") return !Contains(b, a);
  return Test(symbol, a, {{b}, {}});
}

}  // namespace

Arguments EvaluateArguments(const ArgumentList& list, Run& run, const ScopePtr& scope) {
  Arguments arguments;
  for (const ExpressionPtr& each : list.positional) {
    arguments.positional.push_back(each->Evaluate(run, scope));
  }
  for (const auto& [name, value] : list.named) {
    arguments.named.emplace_back(name, value->Evaluate(run, scope));
  }
  return arguments;
}

ExpressionPtr Literal(int line, Value value) {
  return MakeExpression(line, [value = std::move(value)](Run&, const ScopePtr&) { return value; });
}

ExpressionPtr NameOf(int line, std::string name) {
  return MakeExpression(line, [name = std::move(name)](Run&, const ScopePtr& scope) -> Value {
    const Value* value = scope->Find(name);
    if (value != nullptr) return *value;
    return Undefined{"'" + name + "' is undefined"};
  });
}

ExpressionPtr ListOf(int line, std::vector<ExpressionPtr> items, bool is_tuple) {
  return MakeExpression(
      line, [items = std::move(items), is_tuple](Run& run, const ScopePtr& scope) {
        Value::Items values;
        for (const ExpressionPtr& item : items) values.push_back(item->Evaluate(run, scope));
        return is_tuple ? Value::OfTuple(std::move(values)) : Value::OfList(std::move(values));
      });
}

ExpressionPtr DictOf(int line, std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries) {
  return MakeExpression(line, [entries = std::move(entries)](Run& run, const ScopePtr& scope) {
    Value::Dict dict;
    for (const auto& [key, value] : entries) {
      Value evaluated_key = key->Evaluate(run, scope);
      dict.Set(std::move(evaluated_key), value->Evaluate(run, scope));
    }
    return Value::OfDict(std::move(dict));
  });
}

ExpressionPtr AttributeOf(int line, ExpressionPtr object, std::string name) {
  return MakeExpression(
      line, [object = std::move(object), name = std::move(name)](Run& run, const ScopePtr& scope) {
        return GetAttribute(object->Evaluate(run, scope), name);
      });
}

ExpressionPtr ItemOf(int line, ExpressionPtr object, ExpressionPtr key) {
  return MakeExpression(
      line, [object = std::move(object), key = std::move(key)](Run& run, const ScopePtr& scope) {
        const Value value = object->Evaluate(run, scope);
        return GetItem(value, key->Evaluate(run, scope));
      });
}

ExpressionPtr SliceOf(int line, ExpressionPtr object, ExpressionPtr start, ExpressionPtr stop,
                      ExpressionPtr step) {
  return MakeExpression(
      line, [object = std::move(object), start = std::move(start), stop = std::move(stop),
             step = std::move(step)](Run& run, const ScopePtr& scope) {
        const Value value = object->Evaluate(run, scope);
        const Value first = EvaluateOrNone(start, run, scope);
        const Value last = EvaluateOrNone(stop, run, scope);
        return GetSlice(value, first, last, EvaluateOrNone(step, run, scope));
      });
}

ExpressionPtr CallOf(int line, ExpressionPtr function, ArgumentList arguments) {
  return MakeExpression(line, [line, function = std::move(function),
                               arguments = std::move(arguments)](Run& run, const ScopePtr& scope) {
    const Value callee = function->Evaluate(run, scope);
    if (callee.IsUndefined()) ThrowUndefined(callee);
    if (!callee.IsObject()) {
      throw TemplateError("'" + callee.TypeName() + "' object is not callable");
    }
    const Arguments values = EvaluateArguments(arguments, run, scope);
    run.Step(line);
    return callee.object().Call(values);
  });
}

ExpressionPtr Filtered(int line, std::string filter, ExpressionPtr value, ArgumentList arguments) {
  return MakeExpression(line, [line, filter = std::move(filter), value = std::move(value),
                               arguments = std::move(arguments)](Run& run, const ScopePtr& scope) {
    const Value input = value->Evaluate(run, scope);
    const Arguments values = EvaluateArguments(arguments, run, scope);
    run.Step(line);
    return Filter(filter, input, values);
  });
}

ExpressionPtr Tested(int line, std::string test, ExpressionPtr value, ArgumentList arguments) {
  return MakeExpression(
      line,
      [test = std::move(test), value = std::move(value), arguments = std::move(arguments)](
          Run& run, const ScopePtr& scope) -> Value {
        const Value input = value->Evaluate(run, scope);
        return Test(test, input, EvaluateArguments(arguments, run, scope));
      });
}

ExpressionPtr NotOf(int line, ExpressionPtr value) {
  return MakeExpression(line, [value = std::move(value)](Run& run, const ScopePtr& scope) -> Value {
    return !value->Evaluate(run, scope).Truth();
  });
}

ExpressionPtr SignedOf(int line, bool negative, ExpressionPtr value) {
  return MakeExpression(line,
                        [negative, value = std::move(value)](Run& run, const ScopePtr& scope) {
                          return WithSign(negative, value->Evaluate(run, scope));
                        });
}

ExpressionPtr EitherOf(int line, bool is_or, ExpressionPtr left, ExpressionPtr right) {
  return MakeExpression(line, [is_or, left = std::move(left), right = std::move(right)](
                                  Run& run, const ScopePtr& scope) {
    Value value = left->Evaluate(run, scope);
    return value.Truth() == is_or ? value : right->Evaluate(run, scope);
  });
}

ExpressionPtr ArithmeticOf(int line, Arithmetic what, ExpressionPtr left, ExpressionPtr right) {
  return MakeExpression(line, [what, left = std::move(left), right = std::move(right)](
                                  Run& run, const ScopePtr& scope) {
    const Value a = left->Evaluate(run, scope);
    return Calculate(what, a, right->Evaluate(run, scope));
  });
}

ExpressionPtr Concatenation(int line, ExpressionPtr left, ExpressionPtr right) {
  return MakeExpression(
      line,
      [left = std::move(left), right = std::move(right)](Run& run, const ScopePtr& scope) -> Value {
        const std::string a = left->Evaluate(run, scope).Text();
        const std::string b = right->Evaluate(run, scope).Text();
        CheckSize(a.size() + b.size());
        return a + b;
      });
}

ExpressionPtr Comparison(int line, ExpressionPtr first,
                         std::vector<std::pair<std::string, ExpressionPtr>> others) {
  return MakeExpression(line,
                        [first = std::move(first), others = std::move(others)](
                            Run& run, const ScopePtr& scope) -> Value {
                          Value left = first->Evaluate(run, scope);
                          for (const auto& [symbol, expression] : others) {
                            Value right = expression->Evaluate(run, scope);
                            if (!Compare(symbol, left, right)) return false;
                            left = std::move(right);
                          }
                          return true;
                        });
}

ExpressionPtr Choice(int line, ExpressionPtr condition, ExpressionPtr value,
                     ExpressionPtr otherwise) {
  return MakeExpression(
      line,
      [condition = std::move(condition), value = std::move(value),
       otherwise = std::move(otherwise)](Run& run, const ScopePtr& scope) -> Value {
        if (condition->Evaluate(run, scope).Truth()) return value->Evaluate(run, scope);
        if (otherwise != nullptr) return otherwise->Evaluate(run, scope);
        return Undefined{"the inline if-expression has no else"};
      });
}

}  // namespace gpuctl::trainer::jinja
