#ifndef GPUCTL_COMMON_FILES_BACKGROUND_SYNC_H_
#define GPUCTL_COMMON_FILES_BACKGROUND_SYNC_H_

#include <cstdint>
#include <functional>
#include <thread>
#include <utility>

#include "common/base/mutex.h"

namespace gpuctl {

// Syncs written bytes on its own thread while more are written, so that the final sync waits less.
// It guarantees nothing; only the final sync does.
class BackgroundSync {
 public:
  // Calls `sync` (SyncFileSystem, for example) after `bytes` have been written, then after twice as
  // many more, and so on, so that it rarely disturbs other writers. After a false result `sync` is
  // not called again.
  explicit BackgroundSync(std::function<bool()> sync, int64_t bytes = 8 << 20)
      : sync_(std::move(sync)), next_bytes_(bytes) {}
  // Waits for a running `sync`.
  ~BackgroundSync();
  BackgroundSync(const BackgroundSync&) = delete;
  BackgroundSync& operator=(const BackgroundSync&) = delete;

  // Counts `bytes` as written. Call it from one thread.
  void Wrote(int64_t bytes);

 private:
  void Run();

  const std::function<bool()> sync_;
  int64_t next_bytes_;
  int64_t unsynced_bytes_ = 0;
  std::thread thread_;
  Mutex mutex_;
  CondVar changed_;
  bool due_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_FILES_BACKGROUND_SYNC_H_
