// Tells whether an adapter belongs to a model: the digest of a model folder.

#ifndef TRAINER_CHECKPOINT_BASE_DIGEST_H_
#define TRAINER_CHECKPOINT_BASE_DIGEST_H_

#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "trainer/checkpoint/stored_file.h"

namespace gpuctl::trainer {

// Returns the SHA-256 of "digest name\n" for config.json and each file of weights, sorted by name.
// Reads all of them. Calls `check` often; it may throw to give up. Throws Error(kBadData) or
// Error(kIo).
std::string BaseDigest(const std::string& folder, const std::function<void()>& check = nullptr);

// Returns the same where the digests of the files of weights are known already, by their paths.
std::string BaseDigest(const std::string& folder,
                       const std::map<std::string, std::string>& weights);

// BaseDigest for a run that has begun, computed on a thread of low priority. Not thread-safe.
class BackgroundBaseDigest {
 public:
  // Takes the files as they are in the folder now; they may be renamed or removed later. Throws as
  // BaseDigest does.
  explicit BackgroundBaseDigest(const std::string& folder);
  // With a digest that is known already, there is nothing to do.
  static std::unique_ptr<BackgroundBaseDigest> Known(const std::string& digest);
  ~BackgroundBaseDigest();  // gives up the rest
  BackgroundBaseDigest(const BackgroundBaseDigest&) = delete;
  BackgroundBaseDigest& operator=(const BackgroundBaseDigest&) = delete;

  // Throws what has gone wrong so far, as Get does. Does not wait.
  void Check() const;
  // Waits for the digest. Throws Error(kIo), or Error(kBadData) when a program has written into the
  // files meanwhile.
  std::string Get();

 private:
  BackgroundBaseDigest() = default;
  std::string Compute() const;

  struct File {
    std::shared_ptr<const StoredFile> file;
    std::string stamp;
  };
  std::string folder_;
  std::string config_;                 // the digest of config.json
  std::map<std::string, File> files_;  // of weights, by path
  std::atomic<bool> given_up_ = false;
  std::packaged_task<std::string()> task_;
  std::shared_future<std::string> digest_;
  std::thread thread_;  // none where the system allows no more: Get computes then
};

// Returns sizes and times of the same files, in some form, to tell later whether they changed.
// Throws as BaseDigest does.
std::string BaseStamp(const std::string& folder);

// Throws Error(kBadData) when the files changed since `stamp` was taken of them.
void CheckUnchanged(const std::string& folder, const std::string& stamp);

// Throws Error(kBadConfig) unless the checkpoint's adapters are for the model of that digest, which
// is in `folder`. Reads state.json of the checkpoint; throws Error(kBadData) or Error(kIo) for it.
void CheckBase(const std::string& checkpoint, const std::string& folder, const std::string& digest);

}  // namespace gpuctl::trainer

#endif  // TRAINER_CHECKPOINT_BASE_DIGEST_H_
