// Descriptions and recorded answers that are beside the repository, not in it.
#ifndef GPUCTL_TESTS_SUPPORT_SHARED_MATERIAL_H_
#define GPUCTL_TESTS_SUPPORT_SHARED_MATERIAL_H_

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "common/files/files.h"

namespace gpuctl {

// Returns the JSON file $GPUCTL_SHARED_DIR/`path`, by default in that folder beside the repository.
// Absent when there is no such file; a test then says so and skips the part that needs it.
inline std::optional<nlohmann::json> SharedJson(const std::string& path) {
  const char* directory = getenv("GPUCTL_SHARED_DIR");
  const auto text =
      ReadFileToString(JoinPath(directory == nullptr ? "../shared" : directory, path));
  if (!text.ok()) return std::nullopt;
  return nlohmann::json::parse(*text, nullptr, false);
}

// True when a comparison must not be left out: GPUCTL_TRUTHS=required.
inline bool TruthsAreRequired() {
  const char* said = getenv("GPUCTL_TRUTHS");
  return said != nullptr && std::string(said) == "required";
}

// Makes `name` that JSON, or skips the test; where comparisons are required, the test fails.
#define GPUCTL_SHARED_OR_SKIP(name, path)                                       \
  const auto name##_read = ::gpuctl::SharedJson(path);                          \
  if (!name##_read && ::gpuctl::TruthsAreRequired()) {                          \
    FAIL() << "no " << (path) << " in the shared folder";                       \
  }                                                                             \
  if (!name##_read) GTEST_SKIP() << "no " << (path) << " in the shared folder"; \
  const nlohmann::json& name = *name##_read

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_SHARED_MATERIAL_H_
