// TOML text: its values with their places, and changes that keep comments and layout. Pure.
#ifndef GPUCTL_CLIENT_CONFIG_TOML_TEXT_H_
#define GPUCTL_CLIENT_CONFIG_TOML_TEXT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// A value of a TOML file. A list of plain values is one value.
struct TomlValue {
  std::string key;  // with the names of its tables: "limits.time"
  nlohmann::json value;
  int line = 0;  // of the value, from 1
  int column = 0;
  int key_line = 0;  // of its name
  int key_column = 0;
};

// Returns the values of `text` in the order of their places. INVALID_ARGUMENT names `file`, line
// and column, and has the line as its excerpt; also for dates and lists of tables, which no setting
// is.
absl::StatusOr<std::vector<TomlValue>> ReadToml(absl::string_view text, absl::string_view file);

// Returns `text` with the value of `key` changed, or added behind the others of its table. Comments
// stay, as do all other values: FAILED_PRECONDITION where this function cannot do that.
absl::StatusOr<std::string> SetInToml(absl::string_view text, absl::string_view file,
                                      const std::string& key, const nlohmann::json& value);

// Returns `text` without the lines of `key`. NOT_FOUND when it has no such key; else as SetInToml.
absl::StatusOr<std::string> RemoveFromToml(absl::string_view text, absl::string_view file,
                                           const std::string& key);

// Returns INVALID_ARGUMENT "<file>:<line>:<column>: <message>", with the line of `text` as its
// excerpt when `show_line`.
absl::Status TomlError(absl::string_view text, absl::string_view file, int line, int column,
                       absl::string_view message, bool show_line = true);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_CONFIG_TOML_TEXT_H_
