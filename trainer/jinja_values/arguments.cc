#include "trainer/jinja_values/arguments.h"

#include <algorithm>

namespace gpuctl::trainer::jinja {

Bound::Bound(const std::string& function, const Arguments& arguments,
             const std::vector<std::string>& parameters, size_t required)
    : function_(function), parameters_(parameters), values_(parameters.size()) {
  if (arguments.positional.size() > parameters.size()) {
    Fail("takes at most " + std::to_string(parameters.size()) + " arguments");
  }
  std::copy(arguments.positional.begin(), arguments.positional.end(), values_.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(parameters_.begin(), parameters_.end(), name);
    if (found == parameters_.end()) Fail("has no parameter " + name);
    std::optional<Value>& place = values_[static_cast<size_t>(found - parameters_.begin())];
    if (place.has_value()) Fail("got two values for " + name);
    place = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values_[i].has_value()) Fail("needs " + parameters_[i]);
  }
}

const Value* Bound::Get(const std::string& parameter) const {
  const auto found = std::find(parameters_.begin(), parameters_.end(), parameter);
  const std::optional<Value>& value = values_[static_cast<size_t>(found - parameters_.begin())];
  return value.has_value() ? &*value : nullptr;
}

Value Bound::GetOr(const std::string& parameter, Value otherwise) const {
  const Value* value = Get(parameter);
  return value != nullptr ? *value : otherwise;
}

std::string Bound::Text(const std::string& parameter, const std::string& otherwise) const {
  const Value* value = Get(parameter);
  if (value == nullptr) return otherwise;
  if (value->IsUndefined()) ThrowUndefined(*value);
  if (!value->IsString()) Fail(parameter + " must be a string, not " + value->TypeName());
  return value->string();
}

int64_t Bound::Integer(const std::string& parameter, int64_t otherwise) const {
  const Value* value = Get(parameter);
  if (value == nullptr) return otherwise;
  if (value->IsUndefined()) ThrowUndefined(*value);
  if (!value->IsInt() && !value->IsBool()) {
    Fail(parameter + " must be an integer, not " + value->TypeName());
  }
  return value->integer();
}

bool Bound::Flag(const std::string& parameter, bool otherwise) const {
  const Value* value = Get(parameter);
  return value != nullptr ? value->Truth() : otherwise;
}

void Bound::Fail(const std::string& message) const {
  throw TemplateError(function_ + "() " + message);
}

}  // namespace gpuctl::trainer::jinja
