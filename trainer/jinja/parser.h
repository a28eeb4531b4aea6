// Parses a Jinja template into statements.

#ifndef TRAINER_JINJA_PARSER_H_
#define TRAINER_JINJA_PARSER_H_

#include <string>

#include "trainer/jinja/nodes.h"

namespace gpuctl::trainer::jinja {

// Throws Error(kBadData), "line 7: …", for what is no Jinja, and for what this interpreter lacks.
Statements Parse(const std::string& source);

}  // namespace gpuctl::trainer::jinja

#endif  // TRAINER_JINJA_PARSER_H_
