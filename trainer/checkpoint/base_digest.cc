#include "trainer/checkpoint/base_digest.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <set>
#include <system_error>
#include <utility>

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

// `digests` are those of the files of weights, by their paths; `config` is that of config.json.
std::string DigestOfAll(const std::string& folder, const std::string& config,
                        std::map<std::string, std::string> digests) {
  digests[ConfigPath(folder)] = config;
  std::string lines;
  for (const auto& [path, digest] : digests) {
    lines += digest + " " + path.substr(folder.size() + 1) + "\n";
  }
  return Sha256Hex(lines);
}

Error ChangedError(const std::string& folder) {
  return DataError("read model " + folder + ": its files changed while they were read",
                   "start again when nothing writes there");
}

// Lets the threads that train have the cores first.
void LowerPriorityOfThread() {
#if defined(__linux__)  // elsewhere the call is for the whole process
  (void)::setpriority(PRIO_PROCESS, 0, 10);
#endif
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
  if (BaseStamp(folder) != stamp) throw ChangedError(folder);
}

std::string BaseDigest(const std::string& folder, const std::function<void()>& check) {
  std::map<std::string, std::string> weights;
  for (const auto& [name, place] : OpenWeights(folder)) weights[place.file->path()];
  for (auto& [path, digest] : weights) digest = Sha256HexOfFile(path, check);
  return BaseDigest(folder, weights);
}

std::string BaseDigest(const std::string& folder,
                       const std::map<std::string, std::string>& weights) {
  return DigestOfAll(folder, Sha256HexOfFile(ConfigPath(folder)), weights);
}

BackgroundBaseDigest::BackgroundBaseDigest(const std::string& folder)
    : folder_(folder), config_(Sha256HexOfFile(ConfigPath(folder))) {
  for (const auto& [name, place] : OpenWeights(folder)) {
    const std::string& path = place.file->path();
    if (files_.count(path) == 0) files_[path] = {place.file, place.file->Stamp()};
  }
  task_ = std::packaged_task<std::string()>([this] { return Compute(); });
  digest_ = task_.get_future();
  try {
    thread_ = std::thread([this] {
      LowerPriorityOfThread();
      task_();
    });
  } catch (const std::system_error&) {
  }
}

std::unique_ptr<BackgroundBaseDigest> BackgroundBaseDigest::Known(const std::string& digest) {
  std::unique_ptr<BackgroundBaseDigest> known(new BackgroundBaseDigest());
  std::promise<std::string> promise;
  promise.set_value(digest);
  known->digest_ = promise.get_future();
  return known;
}

BackgroundBaseDigest::~BackgroundBaseDigest() {
  given_up_ = true;
  if (thread_.joinable()) thread_.join();
}

void BackgroundBaseDigest::Check() const {
  if (digest_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) digest_.get();
}

std::string BackgroundBaseDigest::Get() {
  if (task_.valid() && !thread_.joinable()) std::exchange(task_, {})();
  return digest_.get();
}

std::string BackgroundBaseDigest::Compute() const {
  struct GivenUp {};
  std::map<std::string, std::string> digests;
  for (const auto& [path, opened] : files_) {
    digests[path] = opened.file->Digest([this] {
      if (given_up_) throw GivenUp();
    });
    if (opened.file->Stamp() != opened.stamp) throw ChangedError(folder_);
  }
  return DigestOfAll(folder_, config_, digests);
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
