// GraphQL: the part of the language that clients of Runpod use, and the part of Runpod's types.
#ifndef GPUCTL_TESTS_CLOUDSIM_RUNPOD_QUERY_H_
#define GPUCTL_TESTS_CLOUDSIM_RUNPOD_QUERY_H_

#include <string>
#include <vector>

#include "tests/cloudsim/json_check.h"

namespace gpuctl::cloudsim {

struct QueryField {
  std::string name;
  std::string alias;  // its name in the answer
  Json arguments =
      Json::object();  // with the values of variables; the words of an enum are strings
  std::vector<QueryField> fields;

  // Returns the field `name` below this one; nullptr when it is not asked for.
  const QueryField* Find(const std::string& field) const;
};

struct QueryDocument {
  std::string error;  // why it is none; "" when it is one
  bool mutation = false;
  std::vector<QueryField> fields;
};

// Reads one query or mutation, and checks its fields against Runpod's types. Fragments and
// directives are not understood.
QueryDocument ReadQuery(const std::string& text, const Json& variables);

// Returns those members of `whole`, an object, null, or an array of them, that `fields` ask for.
Json Selected(const Json& whole, const std::vector<QueryField>& fields);

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_RUNPOD_QUERY_H_
