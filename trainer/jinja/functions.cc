#include "trainer/jinja/functions.h"

#include <memory>

#include "trainer/jinja_values/arguments.h"

namespace gpuctl::trainer::jinja {
namespace {

constexpr int64_t kMostRange = 100'000;  // as in Jinja's sandbox

Value Range(const Arguments& arguments) {
  const Bound bound("range", arguments, {"start", "stop", "step"}, 1);
  const bool only_stop = bound.Get("stop") == nullptr;
  const int64_t start = only_stop ? 0 : bound.Integer("start", 0);
  const int64_t stop = only_stop ? bound.Integer("start", 0) : bound.Integer("stop", 0);
  const int64_t step = bound.Integer("step", 1);
  if (step == 0) throw TemplateError("range() arg 3 must not be zero");
  Value::Items items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    items.emplace_back(i);
    if (static_cast<int64_t>(items.size()) > kMostRange) throw TemplateError("Range too big.");
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::OfKind(Value::ListKind::kRange, std::move(items));
}

Value MakeDict(const Arguments& arguments) {
  Value::Dict dict;
  if (arguments.positional.size() > 1) throw TemplateError("dict() takes at most one dict");
  if (!arguments.positional.empty()) {
    if (!arguments.positional[0].IsDict()) throw TemplateError("dict() takes a dict");
    dict = arguments.positional[0].dict();
  }
  for (const auto& [name, value] : arguments.named) dict.Set(name, value);
  return Value::OfDict(std::move(dict));
}

Value MakeNamespace(const Arguments& arguments) {
  const Value dict = MakeDict(arguments);
  const auto made = std::make_shared<Namespace>();
  for (const auto& [name, value] : dict.dict().entries) made->Set(name.Text(), value);
  return std::shared_ptr<const Object>(made);
}

// Gives nothing when it is called first, then the separator.
class Joiner : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  Value Call(const Arguments&) const override {
    if (used_) return separator_;
    used_ = true;
    return "";
  }
  bool callable() const override { return true; }

 private:
  const Value separator_;
  mutable bool used_ = false;
};

Value MakeJoiner(const Arguments& arguments) {
  const Bound bound("joiner", arguments, {"sep"});
  return std::shared_ptr<const Object>(std::make_shared<Joiner>(bound.GetOr("sep", ", ")));
}

// Gives its items one after the other, and begins again.
class Cycler : public Object, public std::enable_shared_from_this<Cycler> {
 public:
  explicit Cycler(Value::Items items) : items_(std::move(items)) {}
  Value Attribute(const std::string& name) const override {
    if (name == "current") return items_[place_];
    if (name != "next" && name != "reset") return Object::Attribute(name);
    const auto body = [self = shared_from_this(), name](const Arguments&) -> Value {
      if (name == "reset") {
        self->place_ = 0;
        return {};
      }
      const Value item = self->items_[self->place_];
      self->place_ = (self->place_ + 1) % self->items_.size();
      return item;
    };
    return std::shared_ptr<const Object>(std::make_shared<Function>(body));
  }

 private:
  const Value::Items items_;
  mutable size_t place_ = 0;
};

Value MakeCycler(const Arguments& arguments) {
  if (arguments.positional.empty()) throw TemplateError("at least one item has to be provided");
  return std::shared_ptr<const Object>(std::make_shared<Cycler>(arguments.positional));
}

Value RaiseException(const Arguments& arguments) {
  const Bound bound("raise_exception", arguments, {"message"}, 1);
  throw TemplateError("the template says: " + bound.Get("message")->Text());
}

Value TimeText(std::time_t now, const Arguments& arguments) {
  const Bound bound("strftime_now", arguments, {"format"}, 1);
  const std::string format = bound.Text("format", "");
  std::tm local{};
  localtime_r(&now, &local);
  char text[512];
  const size_t size = std::strftime(text, sizeof(text), format.c_str(), &local);
  if (size == 0 && !format.empty()) throw TemplateError("strftime_now() gives too long a text");
  return std::string(text, size);
}

}  // namespace

Value Namespace::Attribute(const std::string& name) const {
  const auto found = attributes_.find(name);
  return found != attributes_.end() ? found->second : Object::Attribute(name);
}

void Namespace::Set(const std::string& name, Value value) const {
  if (HoldsObject(value))
    throw TemplateError("a namespace with functions or namespaces in it is not supported");
  attributes_[name] = std::move(value);
}

std::map<std::string, Value> GlobalFunctions(std::time_t now) {
  std::map<std::string, Value> functions;
  const auto add = [&functions](const std::string& name, Function::Body body) {
    functions[name] = std::shared_ptr<const Object>(std::make_shared<Function>(std::move(body)));
  };
  add("range", Range);
  add("dict", MakeDict);
  add("namespace", MakeNamespace);
  add("joiner", MakeJoiner);
  add("cycler", MakeCycler);
  add("raise_exception", RaiseException);
  add("strftime_now", [now](const Arguments& arguments) { return TimeText(now, arguments); });
  return functions;
}

}  // namespace gpuctl::trainer::jinja
