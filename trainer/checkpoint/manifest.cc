#include "trainer/checkpoint/manifest.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/json_object.h"
#include "trainer/base/sha256.h"
#include "trainer/base/text.h"
#include "trainer/checkpoint/folder_files.h"

namespace gpuctl::trainer {
namespace {

using nlohmann::json;

constexpr char kPrefix[] = "step-";

ManifestEntry ParseManifestEntry(const std::string& path, const json& file) {
  if (!file.is_object() || !file.contains("path") || !file["path"].is_string() ||
      !file.contains("size") || !file["size"].is_number_unsigned() || !file.contains("sha256") ||
      !file["sha256"].is_string()) {
    RefuseCheckpoint(path, "the manifest has an entry without path, size and sha256");
  }
  ManifestEntry entry{file["path"].get<std::string>(), file["size"].get<uint64_t>(),
                      file["sha256"].get<std::string>()};
  if (entry.path.empty() || entry.path.find('/') != std::string::npos || entry.path[0] == '.') {
    RefuseCheckpoint(path, "the manifest names \"" + entry.path + "\"");
  }
  return entry;
}

std::vector<ManifestEntry> ParseManifest(const std::string& path) {
  const std::string manifest_path = path + "/" + kManifestName;
  if (!IsFile(manifest_path)) RefuseCheckpoint(path, "no manifest.json");
  const json manifest =
      ParseJsonObject(ReadWholeFile(manifest_path, kLargestSettings), "read " + manifest_path);
  if (!manifest.contains("format") || manifest["format"] != 1) {
    RefuseCheckpoint(path, "the manifest's format is not 1");
  }
  if (!manifest.contains("files") || !manifest["files"].is_array()) {
    RefuseCheckpoint(path, "the manifest lists no files");
  }
  std::vector<ManifestEntry> entries;
  for (const json& file : manifest["files"]) entries.push_back(ParseManifestEntry(path, file));
  return entries;
}

}  // namespace

void RefuseCheckpoint(const std::string& path, const std::string& why) {
  throw DataError("verify checkpoint " + path + ": " + why);
}

CheckpointFiles FilesOfCheckpoint(bool adapter) {
  if (adapter) return {"adapter_config.json", "adapter_model.safetensors"};
  return {"config.json", "model.safetensors"};
}

std::string CheckpointName(int64_t step) {
  return Format("%s%08lld", kPrefix, static_cast<long long>(step));
}

int64_t StepOfCheckpointName(const std::string& name) {
  long long step = 0;
  int used = 0;
  if (std::sscanf(name.c_str(), "step-%12lld%n", &step, &used) != 1 || step < 0) return -1;
  return CheckpointName(step) == name ? step : -1;
}

bool HoldsAdapter(const std::string& path) {
  return Exists(path + "/" + FilesOfCheckpoint(/*adapter=*/true).config);
}

std::vector<ManifestEntry> VerifyCheckpoint(
    const std::string& path, const std::function<std::string(const ManifestEntry&)>& read) {
  if (!IsDirectory(path)) RefuseCheckpoint(path, "no such directory");
  const std::vector<ManifestEntry> entries = ParseManifest(path);
  std::vector<std::string> listed = {kManifestName};
  for (const ManifestEntry& entry : entries) {
    const std::string file = path + "/" + entry.path;
    if (!IsFile(file)) {
      RefuseCheckpoint(path, entry.path + (Exists(file) ? " is no file" : " is missing"));
    }
    if (FileSize(file) != entry.size) {
      RefuseCheckpoint(path, Format("%s has %llu bytes, not %llu", entry.path.c_str(),
                                    static_cast<unsigned long long>(FileSize(file)),
                                    static_cast<unsigned long long>(entry.size)));
    }
    const std::string digest = read ? read(entry) : Sha256HexOfFile(file);
    CheckDigest(path, entry, digest);
    listed.push_back(entry.path);
  }
  const CheckpointFiles names = FilesOfCheckpoint(HoldsAdapter(path));
  for (const char* needed : {names.config, names.tensors}) {
    if (std::find(listed.begin(), listed.end(), needed) == listed.end()) {
      RefuseCheckpoint(path, std::string(needed) + " is not listed");
    }
  }
  for (const std::string& name : ListDirectory(path)) {
    if (name[0] == '.') continue;      // of a file manager or a network file system; never ours
    if (!IsModelFile(name)) continue;  // nobody here reads it
    if (std::find(listed.begin(), listed.end(), name) == listed.end()) {
      RefuseCheckpoint(path, name + " is not in the manifest");
    }
  }
  return entries;
}

ManifestEntry VerifyButTensors(const std::string& path) {
  const CheckpointFiles names = FilesOfCheckpoint(HoldsAdapter(path));
  ManifestEntry tensors;
  VerifyCheckpoint(path, [&](const ManifestEntry& entry) {
    if (entry.path == names.tensors) tensors = entry;
    const bool passed = entry.path == names.tensors || entry.path == kOptimizerName;
    return passed ? entry.sha256 : Sha256HexOfFile(path + "/" + entry.path);
  });
  return tensors;
}

void CheckDigest(const std::string& path, const ManifestEntry& entry, const std::string& sha256) {
  if (sha256 != entry.sha256) RefuseCheckpoint(path, entry.path + " has another digest");
}

std::vector<int64_t> ListCheckpoints(const std::string& root) {
  std::vector<int64_t> steps;
  if (!IsDirectory(root)) return steps;
  for (const std::string& name : ListDirectory(root)) {
    const int64_t step = StepOfCheckpointName(name);
    if (step >= 0) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

}  // namespace gpuctl::trainer
