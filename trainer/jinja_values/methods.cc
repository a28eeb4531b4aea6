#include "trainer/jinja_values/methods.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "trainer/jinja_values/arguments.h"
#include "trainer/jinja_values/characters.h"

namespace gpuctl::trainer::jinja {
namespace {

using Method = Value (*)(const Value& self, const Arguments& arguments);

template <Ends kEnds>
Value StripMethod(const Value& self, const Arguments& arguments) {
  const Bound bound("strip", arguments, {"chars"});
  const Value chars = bound.GetOr("chars", {});
  if (chars.IsNone()) return std::string(Strip(self.string(), nullptr, kEnds));
  const std::string set = bound.Text("chars", "");
  return std::string(Strip(self.string(), &set, kEnds));
}

template <std::string (*kConvert)(std::string_view)>
Value ConvertMethod(const Value& self, const Arguments& arguments) {
  const Bound bound("str", arguments, {});
  return kConvert(self.string());
}

// Returns whether there are characters and all have the property.
template <bool (*kProperty)(uint32_t)>
Value AllMethod(const Value& self, const Arguments& arguments) {
  const Bound bound("str", arguments, {});
  const std::vector<uint32_t> text = CodePoints(self.string());
  return !text.empty() && std::all_of(text.begin(), text.end(), kProperty);
}

bool IsAlphaOrDigit(uint32_t c) { return IsAlpha(c) || IsDigit(c); }

// Whether a letter has case, and none has the other.
template <bool (*kCase)(uint32_t), bool (*kOther)(uint32_t)>
Value CaseMethod(const Value& self, const Arguments& arguments) {
  const Bound bound("str", arguments, {});
  const std::vector<uint32_t> text = CodePoints(self.string());
  return std::any_of(text.begin(), text.end(), kCase) &&
         std::none_of(text.begin(), text.end(), kOther);
}

bool HasAt(const std::string& text, size_t at, const std::string& part) {
  return text.size() >= part.size() && text.compare(at, part.size(), part) == 0;
}

// Returns whether the text begins (or ends) with the part, or one of the parts.
template <bool kAtEnd>
Value AffixMethod(const Value& self, const Arguments& arguments) {
  const Bound bound(kAtEnd ? "endswith" : "startswith", arguments, {"part"}, 1);
  const Value part = *bound.Get("part");
  const Value::Items parts = part.IsTuple() ? part.items() : Value::Items{part};
  for (const Value& each : parts) {
    if (each.IsUndefined()) ThrowUndefined(each);
    if (!each.IsString()) throw TemplateError("a part must be str, not " + each.TypeName());
    const std::string& text = self.string();
    const std::string& affix = each.string();
    if (affix.size() <= text.size() &&
        HasAt(text, kAtEnd ? text.size() - affix.size() : 0, affix)) {
      return true;
    }
  }
  return false;
}

Value::Items SplitAtSpaces(const std::string& text, int64_t most) {
  const std::vector<uint32_t> all = CodePoints(text);
  Value::Items parts;
  for (size_t i = 0; true;) {
    while (i < all.size() && IsSpace(all[i])) ++i;
    if (i == all.size()) return parts;
    const bool last = static_cast<int64_t>(parts.size()) == most;
    std::string part;
    for (; i < all.size() && (last || !IsSpace(all[i])); ++i) AppendCodePoint(all[i], &part);
    parts.push_back(std::move(part));
  }
}

Value SplitMethod(const Value& self, const Arguments& arguments) {
  const Bound bound("split", arguments, {"sep", "maxsplit"});
  const int64_t most = bound.Integer("maxsplit", -1);
  const std::string& text = self.string();
  if (bound.GetOr("sep", {}).IsNone()) return Value::OfList(SplitAtSpaces(text, most));
  const std::string separator = bound.Text("sep", "");
  if (separator.empty()) throw TemplateError("empty separator");
  Value::Items parts;
  size_t begin = 0;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t end = text.find(separator, begin);
    if (end == std::string::npos) break;
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + separator.size();
  }
  parts.emplace_back(text.substr(begin));
  return Value::OfList(std::move(parts));
}

Value RightSplitMethod(const Value& self, const Arguments& arguments) {
  const Bound bound("rsplit", arguments, {"sep", "maxsplit"}, 1);
  const int64_t most = bound.Integer("maxsplit", -1);
  const std::string separator = bound.Text("sep", "");
  if (separator.empty()) throw TemplateError("empty separator");
  std::string rest = self.string();
  Value::Items parts;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t at = rest.rfind(separator);
    if (at == std::string::npos) break;
    parts.emplace_back(rest.substr(at + separator.size()));
    rest.resize(at);
  }
  parts.emplace_back(std::move(rest));
  std::reverse(parts.begin(), parts.end());
  return Value::OfList(std::move(parts));
}

Value SplitLinesMethod(const Value& self, const Arguments& arguments) {
  const Bound bound("splitlines", arguments, {"keepends"});
  return Value::OfList(SplitLines(self.string(), bound.Flag("keepends", false)));
}

