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
  const CheckpointFiles names = FilesOfCheckpoint(snapshot.adapter);
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
  WriteText(directory, kManifestName, manifest.dump(2) + "\n");
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

}  // namespace

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

LoadedCheckpoint LoadCheckpoint(const std::string& path) {
  VerifyCheckpoint(path);
  return LoadVerifiedCheckpoint(path);
}

LoadedCheckpoint LoadVerifiedCheckpoint(const std::string& path) {
  LoadedCheckpoint loaded;
  loaded.path = path;
  loaded.adapter = HoldsAdapter(path);
  const CheckpointFiles names = FilesOfCheckpoint(loaded.adapter);
  loaded.model_config = ReadJson(path + "/" + names.config);
  loaded.weights = ReadSafetensors(path + "/" + names.tensors);
  for (const char* needed : {"state.json", "optimizer.safetensors"}) {
    if (!Exists(path + "/" + needed)) RefuseCheckpoint(path, std::string(needed) + " is missing");
  }
  loaded.state = ReadJson(path + "/state.json");
  loaded.optimizer = ReadSafetensors(path + "/optimizer.safetensors");
  if (!loaded.state.contains("step") || !loaded.state["step"].is_number_unsigned()) {
    RefuseCheckpoint(path, "state.json has no step");
  }
  loaded.step = loaded.state["step"].get<int64_t>();
  return loaded;
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
