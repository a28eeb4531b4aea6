#include "trainer/jinja_values/operators.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "trainer/jinja_values/characters.h"
#include "trainer/jinja_values/methods.h"

namespace gpuctl::trainer::jinja {
namespace {

const char* SymbolOf(Arithmetic what) {
  static constexpr const char* kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
  return kSymbols[static_cast<int>(what)];
}

[[noreturn]] void ThrowTypes(Arithmetic what, const Value& a, const Value& b) {
  if (a.IsUndefined()) ThrowUndefined(a);
  if (b.IsUndefined()) ThrowUndefined(b);
  throw TemplateError(std::string("unsupported operand type(s) for ") + SymbolOf(what) + ": '" +
                      a.TypeName() + "' and '" + b.TypeName() + "'");
}

[[noreturn]] void ThrowLarge() { throw TemplateError("a number is too large"); }

int64_t FloorDivide(int64_t a, int64_t b) {
  if (b == 0) throw TemplateError("integer division or modulo by zero");
  if (b == -1) {
    if (a == std::numeric_limits<int64_t>::min()) ThrowLarge();
    return -a;
  }
  const int64_t quotient = a / b;
  return quotient - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}

Value IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) throw TemplateError("0.0 cannot be raised to a negative power");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  int64_t result = 1;
  if (base == 1 || exponent == 0) return result;
  if (base == -1) return static_cast<int64_t>(exponent % 2 == 0 ? 1 : -1);
  if (base == 0) return base;
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(result, base, &result)) ThrowLarge();
  }
  return result;
}

Value CalculateIntegers(Arithmetic what, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (what) {
    case Arithmetic::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Arithmetic::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Arithmetic::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Arithmetic::kDivide:
      if (b == 0) throw TemplateError("division by zero");
      return static_cast<double>(a) / static_cast<double>(b);
    case Arithmetic::kFloorDivide:
      return FloorDivide(a, b);
    case Arithmetic::kModulo:
      return b == -1 ? int64_t{0} : a - FloorDivide(a, b) * b;
    case Arithmetic::kPower:
      return IntegerPower(a, b);
  }
  if (overflow) ThrowLarge();
  return result;
}

double FloatModulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

Value CalculateFloats(Arithmetic what, double a, double b) {
  switch (what) {
    case Arithmetic::kAdd:
      return a + b;
    case Arithmetic::kSubtract:
      return a - b;
    case Arithmetic::kMultiply:
      return a * b;
    case Arithmetic::kPower: {
      const double result = std::pow(a, b);
      if (a == 0 && b < 0) throw TemplateError("0.0 cannot be raised to a negative power");
      if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) {
        throw TemplateError("a power of a negative number is complex");
      }
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) ThrowLarge();
      return result;
    }
    default:
      break;
  }
  if (b == 0) {
    throw TemplateError(what == Arithmetic::kDivide        ? "float division by zero"
                        : what == Arithmetic::kFloorDivide ? "float floor division by zero"
                                                           : "float modulo");
  }
  if (what == Arithmetic::kDivide) return a / b;
  const double modulo = FloatModulo(a, b);
  return what == Arithmetic::kModulo ? modulo : std::round((a - modulo) / b);
}

// Returns the sequence `times` over.
Value Repeat(const Value& sequence, int64_t times) {
  times = std::max<int64_t>(times, 0);
  const auto count = static_cast<size_t>(times);
  const size_t item_bytes =
      sequence.IsString() ? sequence.string().size() : sequence.items().size() * sizeof(Value);
  if (item_bytes == 0 || count == 0) {
    return sequence.IsString() ? Value("") : Value::OfKind(sequence.list().kind, {});
  }
  CheckSize(count > SIZE_MAX / item_bytes ? SIZE_MAX : count * item_bytes);
  std::string text;
  Value::Items items;
  for (size_t i = 0; i < count; ++i) {
    if (sequence.IsString()) {
      text += sequence.string();
    } else {
      items.insert(items.end(), sequence.items().begin(), sequence.items().end());
    }
  }
  return sequence.IsString() ? Value(std::move(text))
                             : Value::OfKind(sequence.list().kind, std::move(items));
}

// Whether it is a list or tuple, which can be added.
bool IsPlain(const Value& value) { return value.Is(Value::ListKind::kList) || value.IsTuple(); }

bool IsWhole(const Value& value) { return value.IsInt() || value.IsBool(); }

int64_t Clamp(int64_t value, int64_t low, int64_t high) {
  return value < low ? low : value > high ? high : value;
}

