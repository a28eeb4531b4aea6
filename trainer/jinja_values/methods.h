// The methods of str, list, tuple and dict that change nothing.

#ifndef TRAINER_JINJA_VALUES_METHODS_H_
#define TRAINER_JINJA_VALUES_METHODS_H_

#include <optional>
#include <string>

#include "trainer/jinja_values/value.h"

namespace gpuctl::trainer::jinja {

// Returns the method of that name, bound to `value`, when its type has one. A method that Python
// has and this interpreter lacks, or that changes its object, throws when it is called.
std::optional<Value> MethodOf(const Value& value, const std::string& name);

// Returns `text` with at most `count` occurrences of `from` replaced, all if `count` is negative.
std::string Replaced(const std::string& text, const std::string& from, const std::string& to,
                     int64_t count);

// Returns what str.splitlines(keepends) does.
Value::Items SplitLines(const std::string& text, bool keep_ends);

// Returns the items' texts with `separator` between them. Throws unless all are strings.
std::string Joined(const std::string& separator, const Value::Items& items);

}  // namespace gpuctl::trainer::jinja

#endif  // TRAINER_JINJA_VALUES_METHODS_H_
