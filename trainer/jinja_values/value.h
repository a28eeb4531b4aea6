// The values of a Jinja template: those of Python, as far as chat templates use them.
//
// Truth, equality, order, str() and repr() are Python's. Strings are UTF-8 and count in code
// points. Lists and dicts are immutable, as in the sandbox that transformers renders templates in.

#ifndef TRAINER_JINJA_VALUES_VALUE_H_
#define TRAINER_JINJA_VALUES_VALUE_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "trainer/base/error.h"

namespace gpuctl::trainer::jinja {

class Value;

// What the caller of a macro, a function or a method gives it.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// A value that has behaviour: a function, a macro, a namespace, the variable `loop`.
class Object {
 public:
  virtual ~Object() = default;
  // Returns the attribute, or undefined.
  virtual Value Attribute(const std::string& name) const;
  virtual Value Call(const Arguments& arguments) const;
  virtual bool callable() const { return false; }
};

// A name without a value. Printing it gives nothing, almost everything else is an error.
struct Undefined {
  std::string what;  // "'x' is undefined"
};
struct None {};

class Value {
 public:
  using Items = std::vector<Value>;
  using Entries = std::vector<std::pair<Value, Value>>;  // in their order of insertion
  enum class ListKind {
    kList,
    kTuple,
    kRange,  // of range()
    kView,   // of a dict's keys, values or items: has no order of its own and no indices
  };
  struct List {
    Items items;
    ListKind kind = ListKind::kList;
    int depth = 0;  // of lists and dicts within each other
  };
  struct Dict {
    Entries entries;
    int depth = 0;
    // Returns the entry's value, or null.
    const Value* Find(const Value& key) const;
    void Set(Value key, Value value);
  };

  Value() : data_(None()) {}
  Value(Undefined undefined) : data_(std::move(undefined)) {}                // NOLINT
  Value(bool value) : data_(value) {}                                        // NOLINT
  Value(int64_t value) : data_(value) {}                                     // NOLINT
  Value(double value) : data_(value) {}                                      // NOLINT
  Value(std::string text)                                                    // NOLINT
      : data_(std::make_shared<const std::string>(std::move(text))) {}       //
  Value(const char* text) : Value(std::string(text)) {}                      // NOLINT
  Value(std::shared_ptr<const Object> object) : data_(std::move(object)) {}  // NOLINT
  // These throw when lists and dicts are nested too deeply.
  static Value OfList(Items items) { return OfKind(ListKind::kList, std::move(items)); }
  static Value OfTuple(Items items) { return OfKind(ListKind::kTuple, std::move(items)); }
  static Value OfKind(ListKind kind, Items items) { return Value(List{std::move(items), kind, 0}); }
  static Value OfDict(Dict dict);
  // Converts JSON; the order of keys stays. Throws Error(kBadData) for a number above 2^63 - 1, and
  // for more than 500 arrays and objects within each other.
  static Value OfJson(const nlohmann::ordered_json& json) { return OfJson(json, 0); }

  bool IsUndefined() const { return std::holds_alternative<Undefined>(data_); }
  bool IsNone() const { return std::holds_alternative<None>(data_); }
  bool IsBool() const { return std::holds_alternative<bool>(data_); }
  bool IsInt() const { return std::holds_alternative<int64_t>(data_); }  // not of a bool
  bool IsFloat() const { return std::holds_alternative<double>(data_); }
  bool IsNumber() const { return IsBool() || IsInt() || IsFloat(); }
  bool IsString() const { return std::holds_alternative<StringPtr>(data_); }
  bool IsList() const { return std::holds_alternative<ListPtr>(data_); }  // of any kind
  bool IsTuple() const { return Is(ListKind::kTuple); }
  bool Is(ListKind kind) const { return IsList() && list().kind == kind; }
  bool IsDict() const { return std::holds_alternative<DictPtr>(data_); }
  bool IsObject() const { return std::holds_alternative<ObjectPtr>(data_); }

  // These need the kind to be right.
  const std::string& undefined() const { return std::get<Undefined>(data_).what; }
  const std::string& string() const { return *std::get<StringPtr>(data_); }
  const List& list() const { return *std::get<ListPtr>(data_); }
  const Items& items() const { return list().items; }
  const Dict& dict() const { return *std::get<DictPtr>(data_); }
  const Object& object() const { return *std::get<ObjectPtr>(data_); }
  const std::shared_ptr<const Object>& object_ptr() const { return std::get<ObjectPtr>(data_); }
  int64_t integer() const {
    return IsBool() ? (std::get<bool>(data_) ? 1 : 0) : std::get<int64_t>(data_);
  }
  double number() const {
    return IsFloat() ? std::get<double>(data_) : static_cast<double>(integer());
  }

  bool Truth() const;
  // Returns str(value), "" for undefined. Throws for objects, generators, ranges and views: nobody
  // wants to read "<generator object at 0x…>".
  std::string Text() const;
  // Returns repr(value).
  std::string Repr() const;
  // Returns Python's name of the type: "str", "dict", …
  std::string TypeName() const;

 private:
  using StringPtr = std::shared_ptr<const std::string>;
  using ListPtr = std::shared_ptr<const List>;
  using DictPtr = std::shared_ptr<const Dict>;
  using ObjectPtr = std::shared_ptr<const Object>;

  static Value OfJson(const nlohmann::ordered_json& json, int depth);
  explicit Value(List list);
  int depth() const { return IsList() ? list().depth : IsDict() ? dict().depth : 0; }

  std::variant<None, Undefined, bool, int64_t, double, StringPtr, ListPtr, DictPtr, ObjectPtr>
      data_;
};

bool operator==(const Value& a, const Value& b);
inline bool operator!=(const Value& a, const Value& b) { return !(a == b); }

// Returns a < b. Throws for values that have no order.
bool Less(const Value& a, const Value& b);
inline bool AtMost(const Value& a, const Value& b) { return Less(a, b) || a == b; }

// Throws for what cannot be a key: lists and dicts.
void CheckHashable(const Value& key);

// Returns whether `item` is in `container`: a substring, an item or a key.
bool Contains(const Value& container, const Value& item);

// Returns the items of a list, the keys of a dict, the characters of a string, nothing of an
// undefined value, what is left of a generator. Throws for others.
Value::Items ItemsOf(const Value& value);

// Returns what filters like map give: the items are made when they are first asked for, and can be
// had once.
using MakeItems = Value::Items (*)(const Value& value, const Arguments& arguments);
Value GeneratorOf(MakeItems make, Value value, Arguments arguments);
bool IsGenerator(const Value& value);

// Returns the number of items, or code points. Throws for what has none.
int64_t Length(const Value& value);

// Returns whether the value is an object, or has one within.
bool HoldsObject(const Value& value);

// Returns repr() of a double: the shortest text that gives it back.
std::string FloatText(double value);

// Throws when a text or list of so many bytes would be too large. A template comes with a
// downloaded model: it must not fill the memory.
void CheckSize(size_t bytes);

// An error while rendering; a line is put before it on the way.
Error TemplateError(const std::string& message);
// Throws the error that an undefined value gives where a value is needed.
[[noreturn]] void ThrowUndefined(const Value& value);

}  // namespace gpuctl::trainer::jinja

#endif  // TRAINER_JINJA_VALUES_VALUE_H_
