#include "common/files/background_sync.h"

namespace gpuctl {

BackgroundSync::~BackgroundSync() {
  {
    MutexLock lock(mutex_);
    ended_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void BackgroundSync::Wrote(int64_t bytes) {
  unsynced_bytes_ += bytes;
  if (unsynced_bytes_ < next_bytes_) return;
  unsynced_bytes_ = 0;
  next_bytes_ *= 2;
  {
    MutexLock lock(mutex_);
    due_ = true;
    changed_.NotifyAll();
  }
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
}

void BackgroundSync::Run() {
  while (true) {
    {
      MutexLock lock(mutex_);
      while (!due_ && !ended_) changed_.Wait(mutex_);
      if (ended_) return;
      due_ = false;
    }
    if (!sync_()) return;
  }
}

}  // namespace gpuctl
