// Computes SHA-256 beside the work that the bytes are read for.

#ifndef TRAINER_BASE_BACKGROUND_SHA256_H_
#define TRAINER_BASE_BACKGROUND_SHA256_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trainer/base/sha256.h"

namespace gpuctl::trainer {

// An incremental digest on a thread of its own. Small inputs need no thread, and where there is
// none, it does without. Not thread-safe; Hex() ends it.
class BackgroundSha256 {
 public:
  BackgroundSha256() = default;
  ~BackgroundSha256();
  BackgroundSha256(const BackgroundSha256&) = delete;
  BackgroundSha256& operator=(const BackgroundSha256&) = delete;

  // Copies the bytes. Waits while 16 MiB have not been taken.
  void Update(const void* bytes, size_t size);
  std::string Hex();  // call once

 private:
  void Give();
  void Serve();
  void End();

  Sha256 digest_;      // of the thread while there is one
  std::string begun_;  // the next piece
  std::thread thread_;
  bool threadless_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> pieces_;  // guarded by mutex_
  std::vector<std::string> used_;   // guarded by mutex_; for their memory
  bool ended_ = false;              // guarded by mutex_
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_BASE_BACKGROUND_SHA256_H_
