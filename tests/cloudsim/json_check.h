// Checks of request bodies against small schemas in JSON, with the messages of the services. A
// subset of JSON Schema: type, required, properties, additionalProperties: false, enum, minimum,
// maximum, minLength, maxLength, minItems, maxItems, minProperties, pattern, items, and
// additionalProperties with a schema.
#ifndef GPUCTL_TESTS_CLOUDSIM_JSON_CHECK_H_
#define GPUCTL_TESTS_CLOUDSIM_JSON_CHECK_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gpuctl::cloudsim {

using Json = nlohmann::json;

// Returns the errors of `value`, each as "$.path: complaint"; empty when it fits.
std::vector<std::string> CheckJson(const Json& value, const Json& schema);

// Returns the first error of a request's body, also that it is no JSON; "" when it fits.
std::string WrongBody(const Json& body, const Json& schema);

// Return a member as a string, number, …, or the default when it is missing or has another type.
std::string StringAt(const Json& object, const char* name, const std::string& otherwise = "");
double NumberAt(const Json& object, const char* name, double otherwise = 0);
int64_t IntegerAt(const Json& object, const char* name, int64_t otherwise = 0);
bool BoolAt(const Json& object, const char* name, bool otherwise = false);

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_JSON_CHECK_H_
