#include "trainer/jinja/loop.h"

#include "trainer/jinja_values/arguments.h"

namespace gpuctl::trainer::jinja {

Value LoopVariable::Attribute(const std::string& name) const {
  const auto place = static_cast<int64_t>(place_);
  const auto length = static_cast<int64_t>(items_.size());
  if (name == "index") return place + 1;
  if (name == "index0") return place;
  if (name == "revindex") return length - place;
  if (name == "revindex0") return length - place - 1;
  if (name == "first") return place == 0;
  if (name == "last") return place + 1 == length;
  if (name == "length") return length;
  if (name == "depth") return int64_t{depth_} + 1;
  if (name == "depth0") return int64_t{depth_};
  if (name == "previtem") {
    return place > 0 ? items_[place_ - 1] : Value(Undefined{"there is no previous item"});
  }
  if (name == "nextitem") {
    return place + 1 < length ? items_[place_ + 1] : Value(Undefined{"there is no next item"});
  }
  if (name != "cycle" && name != "changed") return Object::Attribute(name);
  const auto body = [self = shared_from_this(), name](const Arguments& arguments) {
    return name == "cycle" ? self->Cycle(arguments) : self->Changed(arguments);
  };
  return std::shared_ptr<const Object>(std::make_shared<Function>(body));
}

Value LoopVariable::Call(const Arguments& arguments) const {
  if (!recursion_) throw TemplateError("the loop must have the 'recursive' marker to be called");
  const Bound bound("loop", arguments, {"iterable"}, 1);
  return recursion_(*bound.Get("iterable"));
}

Value LoopVariable::Cycle(const Arguments& arguments) const {
  const Value::Items& items = arguments.positional;
  if (items.empty()) throw TemplateError("no items for cycling given");
  return items[place_ % items.size()];
}

// Returns whether these values differ from those of the last call.
Value LoopVariable::Changed(const Arguments& arguments) const {
  if (has_changed_ && last_changed_ == arguments.positional) return false;
  for (const Value& value : arguments.positional) {
    if (HoldsObject(value)) throw TemplateError("loop.changed() takes no functions or loops");
  }
  has_changed_ = true;
  last_changed_ = arguments.positional;
  return true;
}

}  // namespace gpuctl::trainer::jinja
