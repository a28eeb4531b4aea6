#include "trainer/jinja_values/filters.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>

#include "trainer/base/text.h"
#include "trainer/jinja_values/arguments.h"
#include "trainer/jinja_values/characters.h"
#include "trainer/jinja_values/json_text.h"
#include "trainer/jinja_values/methods.h"
#include "trainer/jinja_values/operators.h"
#include "trainer/jinja_values/predicates.h"

namespace gpuctl::trainer::jinja {
namespace {

using FilterFunction = Value (*)(const Value& value, const Arguments& arguments);

void TakeNone(const std::string& filter, const Arguments& arguments) {
  const Bound bound(filter, arguments, {});
}

// --- Texts

template <std::string (*kConvert)(std::string_view)>
Value ConvertText(const Value& value, const Arguments& arguments) {
  TakeNone("filter", arguments);
  return kConvert(value.Text());
}

// Every word begins large; words also begin behind a hyphen or a bracket.
std::string TitleWords(std::string_view text) {
  std::string out;
  std::string letter;
  bool begins = true;
  for (const uint32_t c : CodePoints(text)) {
    letter.clear();
    AppendCodePoint(c, &letter);
    out += begins ? Upper(letter) : Lower(letter);
    begins = IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  }
  return out;
}

Value Trim(const Value& value, const Arguments& arguments) {
  const Bound bound("trim", arguments, {"chars"});
  const std::string text = value.Text();
  if (bound.GetOr("chars", {}).IsNone()) return std::string(Strip(text, nullptr, Ends::kBoth));
  const std::string set = bound.Text("chars", "");
  return std::string(Strip(text, &set, Ends::kBoth));
}

Value Replace(const Value& value, const Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  return Replaced(value.Text(), bound.Get("old")->Text(), bound.Get("new")->Text(),
                  bound.GetOr("count", {}).IsNone() ? -1 : bound.Integer("count", -1));
}

// Puts `width` (or a text) before every line but the first and, unless asked, empty ones.
Value Indent(const Value& value, const Arguments& arguments) {
  const Bound bound("indent", arguments, {"width", "first", "blank"});
  if (value.IsUndefined()) ThrowUndefined(value);
  if (!value.IsString()) throw TemplateError("indent() needs a string, not " + value.TypeName());
  const Value width = bound.GetOr("width", int64_t{4});
  const std::string indent =
      width.IsString() ? width.string() : Calculate(Arithmetic::kMultiply, " ", width).string();
  const bool blank = bound.Flag("blank", false);
  std::string out;
  bool first = true;
  for (const Value& line : SplitLines(value.string() + "\n", false)) {  // a last newline is kept
    if (!first) out += '\n';
    if (first ? bound.Flag("first", false) : (blank || !line.string().empty())) out += indent;
    out += line.string();
    CheckSize(out.size());
    first = false;
  }
  return out;
}

Value ToJson(const Value& value, const Arguments& arguments) {
  const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  if (bound.Flag("ensure_ascii", false)) throw TemplateError("ensure_ascii is not supported");
  JsonStyle style;
  style.sort_keys = bound.Flag("sort_keys", false);
  if (const Value indent = bound.GetOr("indent", {}); !indent.IsNone()) {
    style.indent = indent.IsString() ? indent.string()
                                     : Calculate(Arithmetic::kMultiply, " ", indent).string();
    style.between_items = ",";
  }
  if (const Value separators = bound.GetOr("separators", {}); !separators.IsNone()) {
    const Value::Items both = ItemsOf(separators);
    if (both.size() != 2) throw TemplateError("separators must be two");
    style.between_items = both[0].Text();
    style.after_key = both[1].Text();
  }
  return JsonText(value, style);
}

Value ToText(const Value& value, const Arguments& arguments) {
  TakeNone("string", arguments);
  return value.Text();
}

// --- Numbers

// Returns the digits of what Python's int() and float() may take, without what only they ignore, or
// "": other texts are no numbers.
std::string NumberText(const std::string& value) {
  const std::string_view text = Strip(value, nullptr, Ends::kBoth);
  const auto numeral = [&](size_t i) {
    return i < text.size() && text[i] >= '0' && text[i] <= '9';
  };
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_' && i > 0 && numeral(i - 1) && numeral(i + 1)) continue;
    // What strtod takes beyond that: hexadecimal numbers and nan(...).
    if (std::strchr("_xX(", text[i]) != nullptr) return "";
    plain += text[i];
  }
  for (const uint32_t c : CodePoints(plain)) {
    if (c >= 0x80 && IsDigit(c)) throw TemplateError("digits but 0 to 9 are not supported");
  }
  return plain;
}

std::optional<double> FloatOf(const std::string& plain) {
  char* end = nullptr;
  const double number = std::strtod(plain.c_str(), &end);
  if (plain.empty() || end != plain.c_str() + plain.size()) return std::nullopt;
  return number;
}

Value ToInteger(const Value& value, const Arguments& arguments) {
  const Bound bound("int", arguments, {"default", "base"});
  if (bound.Integer("base", 10) != 10)
    throw TemplateError("int() of another base is not supported");
  const Value otherwise = bound.GetOr("default", int64_t{0});
  if (value.IsUndefined()) ThrowUndefined(value);
  if (value.IsInt() || value.IsBool()) return value.integer();
  double number = 0;
  if (value.IsFloat()) {
    number = value.number();
  } else if (value.IsString()) {
    const std::string text = NumberText(value.string());
    char* end = nullptr;
    errno = 0;
    const int64_t integer = std::strtoll(text.c_str(), &end, 10);
    if (!text.empty() && end == text.c_str() + text.size() && errno == 0) return integer;
    const std::optional<double> other = FloatOf(text);
    if (!other) return otherwise;
    number = *other;
  } else {
    return otherwise;
  }
  if (std::isnan(number)) return otherwise;
  // Versions of Jinja differ.
  if (std::isinf(number)) throw TemplateError("int of an infinite number is not supported");
  if (std::fabs(number) >= 9.2e18) throw TemplateError("a number is too large");
  return static_cast<int64_t>(number);
}

Value ToFloat(const Value& value, const Arguments& arguments) {
  const Bound bound("float", arguments, {"default"});
  const Value otherwise = bound.GetOr("default", 0.0);
  if (value.IsUndefined()) ThrowUndefined(value);
  if (value.IsNumber()) return value.number();
  if (!value.IsString()) return otherwise;
  const std::optional<double> number = FloatOf(NumberText(value.string()));
  return number ? Value(*number) : otherwise;
}

Value Absolute(const Value& value, const Arguments& arguments) {
  TakeNone("abs", arguments);
  if (value.IsBool()) return value.integer();
  return Less(value, int64_t{0}) ? WithSign(/*negative=*/true, value) : value;
}

Value Round(const Value& value, const Arguments& arguments) {
  const Bound bound("round", arguments, {"precision", "method"});
  if (!value.IsNumber()) throw TemplateError("round() needs a number");
  const std::string method = bound.Text("method", "common");
  const int64_t precision = bound.Integer("precision", 0);
  if (precision < 0 || precision > 15) throw TemplateError("round() takes 0 to 15 digits");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return std::ceil(value.number() * scale) / scale;
  if (method == "floor") return std::floor(value.number() * scale) / scale;
  if (method != "common") throw TemplateError("method must be common, ceil or floor");
  if (!value.IsFloat()) return value.integer();
  // printf rounds the exact value, and a half to even, as Python does.
  return std::strtod(Format("%.*f", static_cast<int>(precision), value.number()).c_str(), nullptr);
}

// --- Sequences

Value Count(const Value& value, const Arguments& arguments) {
  TakeNone("length", arguments);
  return Length(value);
}

Value First(const Value& value, const Arguments& arguments) {
  TakeNone("first", arguments);
  const Value::Items items = ItemsOf(value);
  return items.empty() ? Value(Undefined{"No first item, sequence was empty."}) : items.front();
}

Value Last(const Value& value, const Arguments& arguments) {
  TakeNone("last", arguments);
  if (IsGenerator(value)) throw TemplateError("a generator is not reversible");
  const Value::Items items = ItemsOf(value);
  return items.empty() ? Value(Undefined{"No last item, sequence was empty."}) : items.back();
}

Value ToList(const Value& value, const Arguments& arguments) {
  TakeNone("list", arguments);
  return Value::OfList(ItemsOf(value));
}

Value::Items Reversed(const Value& value, const Arguments&) {
  Value::Items items = ItemsOf(value);
  std::reverse(items.begin(), items.end());
  return items;
}

Value Reverse(const Value& value, const Arguments& arguments) {
  TakeNone("reverse", arguments);
  if (value.IsString()) return GetSlice(value, {}, {}, int64_t{-1});
  if (!value.IsList() && !value.IsDict() && !value.IsUndefined() && !IsGenerator(value)) {
    throw TemplateError("argument must be iterable");
  }
  return GeneratorOf(Reversed, value, {});
}

// Returns a.b.c of an item; digits are indices. Each part that is undefined becomes `otherwise`, if
// there is such a value.
Value ByPath(const Value& item, const Value& path, const Value* otherwise = nullptr) {
  const auto part = [&](const Value& of, const Value& name) {
    Value found = GetItem(of, name);
    return found.IsUndefined() && otherwise != nullptr ? *otherwise : found;
  };
  if (!path.IsString()) return part(item, path);
  Value at = item;
  std::string rest = path.string() + ".";
  while (!rest.empty()) {
    const size_t end = rest.find('.');
    const std::string name = rest.substr(0, end);
    rest.erase(0, end + 1);
    const bool digits =
        !name.empty() && name.size() < 10 &&
        std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    at = part(at, digits ? Value(static_cast<int64_t>(std::stoi(name))) : Value(name));
  }
  return at;
}

Value Join(const Value& value, const Arguments& arguments) {
  const Bound bound("join", arguments, {"d", "attribute"});
  const Value attribute = bound.GetOr("attribute", {});
  Value::Items texts;
  for (const Value& item : ItemsOf(value)) {
    texts.emplace_back((attribute.IsNone() ? item : ByPath(item, attribute)).Text());
  }
  return Joined(bound.GetOr("d", "").Text(), texts);
}

Value Sum(const Value& value, const Arguments& arguments) {
  const Bound bound("sum", arguments, {"attribute", "start"});
  const Value attribute = bound.GetOr("attribute", {});
  Value sum = bound.GetOr("start", int64_t{0});
  for (const Value& item : ItemsOf(value)) {
    sum = Calculate(Arithmetic::kAdd, sum, attribute.IsNone() ? item : ByPath(item, attribute));
  }
  return sum;
}

// Returns what items are compared by: texts without regard to case, unless asked.
Value KeyOf(const Value& item, const Value& attribute, bool case_sensitive) {
  const Value key = attribute.IsNone() ? item : ByPath(item, attribute);
  return key.IsString() && !case_sensitive ? Value(Lower(key.string())) : key;
}

// Returns the keys of attributes "a,b" as a list: in lists undefined values are equal.
Value SortKeyOf(const Value& item, const Value& attribute, bool case_sensitive) {
  if (!attribute.IsString()) return Value::OfList({KeyOf(item, attribute, case_sensitive)});
  Value::Items keys;
  std::string rest = attribute.string() + ",";
  while (!rest.empty()) {
    const size_t end = rest.find(',');
    keys.push_back(KeyOf(item, rest.substr(0, end), case_sensitive));
    rest.erase(0, end + 1);
  }
  return Value::OfList(std::move(keys));
}

Value Sort(const Value& value, const Arguments& arguments) {
  const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const Value attribute = bound.GetOr("attribute", {});
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : ItemsOf(value)) {
    keyed.emplace_back(SortKeyOf(item, attribute, bound.Flag("case_sensitive", false)), item);
  }
  const bool reverse = bound.Flag("reverse", false);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? Less(b.first, a.first) : Less(a.first, b.first);
  });
  Value::Items items;
  for (auto& each : keyed) items.push_back(std::move(each.second));
  return Value::OfList(std::move(items));
}

