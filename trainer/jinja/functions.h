// The functions that every template has: those of Jinja, and two that transformers adds.

#ifndef TRAINER_JINJA_FUNCTIONS_H_
#define TRAINER_JINJA_FUNCTIONS_H_

#include <ctime>
#include <map>
#include <string>

#include "trainer/jinja_values/value.h"

namespace gpuctl::trainer::jinja {

// The object that namespace() makes, the only one whose attributes a template sets.
class Namespace : public Object {
 public:
  Value Attribute(const std::string& name) const override;
  // Throws for a value that has functions or namespaces, which could hold this one.
  void Set(const std::string& name, Value value) const;

 private:
  mutable std::map<std::string, Value> attributes_;  // values share their objects as const
};

// Returns range, dict, namespace, joiner, cycler, raise_exception and strftime_now. The last one
// takes `now` for the present.
std::map<std::string, Value> GlobalFunctions(std::time_t now);

}  // namespace gpuctl::trainer::jinja

#endif  // TRAINER_JINJA_FUNCTIONS_H_
