#include "trainer/jinja_values/predicates.h"

#include <algorithm>
#include <map>

#include "trainer/jinja_values/characters.h"
#include "trainer/jinja_values/operators.h"

namespace gpuctl::trainer::jinja {
namespace {

// `other` is the test's argument, for those that have one.
struct Predicate {
  bool (*holds)(const Value& value, const Value& other);
  bool has_argument;
};

bool IsMultiple(const Value& value, const Value& divisor) {
  return !Calculate(Arithmetic::kModulo, value, divisor).Truth();
}

bool IsSequence(const Value& value) {
  return value.IsUndefined() || value.IsString() || value.IsDict() ||
         (value.IsList() && !value.Is(Value::ListKind::kView));
}

bool IsIterable(const Value& value) {
  return IsSequence(value) || value.IsList() || IsGenerator(value);
}

// An undefined value counts: calling it is an error of its own.
bool IsCallable(const Value& value) {
  return value.IsUndefined() || (value.IsObject() && value.object().callable());
}

bool IsSame(const Value& a, const Value& b) {
  if (a.IsNone() || b.IsNone()) return a.IsNone() && b.IsNone();
  if (a.IsBool() || b.IsBool()) return a.IsBool() && b.IsBool() && a == b;
  if (a.IsObject() && b.IsObject()) return a == b;
  throw TemplateError("the test sameas is supported for none, true and false");
}

bool HasCase(const Value& value, bool (*is_case)(uint32_t), bool (*is_other)(uint32_t)) {
  const std::vector<uint32_t> text = CodePoints(value.Text());
  return std::any_of(text.begin(), text.end(), is_case) &&
         std::none_of(text.begin(), text.end(), is_other);
}

using V = Value;

const std::map<std::string, Predicate>& Predicates() {
  static const auto* const table = [] {
    const Predicate equal = {[](const V& v, const V& o) { return v == o; }, true};
    const Predicate unequal = {[](const V& v, const V& o) { return v != o; }, true};
    const Predicate less = {[](const V& v, const V& o) { return Less(v, o); }, true};
    const Predicate greater = {[](const V& v, const V& o) { return Less(o, v); }, true};
    const Predicate at_most = {[](const V& v, const V& o) { return AtMost(v, o); }, true};
    const Predicate at_least = {[](const V& v, const V& o) { return AtMost(o, v); }, true};
    return new std::map<std::string, Predicate>{
        {"!=", unequal},
        {"<", less},
        {"<=", at_most},
        {"==", equal},
        {">", greater},
        {">=", at_least},
        {"boolean", {[](const V& v, const V&) { return v.IsBool(); }, false}},
        {"callable", {[](const V& v, const V&) { return IsCallable(v); }, false}},
        {"defined", {[](const V& v, const V&) { return !v.IsUndefined(); }, false}},
        {"divisibleby", {[](const V& v, const V& o) { return IsMultiple(v, o); }, true}},
        {"eq", equal},
        {"equalto", equal},
        {"even", {[](const V& v, const V&) { return IsMultiple(v, int64_t{2}); }, false}},
        {"false", {[](const V& v, const V&) { return v.IsBool() && !v.Truth(); }, false}},
        {"float", {[](const V& v, const V&) { return v.IsFloat(); }, false}},
        {"ge", at_least},
        {"greaterthan", greater},
        {"gt", greater},
        {"in", {[](const V& v, const V& o) { return Contains(o, v); }, true}},
        {"integer", {[](const V& v, const V&) { return v.IsInt(); }, false}},
        {"iterable", {[](const V& v, const V&) { return IsIterable(v); }, false}},
        {"le", at_most},
        {"lessthan", less},
        {"lower", {[](const V& v, const V&) { return HasCase(v, IsLower, IsUpper); }, false}},
        {"lt", less},
        {"mapping", {[](const V& v, const V&) { return v.IsDict(); }, false}},
        {"ne", unequal},
        {"none", {[](const V& v, const V&) { return v.IsNone(); }, false}},
        {"number", {[](const V& v, const V&) { return v.IsNumber(); }, false}},
        {"odd",
         {[](const V& v, const V&) {
            return Calculate(Arithmetic::kModulo, v, int64_t{2}) == Value(int64_t{1});
          },
          false}},
        {"sameas", {[](const V& v, const V& o) { return IsSame(v, o); }, true}},
        {"sequence", {[](const V& v, const V&) { return IsSequence(v); }, false}},
        {"string", {[](const V& v, const V&) { return v.IsString(); }, false}},
        {"true", {[](const V& v, const V&) { return v.IsBool() && v.Truth(); }, false}},
        {"undefined", {[](const V& v, const V&) { return v.IsUndefined(); }, false}},
        {"upper", {[](const V& v, const V&) { return HasCase(v, IsUpper, IsLower); }, false}},
    };
  }();
  return *table;
}

}  // namespace

bool IsPredicate(const std::string& name) { return Predicates().count(name) > 0; }

std::vector<std::string> PredicateNames() {
  std::vector<std::string> names;
  for (const auto& entry : Predicates()) names.push_back(entry.first);
  return names;
}

bool Test(const std::string& name, const Value& value, const Arguments& arguments) {
  const auto found = Predicates().find(name);
  if (found == Predicates().end()) throw TemplateError("no test named '" + name + "'");
  const Predicate& predicate = found->second;
  if (arguments.positional.size() != (predicate.has_argument ? 1 : 0) || !arguments.named.empty()) {
    throw TemplateError("the test '" + name + "' takes " +
                        (predicate.has_argument ? "one argument" : "no argument"));
  }
  return predicate.holds(value, predicate.has_argument ? arguments.positional[0] : Value());
}

}  // namespace gpuctl::trainer::jinja
