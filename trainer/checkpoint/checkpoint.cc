#include "trainer/checkpoint/checkpoint.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <new>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/json_object.h"
#include "trainer/base/sha256.h"
#include "trainer/base/text.h"

namespace gpuctl::trainer {
namespace {

using nlohmann::json;

constexpr char kManifest[] = "manifest.json";
constexpr char kPrefix[] = "step-";

// The names of the files that say what the weights are, and that hold them.
struct WeightNames {
  const char* config;
  const char* tensors;
};

WeightNames NamesOf(bool adapter) {
  if (adapter) return {"adapter_config.json", "adapter_model.safetensors"};
  return {"config.json", "model.safetensors"};
}

[[noreturn]] void Refuse(const std::string& path, const std::string& why) {
  throw DataError("verify checkpoint " + path + ": " + why);
}

ManifestEntry WriteText(const std::string& directory, const std::string& name,
                        const std::string& text) {
  WriteFileDurably(directory + "/" + name, text);
  return {name, text.size(), Sha256Hex(text)};
}

ManifestEntry WriteTensors(const std::string& directory, const std::string& name,
                           const NamedTensors& tensors) {
  ManifestEntry entry{name, 0, ""};
  WriteSafetensors(directory + "/" + name, tensors, {{"format", "pt"}}, &entry.sha256);
  entry.size = FileSize(directory + "/" + name);
  return entry;
}

void WriteContents(const std::string& directory, const Snapshot& snapshot) {
  std::vector<ManifestEntry> entries;
  const WeightNames names = NamesOf(snapshot.adapter);
  entries.push_back(WriteText(directory, names.config, snapshot.model_config.dump(2) + "\n"));
  entries.push_back(WriteTensors(directory, names.tensors, snapshot.weights));
  entries.push_back(WriteTensors(directory, "optimizer.safetensors", snapshot.optimizer));
  entries.push_back(WriteText(directory, "state.json", snapshot.state.dump(2) + "\n"));
  for (const KeptFile& file : snapshot.files) {
    entries.push_back(WriteText(directory, file.name, *file.bytes));
  }
  std::sort(entries.begin(), entries.end(),
            [](const ManifestEntry& a, const ManifestEntry& b) { return a.path < b.path; });
  nlohmann::ordered_json manifest;
  manifest["format"] = 1;
  manifest["step"] = snapshot.step;
  manifest["files"] = nlohmann::ordered_json::array();
  for (const ManifestEntry& entry : entries) {
    manifest["files"].push_back(
        {{"path", entry.path}, {"size", entry.size}, {"sha256", entry.sha256}});
  }
  WriteText(directory, kManifest, manifest.dump(2) + "\n");
}

// Removes files after the work. A failure costs space, not correctness; RemoveLeftovers removes
// them later.
void RemoveQuietly(const std::string& path) {
  try {
    RemoveTree(path);
  } catch (const Error&) {
  }
}

// Renames the directory, and replaces one with the final name. A directory cannot be replaced in
// one step, so the old one is renamed first; it is renamed back if the new one cannot be.
void Publish(const std::string& root, const std::string& temporary, const std::string& final_path,
             int64_t step) {
  const std::string aside = root + "/.old-" + CheckpointName(step);
  const bool replaces = Exists(final_path);
  if (replaces) {
    RemoveTree(aside);
    Rename(final_path, aside);
  }
  try {
    Rename(temporary, final_path);
  } catch (const Error&) {
    if (replaces) ::rename(aside.c_str(), final_path.c_str());
    throw;
  }
  SyncDirectory(root);
  if (replaces) RemoveQuietly(aside);
}

json ReadJson(const std::string& path) {
  return ParseJsonObject(ReadWholeFile(path, kLargestSettings), "read " + path);
}

ManifestEntry ParseManifestEntry(const std::string& path, const json& file) {
  if (!file.is_object() || !file.contains("path") || !file["path"].is_string() ||
      !file.contains("size") || !file["size"].is_number_unsigned() || !file.contains("sha256") ||
      !file["sha256"].is_string()) {
    Refuse(path, "the manifest has an entry without path, size and sha256");
  }
  ManifestEntry entry{file["path"].get<std::string>(), file["size"].get<uint64_t>(),
                      file["sha256"].get<std::string>()};
  if (entry.path.empty() || entry.path.find('/') != std::string::npos || entry.path[0] == '.') {
    Refuse(path, "the manifest names \"" + entry.path + "\"");
  }
  return entry;
}

std::vector<ManifestEntry> ParseManifest(const std::string& path) {
  const std::string manifest_path = path + "/" + kManifest;
  if (!Exists(manifest_path)) Refuse(path, "no manifest.json");
  const json manifest = ReadJson(manifest_path);
  if (!manifest.contains("format") || manifest["format"] != 1) {
    Refuse(path, "the manifest's format is not 1");
  }
  if (!manifest.contains("files") || !manifest["files"].is_array()) {
    Refuse(path, "the manifest lists no files");
  }
  std::vector<ManifestEntry> entries;
  for (const json& file : manifest["files"]) entries.push_back(ParseManifestEntry(path, file));
  return entries;
}

}  // namespace

std::string CheckpointName(int64_t step) {
  return Format("%s%08lld", kPrefix, static_cast<long long>(step));
}

int64_t StepOfCheckpointName(const std::string& name) {
  long long step = 0;
  int used = 0;
  if (std::sscanf(name.c_str(), "step-%12lld%n", &step, &used) != 1 || step < 0) return -1;
  return CheckpointName(step) == name ? step : -1;
}

std::string WriteCheckpoint(const std::string& root, const Snapshot& snapshot) {
  const std::string name = CheckpointName(snapshot.step);
  const std::string temporary = root + "/.tmp-" + name + "-" + std::to_string(::getpid());
  const std::string final_path = root + "/" + name;
  try {
    MakeDirectories(root);
    RemoveTree(temporary);
    MakeDirectory(temporary);
    WriteContents(temporary, snapshot);
    SyncDirectory(temporary);
    Publish(root, temporary, final_path, snapshot.step);
  } catch (const Error& error) {
    RemoveQuietly(temporary);  // frees space on a full disk
    throw Error(error.code(), "write checkpoint " + final_path + ": " + error.what(), error.hint());
  } catch (const std::bad_alloc&) {
    RemoveQuietly(temporary);
    throw Error(ExitCode::kTryAgain, "write checkpoint " + final_path + ": out of memory");
  }
  return final_path;
}

void CheckTakesCheckpoints(const std::string& root) {
  const std::string probe = root + "/.tmp-step-probe-" + std::to_string(::getpid());
  if (::mkdir(probe.c_str(), 0755) == 0) {
    ::rmdir(probe.c_str());
  } else if (errno != ENOSPC && errno != EDQUOT && errno != EEXIST) {
    throw IoError("write checkpoints to", root, errno);
  }
}

bool HoldsAdapter(const std::string& path) {
  return Exists(path + "/" + NamesOf(/*adapter=*/true).config);
}

std::vector<ManifestEntry> VerifyCheckpoint(const std::string& path) {
  if (!IsDirectory(path)) Refuse(path, "no such directory");
  const std::vector<ManifestEntry> entries = ParseManifest(path);
  std::vector<std::string> listed = {kManifest};
  for (const ManifestEntry& entry : entries) {
    const std::string file = path + "/" + entry.path;
    if (!Exists(file)) Refuse(path, entry.path + " is missing");
    if (FileSize(file) != entry.size) {
      Refuse(path, Format("%s has %llu bytes, not %llu", entry.path.c_str(),
                          static_cast<unsigned long long>(FileSize(file)),
                          static_cast<unsigned long long>(entry.size)));
    }
    if (Sha256HexOfFile(file) != entry.sha256) Refuse(path, entry.path + " has another digest");
    listed.push_back(entry.path);
  }
  const WeightNames names = NamesOf(HoldsAdapter(path));
  for (const char* needed : {names.config, names.tensors}) {
    if (std::find(listed.begin(), listed.end(), needed) == listed.end()) {
      Refuse(path, std::string(needed) + " is not listed");
    }
  }
  for (const std::string& name : ListDirectory(path)) {
    if (name[0] == '.') continue;  // of a file manager or a network file system; never ours
    if (std::find(listed.begin(), listed.end(), name) == listed.end()) {
      Refuse(path, name + " is not in the manifest");
    }
  }
  return entries;
}

LoadedCheckpoint LoadCheckpoint(const std::string& path) {
  VerifyCheckpoint(path);
  return LoadVerifiedCheckpoint(path);
}

LoadedCheckpoint LoadVerifiedCheckpoint(const std::string& path) {
  LoadedCheckpoint loaded;
  loaded.path = path;
  loaded.adapter = HoldsAdapter(path);
  const WeightNames names = NamesOf(loaded.adapter);
  loaded.model_config = ReadJson(path + "/" + names.config);
  loaded.weights = ReadSafetensors(path + "/" + names.tensors);
  for (const char* needed : {"state.json", "optimizer.safetensors"}) {
    if (!Exists(path + "/" + needed)) Refuse(path, std::string(needed) + " is missing");
  }
  loaded.state = ReadJson(path + "/state.json");
  loaded.optimizer = ReadSafetensors(path + "/optimizer.safetensors");
  if (!loaded.state.contains("step") || !loaded.state["step"].is_number_unsigned()) {
    Refuse(path, "state.json has no step");
  }
  loaded.step = loaded.state["step"].get<int64_t>();
  return loaded;
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

std::string FindNewestCheckpoint(const std::string& root, std::vector<std::string>* skipped) {
  const std::vector<int64_t> steps = ListCheckpoints(root);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const std::string path = root + "/" + CheckpointName(*step);
    try {
      VerifyCheckpoint(path);
      return path;
    } catch (const Error& error) {
      skipped->push_back(error.what());
    }
  }
  return "";
}

void RemoveLeftovers(const std::string& root) {
  if (!IsDirectory(root)) return;
  for (const std::string& name : ListDirectory(root)) {
    const std::string path = root + "/" + name;
    if (name.rfind(".tmp-step-", 0) == 0) RemoveTree(path);
    if (name.rfind(".old-step-", 0) != 0) continue;
    const std::string final_path = root + "/" + name.substr(5);
    if (Exists(final_path)) {
      RemoveTree(path);
    } else {
      Rename(path, final_path);  // the writer died between its two renames
    }
  }
}

}  // namespace gpuctl::trainer
