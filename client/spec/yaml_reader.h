// Reads YAML nodes into plain types, with errors that name file, line and column. Only this header
// and run_spec.cc include yaml-cpp.
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

// The place of a value: the file and the field's full name, for messages.
struct YamlPlace {
  std::string file;
  std::string field;  // "resources.gpu"; empty for the whole file
};

// Returns INVALID_ARGUMENT "<file>:<line>:<column>: <message>".
absl::Status YamlError(const YamlPlace& place, const YAML::Node& node, absl::string_view message);

// Read a node of one kind; each refuses other kinds.
absl::StatusOr<std::string> YamlString(const YamlPlace& place, const YAML::Node& node);
absl::StatusOr<int64_t> YamlInt(const YamlPlace& place, const YAML::Node& node, int64_t low,
                                int64_t high);
absl::StatusOr<bool> YamlBool(const YamlPlace& place, const YAML::Node& node);
absl::StatusOr<absl::Duration> YamlDuration(const YamlPlace& place, const YAML::Node& node);
absl::StatusOr<int64_t> YamlSize(const YamlPlace& place, const YAML::Node& node);
// Reads a list of strings; a single string is a list of one.
absl::StatusOr<std::vector<std::string>> YamlStrings(const YamlPlace& place,
                                                     const YAML::Node& node);
absl::StatusOr<std::map<std::string, std::string>> YamlStringMap(const YamlPlace& place,
                                                                 const YAML::Node& node);
// Returns any node as JSON. Plain scalars become null, booleans and numbers where they look like
// these. Refuses more than 100,000 values or 32 levels, which aliases can produce.
absl::StatusOr<nlohmann::json> YamlToJson(const YamlPlace& place, const YAML::Node& node);

// What a value may be: how it is read, and the same as JSON Schema.
struct YamlType {
  std::function<absl::Status(const YamlPlace& place, const YAML::Node& node)> read;
  nlohmann::ordered_json schema;
};

// One known field of a mapping.
struct YamlField {
  const char* name;
  YamlType type;
  const char* about;  // one line
};
// Reads a mapping field by field; unknown, repeated and non-scalar keys are errors.
absl::Status ReadYamlMap(const YamlPlace& place, const YAML::Node& node,
                         const std::vector<YamlField>& fields);
// Returns the schema of such a mapping.
nlohmann::ordered_json YamlMapSchema(const std::vector<YamlField>& fields);
YamlType YamlMapOf(std::vector<YamlField> fields);

// Returns `status`, an error from the functions above about a file with this text, with the line
// that it is about. Leaves out a line that may have a secret in it.
absl::Status WithYamlLine(absl::Status status, absl::string_view text);
// Returns an error as YamlError does, for a place that yaml-cpp names.
absl::Status YamlErrorAt(const std::string& file, const YAML::Mark& mark,
                         absl::string_view message);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SPEC_YAML_READER_H_
