#include "trainer/jinja_values/value.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include "trainer/base/text.h"
#include "trainer/jinja_values/characters.h"

namespace gpuctl::trainer::jinja {
namespace {

constexpr size_t kMostBytes = 16 << 20;
// Lists and dicts within each other; Python's own reader of JSON takes about a thousand.
constexpr int kMostDepth = 500;

void CheckDepth(int depth) {
  if (depth > kMostDepth) throw TemplateError("lists or dicts are nested too deeply");
}

std::string StringRepr(const std::string& text) {
  const bool has_single = text.find('\'') != std::string::npos;
  const char quote = has_single && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const uint32_t c : CodePoints(text)) {
    if (c == static_cast<uint32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (IsPrintable(c)) {
      AppendCodePoint(c, &out);
    } else {
      out += Format(c > 0xFFFF ? "\\U%08x" : c > 0xFF ? "\\u%04x" : "\\x%02x", c);
    }
  }
  return out + quote;
}

std::string ListRepr(const Value::List& list) {
  if (list.kind == Value::ListKind::kRange || list.kind == Value::ListKind::kView) {
    throw TemplateError(
        "printing a range or a dict's view is not supported; the filter list helps");
  }
  const bool is_tuple = list.kind == Value::ListKind::kTuple;
  std::string out = is_tuple ? "(" : "[";
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out += ", ";
    out += list.items[i].Repr();
  }
  if (is_tuple && list.items.size() == 1) out += ",";
  return out + (is_tuple ? ")" : "]");
}

std::string DictRepr(const Value::Dict& dict) {
  std::string out = "{";
  for (const auto& [key, value] : dict.entries) {
    if (out.size() > 1) out += ", ";
    out += key.Repr() + ": " + value.Repr();
  }
  return out + "}";
}

// What is iterated over once.
class Generator : public Object {
 public:
  Generator(MakeItems make, Value value, Arguments arguments)
      : make_(make), value_(std::move(value)), arguments_(std::move(arguments)) {}
  Value::Items Take() const {
    const MakeItems make = std::exchange(make_, nullptr);
    return make != nullptr ? make(value_, arguments_) : Value::Items();
  }
  const Value& value() const { return value_; }

 private:
  mutable MakeItems make_;
  const Value value_;
  const Arguments arguments_;
};

const Generator* AsGenerator(const Value& value) {
  return value.IsObject() ? dynamic_cast<const Generator*>(&value.object()) : nullptr;
}

}  // namespace

Value Object::Attribute(const std::string& name) const {
  return Undefined{"the object has no attribute '" + name + "'"};
}

Value Object::Call(const Arguments&) const { throw TemplateError("the object is not callable"); }

const Value* Value::Dict::Find(const Value& key) const {
  for (const auto& entry : entries) {
    if (entry.first == key) return &entry.second;
  }
  return nullptr;
}

void Value::Dict::Set(Value key, Value value) {
  CheckHashable(key);
  for (auto& entry : entries) {
    if (entry.first == key) {
      entry.second = std::move(value);
      return;
    }
  }
  entries.emplace_back(std::move(key), std::move(value));
}

Value::Value(List list) {
  for (const Value& item : list.items) list.depth = std::max(list.depth, item.depth());
  CheckDepth(++list.depth);
  data_ = std::make_shared<const List>(std::move(list));
}

Value Value::OfDict(Dict dict) {
  dict.depth = 0;
  for (const auto& [key, item] : dict.entries) {
    dict.depth = std::max({dict.depth, key.depth(), item.depth()});
  }
  CheckDepth(++dict.depth);
  Value value;
  value.data_ = std::make_shared<const Dict>(std::move(dict));
  return value;
}