template <bool kGreatest>
Value Extreme(const Value& value, const Arguments& arguments) {
  const Bound bound(kGreatest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const Value attribute = bound.GetOr("attribute", {});
  const bool exact = bound.Flag("case_sensitive", false);
  const Value::Items items = ItemsOf(value);
  if (items.empty()) return Undefined{"No aggregated item, sequence was empty."};
  size_t best = 0;
  Value best_key = KeyOf(items[0], attribute, exact);
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = KeyOf(items[i], attribute, exact);
    if (kGreatest ? !Less(best_key, key) : !Less(key, best_key)) continue;
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}

Value::Items UniqueItems(const Value& value, const Arguments& arguments) {
  const Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  constexpr size_t kMostDistinct = 10'000;  // each is compared with all others
  Value::Items keys;
  Value::Items items;
  for (const Value& item : ItemsOf(value)) {
    const Value key =
        KeyOf(item, bound.GetOr("attribute", {}), bound.Flag("case_sensitive", false));
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    if (keys.size() == kMostDistinct) throw TemplateError("unique() of so many is not supported");
    keys.push_back(key);
    items.push_back(item);
  }
  return items;
}

Value::Items Batches(const Value& value, const Arguments& arguments) {
  const Bound bound("batch", arguments, {"linecount", "fill_with"}, 1);
  const auto size = static_cast<size_t>(std::max<int64_t>(bound.Integer("linecount", 1), 1));
  const Value fill = bound.GetOr("fill_with", {});
  Value::Items batches;
  Value::Items batch;
  const auto finish = [&] { batches.push_back(Value::OfList(std::move(batch))), batch.clear(); };
  for (const Value& item : ItemsOf(value)) {
    if (batch.size() == size) finish();
    batch.push_back(item);
  }
  if (batch.empty()) return batches;
  CheckSize(fill.IsNone() ? 0 : size);
  while (!fill.IsNone() && batch.size() < size) batch.push_back(fill);
  finish();
  return batches;
}

Value::Items PairsOf(const Value& value, const Arguments& arguments) {
  TakeNone("items", arguments);
  if (value.IsUndefined()) return {};
  if (!value.IsDict()) throw TemplateError("Can only get item pairs from a mapping.");
  Value::Items items;
  for (const auto& [key, item] : value.dict().entries) items.push_back(Value::OfTuple({key, item}));
  return items;
}

Value DictSort(const Value& value, const Arguments& arguments) {
  const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = bound.Text("by", "key");
  if (value.IsUndefined()) ThrowUndefined(value);
  if (by != "key" && by != "value") throw TemplateError("by must be key or value");
  const Arguments sort = {{bound.Flag("reverse", false), bound.Flag("case_sensitive", false),
                           int64_t{by == "key" ? 0 : 1}},
                          {}};
  return Sort(Value::OfList(PairsOf(value, {})), sort);
}

// --- Choices

Value Default(const Value& value, const Arguments& arguments) {
  const Bound bound("default", arguments, {"default_value", "boolean"});
  const bool missing = value.IsUndefined() || (bound.Flag("boolean", false) && !value.Truth());
  return missing ? bound.GetOr("default_value", "") : value;
}

// select, reject, selectattr and rejectattr: the test's name and its arguments follow.
template <bool kWanted, bool kByAttribute>
Value::Items Selected(const Value& value, const Arguments& arguments) {
  if (!value.Truth()) return {};
  Arguments rest = arguments;
  const auto take = [&rest] {
    Value first = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    return first;
  };
  Value attribute;
  if (kByAttribute) {
    if (rest.positional.empty()) throw TemplateError("selectattr() needs an attribute");
    attribute = take();
  }
  const bool has_test = !rest.positional.empty();
  const std::string test = has_test ? take().Text() : "";
  Value::Items chosen;
  for (const Value& item : ItemsOf(value)) {
    const Value looked_at = kByAttribute ? ByPath(item, attribute) : item;
    if ((has_test ? Test(test, looked_at, rest) : looked_at.Truth()) == kWanted) {
      chosen.push_back(item);
    }
  }
  return chosen;
}

Value::Items Mapped(const Value& value, const Arguments& arguments) {
  if (!value.Truth()) return {};
  Value::Items mapped;
  if (arguments.positional.empty()) {
    const Bound bound("map", arguments, {"attribute", "default"}, 1);
    for (const Value& item : ItemsOf(value)) {
      const Value* otherwise = bound.Get("default");
      if (otherwise != nullptr && otherwise->IsNone()) otherwise = nullptr;
      mapped.push_back(ByPath(item, *bound.Get("attribute"), otherwise));
    }
    return mapped;
  }
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  for (const Value& item : ItemsOf(value)) {
    mapped.push_back(Filter(arguments.positional[0].Text(), item, rest));
  }
  return mapped;
}

template <MakeItems kMake>
Value Lazily(const Value& value, const Arguments& arguments) {
  return GeneratorOf(kMake, value, arguments);
}

const std::map<std::string, FilterFunction>& Filters() {
  static const auto* const table = new std::map<std::string, FilterFunction>{
      {"abs", Absolute},
      {"batch", Lazily<Batches>},
      {"capitalize", ConvertText<Capitalize>},
      {"count", Count},
      {"d", Default},
      {"default", Default},
      {"dictsort", DictSort},
      {"first", First},
      {"float", ToFloat},
      {"indent", Indent},
      {"int", ToInteger},
      {"items", Lazily<PairsOf>},
      {"join", Join},
      {"last", Last},
      {"length", Count},
      {"list", ToList},
      {"lower", ConvertText<Lower>},
      {"map", Lazily<Mapped>},
      {"max", Extreme<true>},
      {"min", Extreme<false>},
      {"reject", Lazily<Selected<false, false>>},
      {"rejectattr", Lazily<Selected<false, true>>},
      {"replace", Replace},
      {"reverse", Reverse},
      {"round", Round},
      {"safe", ToText},
      {"select", Lazily<Selected<true, false>>},
      {"selectattr", Lazily<Selected<true, true>>},
      {"sort", Sort},
      {"string", ToText},
      {"sum", Sum},
      {"title", ConvertText<TitleWords>},
      {"tojson", ToJson},
      {"trim", Trim},
      {"unique", Lazily<UniqueItems>},
      {"upper", ConvertText<Upper>},
  };
  return *table;
}

}  // namespace

bool IsFilter(const std::string& name) { return Filters().count(name) > 0; }

std::vector<std::string> FilterNames() {
  std::vector<std::string> names;
  for (const auto& entry : Filters()) names.push_back(entry.first);
  return names;
}

Value Filter(const std::string& name, const Value& value, const Arguments& arguments) {
  const auto found = Filters().find(name);
  if (found == Filters().end()) throw TemplateError("no filter named '" + name + "'");
  return found->second(value, arguments);
}

}  // namespace gpuctl::trainer::jinja