Value ReplaceMethod(const Value& self, const Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  return Replaced(self.string(), bound.Text("old", ""), bound.Text("new", ""),
                  bound.Integer("count", -1));
}

Value JoinMethod(const Value& self, const Arguments& arguments) {
  const Bound bound("join", arguments, {"iterable"}, 1);
  return Joined(self.string(), ItemsOf(*bound.Get("iterable")));
}

// Returns where the part is, in code points, or -1.
template <bool kFromRight>
Value FindMethod(const Value& self, const Arguments& arguments) {
  const Bound bound("find", arguments, {"sub"}, 1);
  const std::string part = bound.Text("sub", "");
  const size_t at = kFromRight ? self.string().rfind(part) : self.string().find(part);
  if (at == std::string::npos) return int64_t{-1};
  return CountCodePoints(std::string_view(self.string()).substr(0, at));
}

Value CountMethod(const Value& self, const Arguments& arguments) {
  const Bound bound("count", arguments, {"value"}, 1);
  if (self.IsList()) {
    const Value::Items& items = self.items();
    return static_cast<int64_t>(std::count(items.begin(), items.end(), *bound.Get("value")));
  }
  const std::string part = bound.Text("value", "");
  if (part.empty()) return CountCodePoints(self.string()) + 1;
  int64_t count = 0;
  for (size_t at = self.string().find(part); at != std::string::npos;
       at = self.string().find(part, at + part.size())) {
    ++count;
  }
  return count;
}

Value IndexMethod(const Value& self, const Arguments& arguments) {
  const Bound bound("index", arguments, {"value"}, 1);
  if (self.IsString()) {
    const Value at = FindMethod<false>(self, arguments);
    if (at.integer() < 0) throw TemplateError("substring not found");
    return at;
  }
  const Value::Items& items = self.items();
  const auto found = std::find(items.begin(), items.end(), *bound.Get("value"));
  if (found == items.end()) throw TemplateError(bound.Get("value")->Repr() + " is not in list");
  return static_cast<int64_t>(found - items.begin());
}

template <bool kPrefix>
Value RemoveAffixMethod(const Value& self, const Arguments& arguments) {
  const Bound bound(kPrefix ? "removeprefix" : "removesuffix", arguments, {"part"}, 1);
  const std::string part = bound.Text("part", "");
  const std::string& text = self.string();
  if (part.size() > text.size()) return text;
  if (kPrefix) return HasAt(text, 0, part) ? text.substr(part.size()) : text;
  const size_t kept = text.size() - part.size();
  return HasAt(text, kept, part) ? text.substr(0, kept) : text;
}

template <bool kFromRight>
Value PartitionMethod(const Value& self, const Arguments& arguments) {
  const Bound bound("partition", arguments, {"sep"}, 1);
  const std::string separator = bound.Text("sep", "");
  if (separator.empty()) throw TemplateError("empty separator");
  const std::string& text = self.string();
  const size_t at = kFromRight ? text.rfind(separator) : text.find(separator);
  if (at == std::string::npos) {
    return kFromRight ? Value::OfTuple({"", "", text}) : Value::OfTuple({text, "", ""});
  }
  return Value::OfTuple({text.substr(0, at), separator, text.substr(at + separator.size())});
}

Value GetMethod(const Value& self, const Arguments& arguments) {
  const Bound bound("get", arguments, {"key", "default"}, 1);
  CheckHashable(*bound.Get("key"));
  const Value* found = self.dict().Find(*bound.Get("key"));
  return found != nullptr ? *found : bound.GetOr("default", {});
}

enum class Of { kKeys, kValues, kItems };
template <Of kOf>
Value EntriesMethod(const Value& self, const Arguments& arguments) {
  const Bound bound("dict", arguments, {});
  Value::Items items;
  for (const auto& [key, value] : self.dict().entries) {
    items.push_back(kOf == Of::kKeys     ? key
                    : kOf == Of::kValues ? value
                                         : Value::OfTuple({key, value}));
  }
  return Value::OfKind(Value::ListKind::kView, std::move(items));
}

Value CopyMethod(const Value& self, const Arguments&) { return self; }

using MethodTable = std::map<std::string, Method>;

const MethodTable& StringMethods() {
  static const auto* const table = new MethodTable{
      {"capitalize", ConvertMethod<Capitalize>},
      {"count", CountMethod},
      {"endswith", AffixMethod<true>},
      {"find", FindMethod<false>},
      {"index", IndexMethod},
      {"isalnum", AllMethod<IsAlphaOrDigit>},
      {"isalpha", AllMethod<IsAlpha>},
      {"isdecimal", AllMethod<IsDigit>},
      {"islower", CaseMethod<IsLower, IsUpper>},
      {"isspace", AllMethod<IsSpace>},
      {"isupper", CaseMethod<IsUpper, IsLower>},
      {"join", JoinMethod},
      {"lower", ConvertMethod<Lower>},
      {"lstrip", StripMethod<Ends::kLeft>},
      {"partition", PartitionMethod<false>},
      {"removeprefix", RemoveAffixMethod<true>},
      {"removesuffix", RemoveAffixMethod<false>},
      {"replace", ReplaceMethod},
      {"rfind", FindMethod<true>},
      {"rpartition", PartitionMethod<true>},
      {"rsplit", RightSplitMethod},
      {"rstrip", StripMethod<Ends::kRight>},
      {"split", SplitMethod},
      {"splitlines", SplitLinesMethod},
      {"startswith", AffixMethod<false>},
      {"strip", StripMethod<Ends::kBoth>},
      {"title", ConvertMethod<Title>},
      {"upper", ConvertMethod<Upper>},
  };
  return *table;
}