Value Value::OfJson(const nlohmann::ordered_json& json, int depth) {
  CheckDepth(depth);
  switch (json.type()) {
    case nlohmann::json::value_t::boolean:
      return json.get<bool>();
    case nlohmann::json::value_t::number_integer:
      return json.get<int64_t>();
    case nlohmann::json::value_t::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        throw DataError("the number " + json.dump() + " is too large");
      }
      return json.get<int64_t>();
    case nlohmann::json::value_t::number_float:
      return json.get<double>();
    case nlohmann::json::value_t::string:
      return RepairUtf8(json.get_ref<const std::string&>());
    case nlohmann::json::value_t::array: {
      Items items;
      for (const auto& item : json) items.push_back(OfJson(item, depth + 1));
      return OfList(std::move(items));
    }
    case nlohmann::json::value_t::object: {
      Dict dict;  // the parser keeps one entry of each key
      for (const auto& [key, item] : json.items())
        dict.entries.emplace_back(RepairUtf8(key), OfJson(item, depth + 1));
      return OfDict(std::move(dict));
    }
    default:
      return {};
  }
}

bool Value::Truth() const {
  if (IsUndefined() || IsNone()) return false;
  if (IsNumber()) return number() != 0;
  if (IsString()) return !string().empty();
  if (IsList()) return !items().empty();
  if (IsDict()) return !dict().entries.empty();
  return true;
}

std::string Value::Text() const {
  if (IsUndefined()) return "";
  if (IsString()) return string();
  return Repr();
}

std::string Value::Repr() const {
  if (IsUndefined()) return "Undefined";
  if (IsNone()) return "None";
  if (IsBool()) return Truth() ? "True" : "False";
  if (IsInt()) return std::to_string(integer());
  if (IsFloat()) return FloatText(number());
  if (IsString()) return StringRepr(string());
  if (IsList()) return ListRepr(list());
  if (IsDict()) return DictRepr(dict());
  throw TemplateError(IsGenerator(*this)
                          ? "printing a generator is not supported; the filter list helps"
                          : "printing a function or an object is not supported");
}

std::string Value::TypeName() const {
  if (IsUndefined()) return "Undefined";
  if (IsNone()) return "NoneType";
  if (IsBool()) return "bool";
  if (IsInt()) return "int";
  if (IsFloat()) return "float";
  if (IsString()) return "str";
  if (IsList()) {
    static constexpr const char* kNames[] = {"list", "tuple", "range", "dict_view"};
    return kNames[static_cast<int>(list().kind)];
  }
  if (IsDict()) return "dict";
  return "object";
}

bool operator==(const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) {
    if (!a.IsFloat() && !b.IsFloat()) return a.integer() == b.integer();
    return a.number() == b.number();
  }
  if (a.IsString() && b.IsString()) return a.string() == b.string();
  if (a.IsList() && b.IsList()) return a.list().kind == b.list().kind && a.items() == b.items();
  if (a.IsDict() && b.IsDict()) {
    const auto& entries = a.dict().entries;
    return entries.size() == b.dict().entries.size() &&
           std::all_of(entries.begin(), entries.end(), [&](const auto& entry) {
             const Value* other = b.dict().Find(entry.first);
             return other != nullptr && entry.second == *other;
           });
  }
  if (a.IsObject() && b.IsObject()) return a.object_ptr() == b.object_ptr();
  return (a.IsNone() && b.IsNone()) || (a.IsUndefined() && b.IsUndefined());
}

bool Less(const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) {
    if (!a.IsFloat() && !b.IsFloat()) return a.integer() < b.integer();
    return a.number() < b.number();
  }
  // UTF-8 has the order of its code points.
  if (a.IsString() && b.IsString()) return a.string() < b.string();
  if (a.IsList() && b.IsList() && a.list().kind == b.list().kind &&
      (a.IsTuple() || a.Is(Value::ListKind::kList))) {
    const size_t shared = std::min(a.items().size(), b.items().size());
    for (size_t i = 0; i < shared; ++i) {
      if (a.items()[i] != b.items()[i]) return Less(a.items()[i], b.items()[i]);
    }
    return a.items().size() < b.items().size();
  }
  if (a.IsUndefined()) ThrowUndefined(a);
  if (b.IsUndefined()) ThrowUndefined(b);
  throw TemplateError("'<' not supported between instances of '" + a.TypeName() + "' and '" +
                      b.TypeName() + "'");
}

