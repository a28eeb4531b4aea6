#ifndef GPUCTL_COMMON_FILES_BACKGROUND_SYNC_H_
#define GPUCTL_COMMON_FILES_BACKGROUND_SYNC_H_

#include <cstdint>
#include <functional>
#include <thread>
#include <utility>

#include "common/base/mutex.h"

namespace gpuctl {

// Brings what is written to stable storage while more comes, on a thread of its own, so that a sync
// in the end has less to wait for. It promises nothing: only that sync does.
class BackgroundSync {
 public:
  // `sync` (SyncFileSystem, say) runs once `bytes` have been written, then after twice as many
  // more, and so on: others who write to the disk are not disturbed all the time. Once it has
  // returned false it is not called again.
  explicit BackgroundSync(std::function<bool()> sync, int64_t bytes = 8 << 20)
      : sync_(std::move(sync)), next_bytes_(bytes) {}
  // Waits for a `sync` that is running.
  ~BackgroundSync();
  BackgroundSync(const BackgroundSync&) = delete;
  BackgroundSync& operator=(const BackgroundSync&) = delete;

  // One thread.
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
