// Arguments by position and by name, as Python binds them.

#ifndef TRAINER_JINJA_VALUES_ARGUMENTS_H_
#define TRAINER_JINJA_VALUES_ARGUMENTS_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer/jinja_values/value.h"

namespace gpuctl::trainer::jinja {

// The arguments of one call, by the parameters' names.
class Bound {
 public:
  // Throws when there are too many arguments, an unknown name, or less than `required`.
  Bound(const std::string& function, const Arguments& arguments,
        const std::vector<std::string>& parameters, size_t required = 0);

  // Returns the argument, or null when it was not given.
  const Value* Get(const std::string& parameter) const;
  Value GetOr(const std::string& parameter, Value otherwise) const;
  // These throw when the argument is of another kind.
  std::string Text(const std::string& parameter, const std::string& otherwise) const;
  int64_t Integer(const std::string& parameter, int64_t otherwise) const;
  bool Flag(const std::string& parameter, bool otherwise) const;

 private:
  [[noreturn]] void Fail(const std::string& message) const;

  std::string function_;
  std::vector<std::string> parameters_;
  std::vector<std::optional<Value>> values_;
};

// A function of C++ as a value.
class Function : public Object {
 public:
  using Body = std::function<Value(const Arguments&)>;
  explicit Function(Body body) : body_(std::move(body)) {}
  Value Call(const Arguments& arguments) const override { return body_(arguments); }
  bool callable() const override { return true; }

 private:
  const Body body_;
};

}  // namespace gpuctl::trainer::jinja

#endif  // TRAINER_JINJA_VALUES_ARGUMENTS_H_
