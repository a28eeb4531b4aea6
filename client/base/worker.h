// A thread that works in the background, and its news for another thread.
#ifndef GPUCTL_CLIENT_BASE_WORKER_H_
#define GPUCTL_CLIENT_BASE_WORKER_H_

#include <functional>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/base/wake_pipe.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"

namespace gpuctl {

// `News` is a copyable struct with
//   bool done      True when the thread has ended; Worker sets it
//   void Forget()  drops the parts that one Take may return only once
// An owner whose members the thread uses makes the Worker its last member, so that the thread ends
// before they do.
template <typename News>
class Worker {
 public:
  // `clock` outlives the Worker. The first Take returns `news`, if nothing changed it.
  explicit Worker(Clock& clock, News news = News()) : clock_(clock), news_(std::move(news)) {}
  // Waits for the thread without a limit: tell it to end first.
  ~Worker() {
    if (thread_.joinable()) thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Starts the thread, which calls `work` and ends when `work` returns. Call it at most once.
  absl::Status Start(std::function<void()> work) {
    RETURN_IF_ERROR(wake_.Open());
    thread_ = std::thread([this, work = std::move(work)] {
      work();
      {
        MutexLock lock(mutex_);
        news_.done = true;
        ended_.NotifyAll();
      }
      Wake();
    });
    return absl::OkStatus();
  }

  // Waits for the thread's end, at most `patience`; the caller has told it to end. Returns false
  // when it still runs.
  bool Finish(absl::Duration patience) {
    if (!thread_.joinable()) return true;
    const absl::Duration end = clock_.SinceBoot() + patience;
    MutexLock lock(mutex_);
    while (!news_.done) {
      const absl::Duration left = end - clock_.SinceBoot();
      if (left <= absl::ZeroDuration()) return false;
      ended_.WaitFor(mutex_, left);
    }
    return true;
  }

  // Readable when there may be news (see WaitForNews). Take clears it.
  int wake_fd() const { return wake_.fd(); }

  // Returns the news, and then calls their Forget.
  News Take() {
    // Clear first: a change made after it wakes once more.
    wake_.Clear();
    MutexLock lock(mutex_);
    News news = news_;
    news_.Forget();
    return news;
  }

  // Calls `change` with the news, under the lock, and returns its result. Safe from any thread.
  template <typename Change>
  auto Update(Change change) {
    MutexLock lock(mutex_);
    return change(news_);
  }
  // Wakes the waiting thread: there may be news. Safe from any thread.
  void Wake() const { wake_.Wake(); }

 private:
  Clock& clock_;
  WakePipe wake_;
  std::thread thread_;
  Mutex mutex_;
  CondVar ended_;
  News news_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_WORKER_H_
