#include "trainer/interchange/pieces.h"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace gpuctl::trainer {
namespace {

// The pieces of one tensor. Piece i is made in slot i % slots, when piece i - slots is written.
class PieceQueue {
 public:
  PieceQueue(int64_t pieces, size_t slots) : pieces_(pieces), slots_(slots) {}

  // Makes pieces until there are no more.
  void Make(const std::function<void(int64_t, Piece*)>& make) {
    for (;;) {
      int64_t piece;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        if (next_ >= pieces_ || failed_) return;
        piece = next_++;
        changed_.wait(lock, [&] { return failed_ || piece < written_ + Count(); });
        if (failed_) return;
      }
      Slot& slot = slots_[static_cast<size_t>(piece % Count())];
      std::exception_ptr failure;
      try {
        make(piece, &slot.piece);
      } catch (...) {
        failure = std::current_exception();
      }
      const std::lock_guard<std::mutex> lock(mutex_);
      slot.made = true;
      if (failure != nullptr) Fail(failure);
      changed_.notify_all();
    }
  }

  // Writes all pieces.
  void Write(const std::function<void(const Piece&)>& write) {
    for (int64_t piece = 0; piece < pieces_; ++piece) {
      Slot& slot = slots_[static_cast<size_t>(piece % Count())];
      {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return failed_ || slot.made; });
        if (failed_) return;
      }
      std::exception_ptr failure;
      try {
        write(slot.piece);
      } catch (...) {
        failure = std::current_exception();
      }
      const std::lock_guard<std::mutex> lock(mutex_);
      slot.made = false;
      ++written_;
      if (failure != nullptr) Fail(failure);
      changed_.notify_all();
    }
  }

  void Rethrow() const {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

 private:
  struct Slot {
    Piece piece;
    bool made = false;
  };

  int64_t Count() const { return static_cast<int64_t>(slots_.size()); }
  void Fail(const std::exception_ptr& failure) {
    if (failure_ == nullptr) failure_ = failure;
    failed_ = true;
  }

  const int64_t pieces_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Slot> slots_;
  int64_t next_ = 0;
  int64_t written_ = 0;
  bool failed_ = false;
  std::exception_ptr failure_;
};

void MakeAlone(int64_t pieces, const std::function<void(int64_t, Piece*)>& make,
               const std::function<void(const Piece&)>& write) {
  Piece made;
  for (int64_t piece = 0; piece < pieces; ++piece) {
    make(piece, &made);
    write(made);
  }
}

}  // namespace

void ForPieces(int64_t rows, uint64_t row_bytes,
               const std::function<void(int64_t, int64_t, Piece*)>& make,
               const std::function<void(const Piece&)>& write) {
  const auto each =
      static_cast<int64_t>(std::max<uint64_t>(1, kPieceTarget / std::max<uint64_t>(1, row_bytes)));
  const int64_t pieces = rows / each + (rows % each != 0 ? 1 : 0);
  const auto make_piece = [&](int64_t piece, Piece* made) {
    make(piece * each, std::min(each, rows - piece * each), made);
  };
  if (pieces <= 1) return MakeAlone(pieces, make_piece, write);
  const auto cores = static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  const auto count = static_cast<size_t>(std::min(cores, pieces));
  PieceQueue queue(pieces, 2 * count);
  std::vector<std::thread> threads;
  try {
    for (size_t i = 0; i < count; ++i) threads.emplace_back([&] { queue.Make(make_piece); });
  } catch (const std::system_error&) {
    // Fewer threads do it as well; none does not.
    if (threads.empty()) return MakeAlone(pieces, make_piece, write);
  }
  queue.Write(write);
  for (std::thread& thread : threads) thread.join();
  queue.Rethrow();
}

}  // namespace gpuctl::trainer
