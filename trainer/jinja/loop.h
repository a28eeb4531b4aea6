// The variable `loop` of a for statement.

#ifndef TRAINER_JINJA_LOOP_H_
#define TRAINER_JINJA_LOOP_H_

#include <functional>
#include <memory>
#include <string>

#include "trainer/jinja_values/value.h"

namespace gpuctl::trainer::jinja {

class LoopVariable : public Object, public std::enable_shared_from_this<LoopVariable> {
 public:
  using Recursion = std::function<std::string(const Value& items)>;

  // `items` are not empty; `recursion` is empty unless the loop is recursive. `depth` is from 0.
  LoopVariable(Value::Items items, int depth, Recursion recursion)
      : items_(std::move(items)), depth_(depth), recursion_(std::move(recursion)) {}

  bool AtEnd() const { return place_ == items_.size(); }
  void Advance() { ++place_; }
  const Value& item() const { return items_[place_]; }

  Value Attribute(const std::string& name) const override;
  Value Call(const Arguments& arguments) const override;

 private:
  Value Cycle(const Arguments& arguments) const;
  Value Changed(const Arguments& arguments) const;

  const Value::Items items_;
  const int depth_;
  const Recursion recursion_;
  size_t place_ = 0;
  mutable Value::Items last_changed_;
  mutable bool has_changed_ = false;
};

}  // namespace gpuctl::trainer::jinja

#endif  // TRAINER_JINJA_LOOP_H_
