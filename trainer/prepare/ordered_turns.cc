#include "trainer/prepare/ordered_turns.h"

#include <pthread.h>

#include <vector>

#include "trainer/base/error.h"

namespace gpuctl::trainer {
namespace {

constexpr size_t kStackBytes = size_t{8} << 20;

void* CallBody(void* body) {
  (*static_cast<const std::function<void()>*>(body))();
  return nullptr;
}

}  // namespace

void OrderedTurns::RunThreads(int64_t threads, const std::function<void()>& body) {
  // Not std::thread: its stack is too small for templates on some systems.
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  std::vector<pthread_t> started;
  started.reserve(static_cast<size_t>(threads));
  for (int64_t i = 0; i < threads; ++i) {
    pthread_t thread;
    auto* argument = const_cast<void*>(static_cast<const void*>(&body));
    if (pthread_create(&thread, &attributes, CallBody, argument) != 0) break;
    started.push_back(thread);
  }
  pthread_attr_destroy(&attributes);
  for (const pthread_t thread : started) pthread_join(thread, nullptr);
  if (started.empty()) throw Error(ExitCode::kTryAgain, "start a thread: the system has no more");
  if (failure_) std::rethrow_exception(failure_);
}

bool OrderedTurns::Begin(const std::function<bool(size_t* bytes)>& read, size_t* number) {
  const std::lock_guard<std::mutex> reading(reading_);
  if (read_all_) return false;
  *number = next_number_;
  size_t bytes = 0;
  try {
    if (!read(&bytes)) {
      read_all_ = true;
      return false;
    }
  } catch (...) {
    read_all_ = true;
    ++next_number_;
    End(*number, 0, std::current_exception(), [] {});
    return false;
  }
  ++next_number_;
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return bytes_ == 0 || bytes_ + bytes <= kBytesInWork || failure_; });
  bytes_ += bytes;
  if (failure_) read_all_ = true;
  return !failure_;
}

void OrderedTurns::End(size_t number, size_t bytes, std::exception_ptr failure,
                       const std::function<void()>& take) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return turn_ == number || failure_; });
  if (!failure_ && failure) failure_ = failure;
  if (!failure_) {
    try {
      take();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  if (turn_ == number) ++turn_;
  bytes_ -= bytes;
  changed_.notify_all();
}

}  // namespace gpuctl::trainer
