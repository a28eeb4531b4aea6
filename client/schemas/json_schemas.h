// The JSON Schemas of what gpuctl prints with -o json and -o jsonl: the files of docs/schemas,
// which are built into the program.
#ifndef GPUCTL_CLIENT_SCHEMAS_JSON_SCHEMAS_H_
#define GPUCTL_CLIENT_SCHEMAS_JSON_SCHEMAS_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gpuctl {

struct SchemaFile {
  const char* name;  // of a verb, "error", "notify", or "common", to which the others refer
  const char* text;
};
// The files, sorted by name. Any thread may call it.
const std::vector<SchemaFile>& SchemaFiles();

// Returns the names of the schemas that a user can ask for, sorted.
std::vector<std::string> SchemaNames();

// Returns a schema with all definitions that it needs from other files, so that it stands alone.
// NOT_FOUND with the nearest right name.
absl::StatusOr<nlohmann::ordered_json> WholeSchema(const std::string& name);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SCHEMAS_JSON_SCHEMAS_H_
