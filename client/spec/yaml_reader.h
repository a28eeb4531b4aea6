// Reads YAML nodes into plain types, with errors that name file, line and column. The only header
// besides run_spec.cc that knows yaml-cpp.
#ifndef GPUCTL_CLIENT_SPEC_YAML_READER_H_
#define GPUCTL_CLIENT_SPEC_YAML_READER_H_

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace gpuctl {

// Where a value stands: the file and the field's full name, for messages.
struct YamlPlace {
  std::string file;
  std::string field;  // "resources.gpu"; empty for the whole file
};

// INVALID_ARGUMENT "<file>:<line>:<column>: <message>".
absl::Status YamlError(const YamlPlace& place, const YAML::Node& node, absl::string_view message);

// Each refuses a node of another kind.
absl::StatusOr<std::string> YamlString(const YamlPlace& place, const YAML::Node& node);
absl::StatusOr<int64_t> YamlInt(const YamlPlace& place, const YAML::Node& node, int64_t low,
                                int64_t high);
absl::StatusOr<bool> YamlBool(const YamlPlace& place, const YAML::Node& node);
absl::StatusOr<absl::Duration> YamlDuration(const YamlPlace& place, const YAML::Node& node);
absl::StatusOr<int64_t> YamlSize(const YamlPlace& place, const YAML::Node& node);
// A list of strings; a single string is a list of one.
absl::StatusOr<std::vector<std::string>> YamlStrings(const YamlPlace& place,
                                                     const YAML::Node& node);
absl::StatusOr<std::map<std::string, std::string>> YamlStringMap(const YamlPlace& place,
                                                                 const YAML::Node& node);
// Any node as JSON: plain scalars become null, booleans and numbers where they look like it.
// Refuses what aliases blow up: more than 100,000 values or 32 levels.
absl::StatusOr<nlohmann::json> YamlToJson(const YamlPlace& place, const YAML::Node& node);

// One known field of a mapping. `read` takes its value.
struct YamlField {
  const char* name;
  std::function<absl::Status(const YamlPlace& place, const YAML::Node& node)> read;
};
// Reads a mapping field by field; unknown, repeated and non-scalar keys are errors.
absl::Status ReadYamlMap(const YamlPlace& place, const YAML::Node& node,
                         const std::vector<YamlField>& fields);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SPEC_YAML_READER_H_
