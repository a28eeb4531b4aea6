// JSON as Python's json.dumps(value, ensure_ascii=False) writes it.

#ifndef TRAINER_JINJA_VALUES_JSON_TEXT_H_
#define TRAINER_JINJA_VALUES_JSON_TEXT_H_

#include <optional>
#include <string>

#include "trainer/jinja_values/value.h"

namespace gpuctl::trainer::jinja {

struct JsonStyle {
  std::optional<std::string> indent;  // of one level; without, all is on one line
  std::string between_items = ", ";
  std::string after_key = ": ";
  bool sort_keys = false;
};

// Throws Error(kBadData) for what JSON cannot hold, as undefined.
std::string JsonText(const Value& value, const JsonStyle& style);

}  // namespace gpuctl::trainer::jinja

#endif  // TRAINER_JINJA_VALUES_JSON_TEXT_H_
