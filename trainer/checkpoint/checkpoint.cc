#include "trainer/checkpoint/checkpoint.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <new>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/json_object.h"
#include "trainer/base/sha256.h"
#include "trainer/base/text.h"

namespace gpuctl::trainer {
namespace {

constexpr char kState[] = "state.json";

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
  entries.push_back(WriteTensors(directory, kOptimizerName, snapshot.optimizer));
  entries.push_back(WriteText(directory, kState, snapshot.state.dump(2) + "\n"));
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

namespace {

// What verifying has read of a checkpoint: all that loading needs.
struct FilesRead {
  std::map<std::string, std::string> texts;
  std::map<std::string, std::map<std::string, at::Tensor>> tensors;
  std::exception_ptr unreadable;  // files that fit the manifest, and are wrong
};

// Keeps the tensors of a file. Returns its digest.
std::string ReadTensors(const std::string& file, const std::string& name, FilesRead* read) {
  try {
    std::string digest;
    read->tensors[name] = ReadSafetensors(file, &digest);
    return digest;
  } catch (const Error& error) {
    if (error.code() != ExitCode::kBadData) throw;
    if (!read->unreadable) read->unreadable = std::current_exception();
  }
  return Sha256HexOfFile(file);
}

FilesRead VerifyAndRead(const std::string& path) {
  FilesRead read;
  const CheckpointFiles names = FilesOfCheckpoint(HoldsAdapter(path));
  VerifyCheckpoint(path, [&](const ManifestEntry& entry) {
    const std::string &name = entry.path, file = path + "/" + name;
    if (name == names.tensors || name == kOptimizerName) return ReadTensors(file, name, &read);
    if (name != names.config && name != kState) return Sha256HexOfFile(file);
    return Sha256Hex(read.texts[name] = ReadWholeFile(file, kLargestSettings));
  });
  return read;
}

LoadedCheckpoint Loaded(const std::string& path, FilesRead read) {
  if (read.unreadable) std::rethrow_exception(read.unreadable);
  LoadedCheckpoint loaded;
  loaded.path = path;
  loaded.adapter = HoldsAdapter(path);
  const CheckpointFiles names = FilesOfCheckpoint(loaded.adapter);
  const auto json_of = [&](const std::string& name) {
    return ParseJsonObject(read.texts[name], "read " + path + "/" + name);
  };
  loaded.model_config = json_of(names.config);
  loaded.weights = std::move(read.tensors[names.tensors]);
  if (read.texts.count(kState) == 0) RefuseCheckpoint(path, "state.json is missing");
  const auto optimizer = read.tensors.find(kOptimizerName);
  if (optimizer == read.tensors.end()) {
    RefuseCheckpoint(path, "optimizer.safetensors is missing");
  }
  loaded.state = json_of(kState);
  loaded.optimizer = std::move(optimizer->second);
  if (!loaded.state.contains("step") || !loaded.state["step"].is_number_unsigned()) {
    RefuseCheckpoint(path, "state.json has no step");
  }
  loaded.step = loaded.state["step"].get<int64_t>();
  return loaded;
}

}  // namespace

LoadedCheckpoint LoadCheckpoint(const std::string& path) {
  return Loaded(path, VerifyAndRead(path));
}

std::unique_ptr<LoadedCheckpoint> LoadNewestCheckpoint(const std::string& root,
                                                       std::vector<std::string>* skipped) {
  const std::vector<int64_t> steps = ListCheckpoints(root);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const std::string path = root + "/" + CheckpointName(*step);
    FilesRead read;
    try {
      read = VerifyAndRead(path);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kBadData) {
        throw Error(error.code(), "resume from " + path + ": " + error.what(),
                    error.code() == ExitCode::kIo
                        ? "make it readable, or name an older one with --resume"
                        : error.hint());
      }
      skipped->push_back(error.what());
      continue;
    }
    return std::make_unique<LoadedCheckpoint>(Loaded(path, std::move(read)));
  }
  if (!steps.empty()) {
    throw DataError("resume in " + root + ": no checkpoint in it verifies; " + skipped->front(),
                    "mend it, or move the step-* directories away to begin at step 0");
  }
  return nullptr;
}

int64_t TensorBytes(const LoadedCheckpoint& checkpoint) {
  int64_t bytes = 0;
  for (const auto* tensors : {&checkpoint.weights, &checkpoint.optimizer}) {
    for (const auto& [name, tensor] : *tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
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