void CheckHashable(const Value& key) {
  if (key.IsDict() || key.Is(Value::ListKind::kList) || key.Is(Value::ListKind::kView)) {
    throw TemplateError("unhashable type: '" + key.TypeName() + "'");
  }
  if (key.IsTuple()) {
    for (const Value& part : key.items()) CheckHashable(part);
  }
}

bool Contains(const Value& container, const Value& item) {
  if (container.IsString()) {
    if (item.IsUndefined()) ThrowUndefined(item);
    if (!item.IsString()) {
      throw TemplateError("'in <string>' requires string as left operand, not " + item.TypeName());
    }
    return container.string().find(item.string()) != std::string::npos;
  }
  if (container.IsDict()) {
    CheckHashable(item);
    return container.dict().Find(item) != nullptr;
  }
  const Value::Items items = ItemsOf(container);
  return std::find(items.begin(), items.end(), item) != items.end();
}

Value GeneratorOf(MakeItems make, Value value, Arguments arguments) {
  return std::shared_ptr<const Object>(
      std::make_shared<Generator>(make, std::move(value), std::move(arguments)));
}

bool IsGenerator(const Value& value) { return AsGenerator(value) != nullptr; }

Value::Items ItemsOf(const Value& value) {
  if (const Generator* generator = AsGenerator(value)) return generator->Take();
  if (value.IsList()) return value.items();
  if (value.IsUndefined()) return {};
  Value::Items items;
  if (value.IsDict()) {
    for (const auto& entry : value.dict().entries) items.push_back(entry.first);
    return items;
  }
  if (value.IsString()) {
    const std::vector<uint32_t> code_points = CodePoints(value.string());
    CheckSize(code_points.size() * sizeof(Value));
    for (const uint32_t code_point : code_points) {
      std::string text;
      AppendCodePoint(code_point, &text);
      items.emplace_back(std::move(text));
    }
    return items;
  }
  throw TemplateError("'" + value.TypeName() + "' object is not iterable");
}

int64_t Length(const Value& value) {
  if (value.IsUndefined()) return 0;
  if (value.IsString()) return CountCodePoints(value.string());
  if (value.IsList()) return static_cast<int64_t>(value.items().size());
  if (value.IsDict()) return static_cast<int64_t>(value.dict().entries.size());
  throw TemplateError("object of type '" + value.TypeName() + "' has no len()");
}

bool HoldsObject(const Value& value) {
  if (value.IsList()) return std::any_of(value.items().begin(), value.items().end(), HoldsObject);
  if (const Generator* generator = AsGenerator(value)) return HoldsObject(generator->value());
  if (!value.IsDict()) return value.IsObject();
  const auto& entries = value.dict().entries;
  return std::any_of(entries.begin(), entries.end(),
                     [](const auto& entry) { return HoldsObject(entry.second); });
}

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string digits;
  int precision = 0;
  for (; precision <= 16; ++precision) {
    digits = Format("%.*e", precision, value);
    if (std::strtod(digits.c_str(), nullptr) == value) break;
  }
  const int exponent = std::atoi(digits.c_str() + digits.find('e') + 1);
  if (exponent < -4 || exponent >= 16) return digits;
  return Format("%.*f", std::max(precision - exponent, 1), value);
}

void CheckSize(size_t bytes) {
  if (bytes > kMostBytes) throw TemplateError("the template makes a value that is too large");
}

Error TemplateError(const std::string& message) { return DataError(message); }

void ThrowUndefined(const Value& value) { throw TemplateError(value.undefined()); }

}  // namespace gpuctl::trainer::jinja