// Returns the places that a slice takes, as Python's slice.indices() does.
std::vector<int64_t> SlicePlaces(int64_t length, const Value& start, const Value& stop,
                                 const Value& step) {
  for (const Value* each : {&start, &stop, &step}) {
    if (!each->IsNone() && !IsWhole(*each)) {
      throw TemplateError("slice indices must be integers or None");
    }
  }
  const int64_t by = step.IsNone() ? 1 : step.integer();
  if (by == 0) throw TemplateError("slice step cannot be zero");
  const int64_t low = by < 0 ? -1 : 0;
  const int64_t high = by < 0 ? length - 1 : length;
  const auto place = [&](const Value& given, int64_t otherwise) {
    if (given.IsNone()) return otherwise;
    const int64_t value = given.integer();
    return Clamp(value < 0 ? value + length : value, low, high);
  };
  const int64_t first = place(start, by < 0 ? high : low);
  const int64_t last = place(stop, by < 0 ? low : high);
  std::vector<int64_t> places;
  if (by > 0) {
    for (int64_t i = first; i<last; i = by> last - i ? last : i + by) places.push_back(i);
  } else {
    for (int64_t i = first; i > last; i = by < last - i ? last : i + by) places.push_back(i);
  }
  return places;
}

}  // namespace

Value Calculate(Arithmetic what, const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) {
    return a.IsFloat() || b.IsFloat() ? CalculateFloats(what, a.number(), b.number())
                                      : CalculateIntegers(what, a.integer(), b.integer());
  }
  if (what == Arithmetic::kAdd && a.IsString() && b.IsString()) {
    CheckSize(a.string().size() + b.string().size());
    return a.string() + b.string();
  }
  if (what == Arithmetic::kAdd && IsPlain(a) && IsPlain(b) && a.IsTuple() == b.IsTuple()) {
    CheckSize((a.items().size() + b.items().size()) * sizeof(Value));
    Value::Items items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return Value::OfKind(a.list().kind, std::move(items));
  }
  if (what == Arithmetic::kMultiply) {
    if ((a.IsString() || IsPlain(a)) && IsWhole(b)) return Repeat(a, b.integer());
    if ((b.IsString() || IsPlain(b)) && IsWhole(a)) return Repeat(b, a.integer());
  }
  if (what == Arithmetic::kModulo && a.IsString()) {
    throw TemplateError("the operator % of strings is not supported");
  }
  // Python makes a set.
  const bool has_view = a.Is(Value::ListKind::kView) || b.Is(Value::ListKind::kView);
  if (what == Arithmetic::kSubtract && has_view) {
    throw TemplateError("the operator - of a dict's keys or items is not supported");
  }
  ThrowTypes(what, a, b);
}

Value WithSign(bool negative, const Value& value) {
  if (value.IsUndefined()) ThrowUndefined(value);
  if (!value.IsNumber()) {
    throw TemplateError(std::string("bad operand type for unary ") + (negative ? "-" : "+") +
                        ": '" + value.TypeName() + "'");
  }
  if (value.IsFloat()) return negative ? -value.number() : value.number();
  return CalculateIntegers(negative ? Arithmetic::kSubtract : Arithmetic::kAdd, 0, value.integer());
}

Value GetAttribute(const Value& value, const std::string& name) {
  if (value.IsUndefined()) ThrowUndefined(value);
  if (value.IsObject()) return value.object().Attribute(name);
  if (std::optional<Value> method = MethodOf(value, name)) return *method;
  if (value.IsDict()) {
    if (const Value* item = value.dict().Find(name)) return *item;
  }
  return Undefined{"'" + value.TypeName() + " object' has no attribute '" + name + "'"};
}

Value GetItem(const Value& value, const Value& key) {
  if (value.IsUndefined()) ThrowUndefined(value);
  if (value.IsDict()) {
    if (const Value* item = value.dict().Find(key)) return *item;
  }
  if (IsWhole(key) && (value.IsString() || (value.IsList() && !value.Is(Value::ListKind::kView)))) {
    const int64_t length = Length(value);
    const int64_t place = key.integer() < 0 ? key.integer() + length : key.integer();
    if (place >= 0 && place < length) {
      const auto index = static_cast<size_t>(place);
      return value.IsList() ? value.items()[index]
                            : Value(Utf8({CodePoints(value.string())[index]}));
    }
  }
  if (key.IsString()) {
    if (value.IsObject()) return value.object().Attribute(key.string());
    if (std::optional<Value> method = MethodOf(value, key.string())) return *method;
    return Undefined{"'" + value.TypeName() + " object' has no attribute '" + key.string() + "'"};
  }
  return Undefined{value.TypeName() + " object has no element " + key.Repr()};
}

Value GetSlice(const Value& value, const Value& start, const Value& stop, const Value& step) {
  if (value.IsUndefined()) ThrowUndefined(value);
  if (!value.IsString() && (!value.IsList() || value.Is(Value::ListKind::kView))) {
    throw TemplateError("'" + value.TypeName() + "' object cannot be sliced");
  }
  const std::vector<int64_t> places = SlicePlaces(Length(value), start, stop, step);
  if (value.IsList()) {
    Value::Items taken;
    for (const int64_t place : places) taken.push_back(value.items()[static_cast<size_t>(place)]);
    return Value::OfKind(value.list().kind, std::move(taken));
  }
  const std::vector<uint32_t> all = CodePoints(value.string());
  std::string text;
  for (const int64_t place : places) AppendCodePoint(all[static_cast<size_t>(place)], &text);
  return text;
}

}  // namespace gpuctl::trainer::jinja
