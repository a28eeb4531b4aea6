#include "trainer/checkpoint/base_digest.h"

#include <sys/stat.h>

#include <cerrno>
#include <set>

#include "trainer/base/error.h"
#include "trainer/base/sha256.h"
#include "trainer/checkpoint/folder_files.h"
#include "trainer/checkpoint/stored_file.h"

namespace gpuctl::trainer {

namespace {

std::string ConfigPath(const std::string& folder) { return folder + "/config.json"; }

std::set<std::string> BasePaths(const std::string& folder) {
  std::set<std::string> paths = {ConfigPath(folder)};
  for (const auto& [name, place] : OpenWeights(folder)) paths.insert(place.file->path());
  return paths;
}

std::string DigestOfAll(const std::string& folder,
                        const std::map<std::string, std::string>& digests) {
  std::string lines;
  for (const auto& [path, digest] : digests) {
    lines += digest + " " + path.substr(folder.size() + 1) + "\n";
  }
  return Sha256Hex(lines);
}

}  // namespace

std::string BaseStamp(const std::string& folder) {
  std::string stamp;
  for (const std::string& path : BasePaths(folder)) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) throw IoError("stat", path, errno);
#if defined(__APPLE__)
    const timespec &written = info.st_mtimespec, &changed = info.st_ctimespec;
#else
    const timespec &written = info.st_mtim, &changed = info.st_ctim;
#endif
    for (const long long value :
         {static_cast<long long>(info.st_dev), static_cast<long long>(info.st_ino),
          static_cast<long long>(info.st_size), static_cast<long long>(written.tv_sec),
          static_cast<long long>(written.tv_nsec), static_cast<long long>(changed.tv_sec),
          static_cast<long long>(changed.tv_nsec)}) {
      stamp += std::to_string(value) + " ";
    }
    stamp += path + "\n";
  }
  return stamp;
}

void CheckUnchanged(const std::string& folder, const std::string& stamp) {
  if (BaseStamp(folder) == stamp) return;
  throw DataError("read model " + folder + ": its files changed while they were read",
                  "start again when nothing writes there");
}

std::string BaseDigest(const std::string& folder, const std::function<void()>& check) {
  std::map<std::string, std::string> digests;
  for (const std::string& path : BasePaths(folder)) digests[path] = Sha256HexOfFile(path, check);
  return DigestOfAll(folder, digests);
}

std::string BaseDigest(const std::string& folder,
                       const std::map<std::string, std::string>& weights) {
  std::map<std::string, std::string> digests = weights;
  const std::string config = ConfigPath(folder);
  digests[config] = Sha256HexOfFile(config);
  return DigestOfAll(folder, digests);
}

void CheckBase(const std::string& checkpoint, const std::string& folder,
               const std::string& digest) {
  const nlohmann::json state = ReadJsonObject(checkpoint + "/state.json");
  if (state.contains("base_digest") && state["base_digest"] == digest) return;
  throw ConfigError("use " + checkpoint + ": its adapters are for another model than that in " +
                        folder + ", whose files have another digest",
                    "give the model folder that the run began with");
}

}  // namespace gpuctl::trainer
