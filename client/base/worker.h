// A thread that works in the background, and what it tells, for another thread to look at.
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
//   void Forget()  drops what is told only once
// An owner whose members the thread uses makes the Worker its last member, so that the thread ends
// before they do.
template <typename News>
class Worker {
 public:
  // `clock` outlives the Worker. `news` is what the first Take finds.
  explicit Worker(Clock& clock, News news = News()) : clock_(clock), news_(std::move(news)) {}
  // Waits for the thread, however long that takes: tell it to end first.
  ~Worker() {
    if (thread_.joinable()) thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Starts the thread, which calls `work` and has ended when that returns. At most once.
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

  // Waits for the thread's end, but no longer than `patience`; the caller has told it to end. False
  // when it is still inside something.
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

  // Returns what is known, and forgets what is told only once.
  News Take() {
    // In this order a change made meanwhile wakes once more.
    wake_.Clear();
    MutexLock lock(mutex_);
    News news = news_;
    news_.Forget();
    return news;
  }

  // Calls `change` with the news, under the lock, and returns what it returns. From any thread.
  template <typename Change>
  auto Update(Change change) {
    MutexLock lock(mutex_);
    return change(news_);
  }
  // Wakes who waits: there may be news. From any thread.
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
