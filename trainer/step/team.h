// A fixed team of threads that work in parallel on one step.
//
// Each member uses exactly one thread of LibTorch (at::set_num_threads(1)), so that no OpenMP
// thread ever spins for work. Two workers that each multiply their own half of the batch are faster
// than one that splits every operation in two; where there are fewer workers than cores, each has
// several members, which share its operations (linear/threads.h).

#ifndef TRAINER_STEP_TEAM_H_
#define TRAINER_STEP_TEAM_H_

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "trainer/linear/threads.h"

namespace gpuctl::trainer {

class Team {
 public:
  // Makes `workers` times `threads` members; member 0 is the caller of Run(). Throws
  // std::system_error where the system gives no more threads.
  explicit Team(int workers, int threads = 1);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return size_; }  // members
  int workers() const { return static_cast<int>(groups_.size()); }

  // Calls work(member) on all members at once and returns when the last has returned. If some
  // threw, rethrows the exception of the lowest-numbered one. Not reentrant.
  void Run(const std::function<void(int)>& work);

  // Calls work(worker) on one member of each worker, with the others at its ForPieces. The rest is
  // as in Run.
  void RunWorkers(const std::function<void(int)>& work);

 private:
  void Serve(int member);
  void Leave();
  void Do(int member, const std::function<void(int)>& work);

  const int size_;
  std::vector<std::unique_ptr<ThreadGroup>> groups_;  // one for each worker
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  const std::function<void(int)>* work_ = nullptr;  // guarded by mutex_
  int64_t round_ = 0;                               // guarded by mutex_
  int busy_ = 0;                                    // guarded by mutex_
  bool leaving_ = false;                            // guarded by mutex_
  std::vector<std::exception_ptr> failures_;  // one slot per member, which only that member writes
  std::vector<std::thread> threads_;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_STEP_TEAM_H_
