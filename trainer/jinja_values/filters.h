// Jinja's filters: what stands behind "|".

#ifndef TRAINER_JINJA_VALUES_FILTERS_H_
#define TRAINER_JINJA_VALUES_FILTERS_H_

#include <string>
#include <vector>

#include "trainer/jinja_values/value.h"

namespace gpuctl::trainer::jinja {

bool IsFilter(const std::string& name);
std::vector<std::string> FilterNames();

// Returns "value | name(arguments)". Throws for an unknown name.
Value Filter(const std::string& name, const Value& value, const Arguments& arguments);

}  // namespace gpuctl::trainer::jinja

#endif  // TRAINER_JINJA_VALUES_FILTERS_H_
