// Threads that take numbers, and have their turn in the order of the numbers.

#ifndef TRAINER_PREPARE_ORDERED_TURNS_H_
#define TRAINER_PREPARE_ORDERED_TURNS_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>

namespace gpuctl::trainer {

// More work is not begun, unless nothing else is.
constexpr size_t kBytesInWork = size_t{32} << 20;

class OrderedTurns {
 public:
  OrderedTurns() = default;
  OrderedTurns(const OrderedTurns&) = delete;
  OrderedTurns& operator=(const OrderedTurns&) = delete;

  // Runs `body` on so many threads, with 8 MiB of stack each, and waits for them. Rethrows the
  // failure with the lowest number. Throws Error(kTryAgain) when no thread can be started.
  void RunThreads(int64_t threads, const std::function<void()>& body);

  // Calls `read`, one thread at a time, which tells how many bytes it got, and gives them the next
  // number. Returns false when `read` does, or something failed.
  bool Begin(const std::function<bool(size_t* bytes)>& read, size_t* number);

  // Waits for the turn of `number`, and calls `take`; not after a failure. Call it for each number.
  void End(size_t number, size_t bytes, std::exception_ptr failure,
           const std::function<void()>& take);

 private:
  std::mutex reading_;  // before mutex_
  size_t next_number_ = 0;
  bool read_all_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  size_t turn_ = 0;
  size_t bytes_ = 0;
  std::exception_ptr failure_;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_PREPARE_ORDERED_TURNS_H_
