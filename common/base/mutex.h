// std::mutex with Clang thread-safety annotations. absl::Mutex is not used for our own state: the
// packaged Abseil is not instrumented for ThreadSanitizer and reports races in correct code.
#ifndef GPUCTL_COMMON_BASE_MUTEX_H_
#define GPUCTL_COMMON_BASE_MUTEX_H_

#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace gpuctl {

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// A condition variable. Waits may return spuriously: test the condition in a loop.
class CondVar {
 public:
  void Wait(Mutex& mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // False when `timeout` (monotonic) passed first.
  bool WaitFor(Mutex& mutex, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool signalled =
        condition_.wait_for(lock, absl::ToChronoNanoseconds(timeout)) == std::cv_status::no_timeout;
    lock.release();
    return signalled;
  }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_BASE_MUTEX_H_