const MethodTable& ListMethods() {
  static const auto* const table = new MethodTable{{"count", CountMethod}, {"index", IndexMethod}};
  return *table;
}

const MethodTable& DictMethods() {
  static const auto* const table = new MethodTable{
      {"copy", CopyMethod},
      {"get", GetMethod},
      {"items", EntriesMethod<Of::kItems>},
      {"keys", EntriesMethod<Of::kKeys>},
      {"values", EntriesMethod<Of::kValues>},
  };
  return *table;
}

// Methods that Python has. They are known so that a dict's key of that name is not taken for them.
bool IsOtherMethod(const Value& value, const std::string& name) {
  static const auto* const of_string = new std::set<std::string>{
      "casefold", "center",       "encode",    "expandtabs",  "format",  "format_map", "isascii",
      "isdigit",  "isidentifier", "isnumeric", "isprintable", "istitle", "ljust",      "maketrans",
      "rindex",   "rjust",        "swapcase",  "translate",   "zfill"};
  static const auto* const of_list = new std::set<std::string>{
      "append", "clear", "copy", "extend", "insert", "pop", "remove", "reverse", "sort"};
  static const auto* const of_dict =
      new std::set<std::string>{"clear", "fromkeys", "pop", "popitem", "setdefault", "update"};
  if (value.IsString()) return of_string->count(name) > 0;
  if (value.IsList()) return value.Is(Value::ListKind::kList) && of_list->count(name) > 0;
  return value.IsDict() && of_dict->count(name) > 0;
}

}  // namespace

std::optional<Value> MethodOf(const Value& value, const std::string& name) {
  if (!value.IsString() && !value.IsList() && !value.IsDict()) return std::nullopt;
  if (value.Is(Value::ListKind::kView)) return std::nullopt;
  const MethodTable& table = value.IsString() ? StringMethods()
                             : value.IsList() ? ListMethods()
                                              : DictMethods();
  const std::string full = value.TypeName() + "." + name;
  Function::Body body;
  if (const auto found = table.find(name); found != table.end()) {
    body = [value, method = found->second](const Arguments& arguments) {
      return method(value, arguments);
    };
  } else if (IsOtherMethod(value, name)) {
    body = [full](const Arguments&) -> Value {
      throw TemplateError("the method " + full + " is not supported");
    };
  } else {
    return std::nullopt;
  }
  return Value(std::shared_ptr<const Object>(std::make_shared<Function>(std::move(body))));
}

std::string Replaced(const std::string& text, const std::string& from, const std::string& to,
                     int64_t count) {
  std::string out;
  size_t begin = 0;
  if (from.empty()) {  // stands before each character and at the end
    for (const uint32_t c : CodePoints(text)) {
      if (count != 0) out += to;
      CheckSize(out.size());
      if (count > 0) --count;
      AppendCodePoint(c, &out);
    }
    return count != 0 ? out + to : out;
  }
  for (size_t at = text.find(from); at != std::string::npos && count != 0;
       at = text.find(from, begin)) {
    out.append(text, begin, at - begin);
    out += to;
    CheckSize(out.size());
    begin = at + from.size();
    if (count > 0) --count;
  }
  return out.append(text, begin, std::string::npos);
}

Value::Items SplitLines(const std::string& text, bool keep_ends) {
  const auto ends_line = [](uint32_t c) {
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
  };
  const std::vector<uint32_t> all = CodePoints(text);
  Value::Items lines;
  for (size_t i = 0; i < all.size();) {
    std::string line;
    while (i < all.size() && !ends_line(all[i])) AppendCodePoint(all[i++], &line);
    if (i < all.size()) {
      const size_t count = all[i] == '\r' && i + 1 < all.size() && all[i + 1] == '\n' ? 2 : 1;
      for (size_t end = i + count; i < end; ++i) {
        if (keep_ends) AppendCodePoint(all[i], &line);
      }
    }
    lines.emplace_back(std::move(line));
  }
  return lines;
}

std::string Joined(const std::string& separator, const Value::Items& items) {
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].IsUndefined()) ThrowUndefined(items[i]);
    if (!items[i].IsString()) {
      throw TemplateError("sequence item " + std::to_string(i) + ": expected str instance, " +
                          items[i].TypeName() + " found");
    }
    if (i > 0) out += separator;
    out += items[i].string();
    CheckSize(out.size());
  }
  return out;
}

}  // namespace gpuctl::trainer::jinja
