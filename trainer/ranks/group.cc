#include "trainer/ranks/group.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace gpuctl::trainer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kJoin = 600;         // seconds
constexpr double kRemind = 30;        // seconds between lines about ranks that are not there
constexpr double kConnect = 2;        // seconds of one try
constexpr double kAnswerWithin = 60;  // seconds in which whoever listens at the port must answer
constexpr double kAnswerStopped = 3;  // the same, once this process is to stop

std::atomic<bool> must_end{false};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string FirstLine(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

[[noreturn]] void ThrowStopped() {
  throw Error(ExitCode::kTryAgain, "join the other processes: stopped before all had come");
}

// A question to the store has no limit of time, and something else may listen at the port: then
// this ends the process.
class AnswerGuard {
 public:
  AnswerGuard(const Ranks& ranks, const std::function<bool()>& stopped)
      : where_(ranks.address + ":" + std::to_string(ranks.port)), stopped_(stopped) {
    thread_ = std::thread([this] { Watch(); });
  }
  ~AnswerGuard() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  AnswerGuard(const AnswerGuard&) = delete;
  AnswerGuard& operator=(const AnswerGuard&) = delete;

  // A question was answered, or given up.
  void Answered() { answered_ = true; }

 private:
  void Watch() {
    constexpr double kGuardLook = 0.2;
    double silent = 0;  // counted, so that a process that stood still is not blamed for it
    for (;;) {
      {
        std::unique_lock<std::mutex> lock(mutex_);
        const std::chrono::duration<double> look(kGuardLook);
        if (changed_.wait_for(lock, look, [this] { return over_; })) return;
      }
      silent = answered_.exchange(false) ? 0 : silent + kGuardLook;
      if (silent <= (stopped_() ? kAnswerStopped : kAnswerWithin)) continue;
      std::fprintf(
          stderr,
          "gpuctl-trainer: join the other processes: what listens at %s does not answer as "
          "rank 0 does; set MASTER_PORT to a free port of rank 0's machine\n",
          where_.c_str());
      EndAtOnce(static_cast<int>(ExitCode::kTryAgain));
    }
  }

  const std::string where_;
  const std::function<bool()> stopped_;
  std::atomic<bool> answered_{true};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;  // guarded by mutex_
  std::thread thread_;
};

// Tries again as long as rank 0 may not have begun yet.
std::unique_ptr<Store> Connect(const Ranks& ranks, bool serve, AnswerGuard& guard,
                               const std::function<void(const std::string&)>& say,
                               const std::function<bool()>& stopped) {
  const Clock::time_point start = Clock::now();
  double reminded = 0;
  for (;;) {
    try {
      return std::make_unique<Store>(ranks, serve, kConnect);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      const std::string where = ranks.address + ":" + std::to_string(ranks.port);
      if (serve) {
        throw Error(ExitCode::kTryAgain,
                    "serve the other processes at " + where + ": " + FirstLine(error),
                    "set MASTER_PORT to a free port of rank 0's machine");
      }
      guard.Answered();
      if (stopped()) ThrowStopped();
      const double waited = SecondsSince(start);
      if (waited > kJoin) {
        throw Error(ExitCode::kTryAgain,
                    Format("join the other processes: rank 0 does not answer at %s for %.0f s",
                           where.c_str(), waited));
      }
      if (waited - reminded > kRemind) {
        reminded = waited;
        say(Format("ranks   rank %lld waits for rank 0 at %s", static_cast<long long>(ranks.rank),
                   where.c_str()));
      }
      poll(nullptr, 0, 200);
    }
  }
}

std::string HereKey(int64_t rank) { return "here/" + std::to_string(rank); }

}  // namespace

void ThrowLost(const Peers& peers, const std::string& trouble, const std::string& what) {
  peers.notice();
  throw Error(ExitCode::kTryAgain,
              trouble.empty() ? "an exchange with the other processes failed: " + what : trouble,
              "--resume auto goes on from the newest checkpoint");
}

// Waits until each rank has said that it is there.
void Group::Meet(const std::function<void(const std::string&)>& say,
                 const std::function<bool()>& stopped, const std::function<void()>& answered) {
  // A store of another run answers, too; it has such a rank already, or will have one.
  if (store_->Add("claimed/" + std::to_string(ranks_.rank), 1) != 1) {
    throw Error(ExitCode::kTryAgain,
                Format("join the other processes: there is a rank %lld already at %s:%lld: address "
                       "already in use by another run",
                       static_cast<long long>(ranks_.rank), ranks_.address.c_str(),
                       static_cast<long long>(ranks_.port)),
                "set MASTER_PORT to a free port of rank 0's machine");
  }
  store_->Set(HereKey(ranks_.rank), std::to_string(ranks_.size));
  const Clock::time_point start = Clock::now();
  double reminded = 0;
  for (;;) {
    std::string missing;
    for (int64_t rank = 0; rank < ranks_.size; ++rank) {
      answered();
      if (!store_->Has(HereKey(rank))) {
        missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
      } else if (const std::string size = store_->Get(HereKey(rank));
                 size != std::to_string(ranks_.size)) {
        throw ConfigError(Format(
            "join the other processes: WORLD_SIZE is %lld here and %s at rank "
            "%lld",
            static_cast<long long>(ranks_.size), size.c_str(), static_cast<long long>(rank)));
      }
    }
    if (missing.empty()) return;
    if (stopped()) ThrowStopped();
    const double waited = SecondsSince(start);
    if (waited > kJoin) {
      throw Error(ExitCode::kTryAgain,
                  Format("join the other processes: rank %s did not come within %.0f s",
                         missing.c_str(), waited));
    }
    if (waited - reminded > kRemind && ranks_.rank == 0) {
      reminded = waited;
      say("ranks   waiting for rank " + missing);
    }
    poll(nullptr, 0, 50);
  }
}

