#include "client/show/screen_loan.h"

namespace gpuctl {

void ScreenLoan::Borrow() {
  Set(State::kWanted);
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, patience_, [this] { return state_ == State::kLent || closed_; });
}

void ScreenLoan::Close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

ScreenLoan::State ScreenLoan::Look() {
  wake_.Clear();
  const std::lock_guard<std::mutex> lock(mutex_);
  return state_;
}

// Does nothing where the other thread has changed it meanwhile.
void ScreenLoan::Change(State from, State to) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (state_ == from) state_ = to;
  changed_.notify_all();
}

void ScreenLoan::Set(State state) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    state_ = state;
    changed_.notify_all();
  }
  wake_.Wake();
}

}  // namespace gpuctl
