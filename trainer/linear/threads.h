// The threads inside one worker: they share the pieces of one operation at a time.
//
// A worker runs its share of the batch on one thread, the leader. Where the work of an operation is
// large enough, the leader calls ForPieces, and the worker's other threads run some of the pieces.
// No thread waits by spinning.

#ifndef TRAINER_LINEAR_THREADS_H_
#define TRAINER_LINEAR_THREADS_H_

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>

namespace gpuctl::trainer {

// Calls work(piece) once for each piece of [0, pieces) and returns when all have returned. Called
// by a leader, the worker's threads share the pieces; else, and inside of a piece, the calling
// thread runs them in order. Which thread runs a piece is not determined, so the pieces must be a
// function of the operation's extents alone, unless they decide no bit: then results have the same
// bits with any number of threads. If some threw, rethrows the exception of the lowest piece.
void ForPieces(int64_t pieces, const std::function<void(int64_t piece)>& work);
// Returns how many threads would share the pieces of the calling one, itself included.
int SharingThreads();

// Calls work(begin, end) for pieces of [0, count) that are multiples of `grain`, but for the last;
// at most kMostPieces.
constexpr int64_t kMostPieces = 32;
void ForRanges(int64_t count, int64_t grain,
               const std::function<void(int64_t begin, int64_t end)>& work);
// Returns the grain for rows of `width` elements in a loop that does little with each.
int64_t RowGrain(int64_t width);
// Returns how many pieces that makes; piece i begins at RangeBegin(count, grain, i).
int64_t RangesOf(int64_t count, int64_t grain);
int64_t RangeBegin(int64_t count, int64_t grain, int64_t piece);

// Has LibTorch work with one thread on the calling one. Call it, and not at::set_num_threads: that
// makes LibTorch's pool of one thread a core first, which waits without an end for those that the
// system does not give. Throws std::system_error then.
void UseOneThreadOfTorch();

// Joins a leader and its helpers.
class ThreadGroup {
 public:
  explicit ThreadGroup(int helpers) : helpers_(helpers) {}
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  // Runs `work` on this thread, with the helpers at ForPieces. Returns, or throws what `work`
  // throws, when all helpers have left.
  void Lead(const std::function<void()>& work);
  // Helps the leader until its work has returned. Each helper calls it once for each Lead, before
  // or after that begins.
  void Help();

 private:
  friend void ForPieces(int64_t pieces, const std::function<void(int64_t piece)>& work);
  friend int SharingThreads();

  void Share(int64_t pieces, const std::function<void(int64_t)>& work);
  void RunPieces(std::unique_lock<std::mutex>& lock);

  const int helpers_;
  std::mutex mutex_;  // guards all below
  std::condition_variable wake_;
  std::condition_variable done_;
  const std::function<void(int64_t)>* work_ = nullptr;
  int64_t pieces_ = 0;
  int64_t next_ = 0;
  int64_t running_ = 0;
  int64_t failed_piece_ = 0;
  std::exception_ptr failure_;
  int left_ = 0;
  bool over_ = false;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_LINEAR_THREADS_H_
