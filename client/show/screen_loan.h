// Hands the terminal from the thread that shows a run to the one that sends its files, which draws
// a bar of its own, and back. At each time one of them writes.
#ifndef GPUCTL_CLIENT_SHOW_SCREEN_LOAN_H_
#define GPUCTL_CLIENT_SHOW_SCREEN_LOAN_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/status/status.h"
#include "client/base/wake_pipe.h"

namespace gpuctl {

class ScreenLoan {
 public:
  enum class State {
    kKept,      // the showing thread has the screen
    kWanted,    // and is asked for it
    kLent,      // the sending thread has it
    kReturned,  // and had it
  };

  // `patience`: how long Borrow waits for a screen that nobody lends.
  explicit ScreenLoan(std::chrono::milliseconds patience = std::chrono::seconds(1))
      : patience_(patience) {}

  // Comes first, before there is a second thread.
  absl::Status Open() { return wake_.Open(); }

  // For the sending thread. Returns once the screen is lent, or when nobody lends it for that
  // time or will any more: files are sent in any case.
  void Borrow();
  void Return() { Set(State::kReturned); }

  // For the showing thread. The descriptor is readable after Borrow and Return, until Look.
  int wake_fd() const { return wake_.fd(); }
  State Look();
  // Takes a step from what Look has returned: lends what is wanted, keeps what was returned.
  void Lend() { Change(State::kWanted, State::kLent); }
  void Keep() { Change(State::kReturned, State::kKept); }
  // Nothing is shown from now on.
  void Close();

 private:
  void Set(State state);
  void Change(State from, State to);

  const std::chrono::milliseconds patience_;
  WakePipe wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::kKept;
  bool closed_ = false;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SHOW_SCREEN_LOAN_H_
