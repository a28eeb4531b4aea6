// Checks of request bodies against small schemas written in JSON, with the message each service
// would give. A subset of JSON Schema: type, required, properties, additionalProperties: false,
// enum, minimum, maximum, minLength, maxLength, minItems, maxItems, minProperties, pattern, items,
// and additionalProperties with a schema.
#ifndef GPUCTL_TESTS_CLOUDSIM_JSON_CHECK_H_
#define GPUCTL_TESTS_CLOUDSIM_JSON_CHECK_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gpuctl::cloudsim {

using Json = nlohmann::json;

// What is wrong with `value`, each as "$.path: complaint"; empty when it fits.
std::vector<std::string> CheckJson(const Json& value, const Json& schema);

// A member as a string, number, …; the default where it is missing or of another type.
std::string StringAt(const Json& object, const char* name, const std::string& otherwise = "");
double NumberAt(const Json& object, const char* name, double otherwise = 0);
int64_t IntegerAt(const Json& object, const char* name, int64_t otherwise = 0);
bool BoolAt(const Json& object, const char* name, bool otherwise = false);

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_JSON_CHECK_H_
