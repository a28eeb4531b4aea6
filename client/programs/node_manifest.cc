#include "client/programs/node_manifest.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/programs/built_in_manifest.h"
#include "common/base/bounded_json.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

absl::Status BrokenManifest(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("read the manifest of the node programs: ", what));
}

template <typename Value>
absl::StatusOr<Value> Read(const nlohmann::json& json, const char* field) {
  const auto found = json.find(field);
  if (found == json.end()) return BrokenManifest(absl::StrCat("there is no ", field));
  if constexpr (std::is_same_v<Value, std::string>) {
    if (found->is_string()) return found->get<std::string>();
  } else {
    if (found->is_number_integer()) return found->get<Value>();
  }
  return BrokenManifest(absl::StrCat(field, " has the wrong type"));
}

absl::StatusOr<std::string> ReadDigest(const nlohmann::json& json, const char* field) {
  ASSIGN_OR_RETURN(const std::string digest, Read<std::string>(json, field));
  if (digest.size() != 64 || digest.find_first_not_of("0123456789abcdef") != digest.npos) {
    return BrokenManifest(absl::StrCat(field, " is no SHA-256"));
  }
  return digest;
}

absl::StatusOr<NodeManifest::Platform> ReadPlatform(const nlohmann::json& json) {
  if (!json.is_object()) return BrokenManifest("a platform is no object");
  NodeManifest::Platform platform;
  ASSIGN_OR_RETURN(platform.archive, Read<std::string>(json, "archive"));
  if (platform.archive.empty() || platform.archive[0] == '.' ||
      platform.archive.find_first_of("/\\?#%") != std::string::npos) {
    return BrokenManifest("the name of an archive has a path");
  }
  ASSIGN_OR_RETURN(platform.sha256, ReadDigest(json, "sha256"));
  ASSIGN_OR_RETURN(platform.size, Read<int64_t>(json, "size"));
  const auto files = json.find("files");
  if (files == json.end() || !files->is_object()) return BrokenManifest("a platform has no files");
  for (const char* name : kNodeProgramNames) {
    const auto file = files->find(name);
    if (file == files->end() || !file->is_object()) {
      return BrokenManifest(absl::StrCat("a platform has no ", name));
    }
    NodeManifest::File& entry = platform.files[name];
    ASSIGN_OR_RETURN(entry.sha256, ReadDigest(*file, "sha256"));
    ASSIGN_OR_RETURN(entry.size, Read<int64_t>(*file, "size"));
  }
  return platform;
}

}  // namespace

const NodeManifest::Platform* NodeManifest::For(NodePlatform platform) const {
  const auto found = platforms.find(platform);
  return found == platforms.end() ? nullptr : &found->second;
}

absl::StatusOr<NodeManifest> ParseNodeManifest(absl::string_view text) {
  const nlohmann::json json = ParseBoundedJson(text);
  if (!json.is_object()) return BrokenManifest("it is no JSON object");
  NodeManifest manifest;
  ASSIGN_OR_RETURN(manifest.version, Read<std::string>(json, "version"));
  ASSIGN_OR_RETURN(manifest.api_level, Read<int>(json, "api_level"));
  ASSIGN_OR_RETURN(manifest.commit_time_s, Read<int64_t>(json, "commit_time_s"));
  if (json.contains("roots_sha256")) {
    ASSIGN_OR_RETURN(manifest.roots_sha256, ReadDigest(json, "roots_sha256"));
  }
  const auto platforms = json.find("platforms");
  if (platforms == json.end() || !platforms->is_object())
    return BrokenManifest("there are no platforms");
  for (const auto& [name, entry] : platforms->items()) {
    const absl::StatusOr<NodePlatform> platform = PlatformOfName(name);
    if (!platform.ok()) continue;
    ASSIGN_OR_RETURN(manifest.platforms[*platform], ReadPlatform(entry));
  }
  return manifest;
}

const std::optional<NodeManifest>& BuiltInManifest() {
  static const auto& manifest = *new std::optional<NodeManifest>([]() {
    std::optional<NodeManifest> parsed;
    if (kBuiltInManifest[0] == '\0') return parsed;
    // CMake refused a file that is no manifest.
    absl::StatusOr<NodeManifest> read = ParseNodeManifest(kBuiltInManifest);
    if (read.ok()) parsed = *std::move(read);
    return parsed;
  }());
  return manifest;
}

std::string ReleaseAddress() {
  const char* given = std::getenv("GPUCTL_NODE_URL");
  std::string address = given != nullptr && *given != '\0' ? given : kBuiltInAddress;
  if (!address.empty() && !absl::EndsWith(address, "/")) address += '/';
  return address;
}

std::string ClientVersion() { return kBuiltInVersion; }

}  // namespace gpuctl
