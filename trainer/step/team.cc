#include "trainer/step/team.h"

namespace gpuctl::trainer {

Team::Team(int workers, int threads)
    : size_(workers * threads), failures_(static_cast<size_t>(size_)) {
  UseOneThreadOfTorch();
  for (int worker = 0; worker < workers; ++worker) {
    groups_.push_back(std::make_unique<ThreadGroup>(threads - 1));
  }
  try {
    for (int member = 1; member < size_; ++member) {
      threads_.emplace_back([this, member] { Serve(member); });
    }
  } catch (...) {
    Leave();
    throw;
  }
}

Team::~Team() { Leave(); }

void Team::Leave() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    leaving_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Team::Do(int member, const std::function<void(int)>& work) {
  std::exception_ptr& failure = failures_[static_cast<size_t>(member)];
  failure = nullptr;
  try {
    work(member);
  } catch (...) {
    failure = std::current_exception();
  }
}

void Team::Run(const std::function<void(int)>& work) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    work_ = &work;
    busy_ = size_ - 1;
    ++round_;
  }
  wake_.notify_all();
  Do(0, work);
  {
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
    work_ = nullptr;
  }
  for (const std::exception_ptr& failure : failures_) {
    if (failure) std::rethrow_exception(failure);
  }
}

void Team::RunWorkers(const std::function<void(int)>& work) {
  Run([&](int member) {
    const int worker = member % workers();
    ThreadGroup& group = *groups_[static_cast<size_t>(worker)];
    if (member == worker) {
      group.Lead([&] { work(worker); });
    } else {
      group.Help();
    }
  });
}

void Team::Serve(int member) {
  UseOneThreadOfTorch();
  int64_t seen = 0;
  for (;;) {
    const std::function<void(int)>* work = nullptr;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [&] { return leaving_ || round_ != seen; });
      if (leaving_) return;
      seen = round_;
      work = work_;
    }
    Do(member, *work);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      --busy_;
    }
    done_.notify_one();
  }
}

}  // namespace gpuctl::trainer
