#include "trainer/linear/threads.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

namespace gpuctl::trainer {
namespace {

// Makes as many threads at once as LibTorch's pool will, and one more.
void TryThreads() {
  const auto count = static_cast<size_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))) + 1;
  std::mutex all_are_there;
  std::vector<std::thread> threads;
  threads.reserve(count);
  std::exception_ptr failure;
  {
    const std::lock_guard<std::mutex> lock(all_are_there);
    try {
      while (threads.size() < count) {
        threads.emplace_back([&] { const std::lock_guard<std::mutex> wait(all_are_there); });
      }
    } catch (...) {
      failure = std::current_exception();
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

constexpr int64_t kPieceElements = 1 << 15;

// The group that this thread leads; null on other threads and inside of a piece.
thread_local ThreadGroup* led = nullptr;

}  // namespace

void ForPieces(int64_t pieces, const std::function<void(int64_t)>& work) {
  if (led != nullptr && pieces > 1) {
    ThreadGroup* const group = std::exchange(led, nullptr);
    group->Share(pieces, work);  // does not throw
    led = group;
    if (group->failure_) std::rethrow_exception(std::exchange(group->failure_, nullptr));
    return;
  }
  for (int64_t piece = 0; piece < pieces; ++piece) work(piece);
}

void UseOneThreadOfTorch() {
  static const bool tried = (TryThreads(), true);
  static_cast<void>(tried);
  at::set_num_threads(1);
}

int SharingThreads() { return led == nullptr ? 1 : led->helpers_ + 1; }

int64_t RowGrain(int64_t width) { return std::max<int64_t>(1, kPieceElements / width); }

int64_t RangesOf(int64_t count, int64_t grain) {
  return std::clamp<int64_t>((count + grain - 1) / grain, 1, kMostPieces);
}

int64_t RangeBegin(int64_t count, int64_t grain, int64_t piece) {
  const int64_t grains = (count + grain - 1) / grain;
  return std::min(count, grains * piece / RangesOf(count, grain) * grain);
}

void ForRanges(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& work) {
  ForPieces(RangesOf(count, grain), [&](int64_t piece) {
    work(RangeBegin(count, grain, piece), RangeBegin(count, grain, piece + 1));
  });
}

void ThreadGroup::Lead(const std::function<void()>& work) {
  std::exception_ptr failure;
  ThreadGroup* const outer = std::exchange(led, helpers_ > 0 ? this : nullptr);
  try {
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  led = outer;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    over_ = true;
    wake_.notify_all();
    done_.wait(lock, [this] { return left_ == helpers_; });
    over_ = false;
    left_ = 0;
  }
  if (failure) std::rethrow_exception(failure);
}

void ThreadGroup::Help() {
  const at::NoGradGuard no_grad;  // a thread's own setting; the leader computes gradients itself
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return over_ || next_ < pieces_; });
    if (next_ >= pieces_) break;
    RunPieces(lock);
  }
  if (++left_ == helpers_) done_.notify_one();
}

void ThreadGroup::Share(int64_t pieces, const std::function<void(int64_t)>& work) {
  std::unique_lock<std::mutex> lock(mutex_);
  work_ = &work;
  pieces_ = pieces;
  next_ = 0;
  failure_ = nullptr;
  wake_.notify_all();
  RunPieces(lock);
  done_.wait(lock, [this] { return running_ == 0; });
  pieces_ = next_ = 0;
}

// Runs pieces until none is left to begin. The lock is held on entry and on return.
void ThreadGroup::RunPieces(std::unique_lock<std::mutex>& lock) {
  ++running_;
  while (next_ < pieces_) {
    const int64_t piece = next_++;
    lock.unlock();
    std::exception_ptr failure;
    try {
      (*work_)(piece);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure && (!failure_ || piece < failed_piece_)) {
      failure_ = failure;
      failed_piece_ = piece;
    }
  }
  if (--running_ == 0) done_.notify_one();
}

}  // namespace gpuctl::trainer
