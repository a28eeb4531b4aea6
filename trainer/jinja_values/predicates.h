// Jinja's tests: what stands behind "is".

#ifndef TRAINER_JINJA_VALUES_PREDICATES_H_
#define TRAINER_JINJA_VALUES_PREDICATES_H_

#include <string>
#include <vector>

#include "trainer/jinja_values/value.h"

namespace gpuctl::trainer::jinja {

bool IsPredicate(const std::string& name);
std::vector<std::string> PredicateNames();

// Returns whether "value is name(arguments)". Throws for an unknown name.
bool Test(const std::string& name, const Value& value, const Arguments& arguments);

}  // namespace gpuctl::trainer::jinja

#endif  // TRAINER_JINJA_VALUES_PREDICATES_H_
