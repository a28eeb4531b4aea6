// Python's operators, attributes, items and slices.

#ifndef TRAINER_JINJA_VALUES_OPERATORS_H_
#define TRAINER_JINJA_VALUES_OPERATORS_H_

#include <string>

#include "trainer/jinja_values/value.h"

namespace gpuctl::trainer::jinja {

enum class Arithmetic { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };

// All throw Error(kBadData) where Python raises, in its words.
Value Calculate(Arithmetic what, const Value& a, const Value& b);
Value WithSign(bool negative, const Value& value);

// Returns value.name: a method, else an item of that name, else undefined.
Value GetAttribute(const Value& value, const std::string& name);

// Returns value[key]: an item, else a method or an attribute of that name, else undefined.
Value GetItem(const Value& value, const Value& key);

// Returns value[start:stop:step] of a string or list; none stands for what is left out.
Value GetSlice(const Value& value, const Value& start, const Value& stop, const Value& step);

}  // namespace gpuctl::trainer::jinja

#endif  // TRAINER_JINJA_VALUES_OPERATORS_H_