std::unique_ptr<Group> Group::Join(const Ranks& ranks, double silence,
                                   const std::function<void(const std::string&)>& say,
                                   const std::function<bool()>& stopped) {
  if (!CanJoinProcesses()) {
    throw ConfigError("join the other processes: this LibTorch was built without c10d",
                      "unset WORLD_SIZE, or take another LibTorch");
  }
  std::unique_ptr<Group> group(new Group(ranks, silence));
  auto guard = std::make_unique<AnswerGuard>(ranks, stopped);
  group->store_ = Connect(ranks, ranks.rank == 0, *guard, say, stopped);
  try {
    group->Meet(say, stopped, [&] { guard->Answered(); });
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(ExitCode::kTryAgain,
                "join the other processes: rank 0 is gone: " + FirstLine(error));
  }
  group->monitor_ = std::make_unique<Monitor>(
      ranks, silence, Connect(ranks, false, *guard, say, stopped), [](const std::string& trouble) {
        std::fflush(stdout);
        std::fprintf(stderr, "gpuctl-trainer: %s\n", trouble.c_str());
        EndAtOnce(static_cast<int>(ExitCode::kTryAgain));
      });
  guard.reset();  // the monitor takes over
  const Peers peers = {[monitor = group->monitor_.get()] { return monitor->Trouble(); },
                       [monitor = group->monitor_.get()] { return monitor->FindTrouble(); },
                       [monitor = group->monitor_.get()] { monitor->Notice(); }};
  try {
    group->collectives_ = JoinGloo(ranks, *group->store_, peers);
    if (group->collectives_ == nullptr) {
      throw ConfigError("join the other processes: this LibTorch has no Gloo");
    }
    // All are connected, or none goes on.
    group->Sum(1);
  } catch (const std::exception& error) {
    group->Fail(FirstLine(error));
    (void)group.release();  // operations of it may still wait
    throw;
  }
  return group;
}

std::vector<std::vector<double>> Group::Share(const std::vector<double>& mine) {
  const auto count = static_cast<int64_t>(mine.size());
  const at::Tensor all = at::zeros({size() * count}, at::kDouble);
  auto* values = all.data_ptr<double>();
  std::copy(mine.begin(), mine.end(), values + rank() * count);
  collectives_->BeginSum(all)->Wait();
  std::vector<std::vector<double>> shared;
  for (int64_t from = 0; from < size(); ++from) {
    shared.emplace_back(values + from * count, values + (from + 1) * count);
  }
  return shared;
}

double Group::Sum(double mine) {
  double sum = 0;
  for (const std::vector<double>& of_rank : Share({mine})) sum += of_rank[0];
  return sum;
}

double Group::Max(double mine) {
  double most = mine;
  for (const std::vector<double>& of_rank : Share({mine})) most = std::max(most, of_rank[0]);
  return most;
}

double Group::Min(double mine) { return -Max(-mine); }

std::string Group::FromFirst(const std::string& text) {
  const auto bytes = static_cast<int64_t>(Share({static_cast<double>(text.size())})[0][0]);
  if (bytes == 0) return "";
  const at::Tensor buffer = at::zeros({bytes}, at::kByte);
  auto* place = reinterpret_cast<char*>(buffer.data_ptr<uint8_t>());
  if (rank() == 0) std::copy(text.begin(), text.end(), place);
  collectives_->Broadcast(buffer, 0);
  return {place, static_cast<size_t>(bytes)};
}

void Group::CheckSame(const std::string& text,
                      const std::function<std::string(const std::string&)>& difference) {
  const std::string first = FromFirst(text);
  if (first != text) {
    throw ConfigError(Format("join the other processes: rank %lld differs from rank 0: ",
                             static_cast<long long>(rank())) +
                          difference(first),
                      "start all processes with the same settings, model and data");
  }
  // Nobody goes on before all have compared.
  Sum(0);
}

void Group::Leave() {
  Sum(0);
  monitor_->Leave();
}

void Group::Fail(const std::string& message) {
  must_end = true;
  if (monitor_) monitor_->Fail(message.substr(0, 500));
}

bool MustEndAtOnce() { return must_end; }

void EndAtOnce(int code) {
  std::fflush(stdout);
  std::fflush(stderr);
  std::_Exit(code);
}

}  // namespace gpuctl::trainer
