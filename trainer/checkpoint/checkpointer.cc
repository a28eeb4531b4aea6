#include "trainer/checkpoint/checkpointer.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <new>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/files.h"

namespace gpuctl::trainer {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Returns infinity when there is none.
double HeldOutLoss(const std::string& path) {
  const double none = std::numeric_limits<double>::infinity();
  try {
    const auto state = nlohmann::json::parse(ReadWholeFile(path + "/state.json"), nullptr, false);
    if (!state.is_object() || !state.contains("held_out_loss")) return none;
    return state["held_out_loss"].is_number() ? state["held_out_loss"].get<double>() : none;
  } catch (const Error&) {
    return none;
  }
}

ExitCode CodeOf(const std::exception& error) {
  if (const auto* known = dynamic_cast<const Error*>(&error)) return known->code();
  const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  return memory ? ExitCode::kTryAgain : ExitCode::kIo;
}

// Returns what went wrong, also where there is no memory to say it.
std::string Told(const std::exception& error) {
  try {
    return error.what();
  } catch (const std::bad_alloc&) {
    return "no memory";  // short enough to need none
  }
}

}  // namespace

std::vector<std::string> PruneCheckpoints(const std::string& root, int64_t step, int64_t keep_last,
                                          int64_t keep_best) {
  std::vector<std::string> problems;
  std::vector<std::pair<double, int64_t>> older;  // (loss, step), newest first
  const std::vector<int64_t> steps = ListCheckpoints(root);
  int64_t newer_or_equal = 0;
  for (auto at = steps.rbegin(); at != steps.rend(); ++at) {
    if (*at > step) continue;
    if (++newer_or_equal <= std::max<int64_t>(1, keep_last)) continue;
    older.emplace_back(HeldOutLoss(root + "/" + CheckpointName(*at)), *at);
  }
  std::sort(older.begin(), older.end());
  for (size_t i = 0; i < older.size(); ++i) {
    const bool best = static_cast<int64_t>(i) < keep_best &&
                      older[i].first < std::numeric_limits<double>::infinity();
    if (best) continue;
    try {
      // Rename first: an incomplete directory must never have a checkpoint's name.
      const std::string name = CheckpointName(older[i].second);
      const std::string doomed = root + "/.tmp-" + name + "-pruned";
      Rename(root + "/" + name, doomed);
      RemoveTree(doomed);
    } catch (const Error& error) {
      problems.push_back(error.what());
    }
  }
  return problems;
}

Checkpointer::Checkpointer(std::string root, int64_t keep_last, int64_t keep_best)
    : root_(std::move(root)), keep_last_(keep_last), keep_best_(keep_best) {
  reports_.reserve(8);  // the writer needs no memory to say that there is none
  writer_ = std::thread([this] { Serve(); });
}

Checkpointer::~Checkpointer() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    leaving_ = true;
  }
  changed_.notify_all();
  writer_.join();
}

void Checkpointer::SaveNow(const Snapshot& snapshot) {
  const Clock::time_point start = Clock::now();
  Wait();
  CheckpointReport report = Write(snapshot);
  report.stall_seconds = SecondsSince(start);
  const std::lock_guard<std::mutex> lock(mutex_);
  reports_.push_back(std::move(report));
}

void Checkpointer::Keep(Snapshot room) {
  const std::lock_guard<std::mutex> lock(mutex_);
  written_ = std::move(room);
}

void Checkpointer::Save(const std::function<Snapshot(Snapshot)>& take) {
  const Clock::time_point start = Clock::now();
  Wait();
  Snapshot written;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    written = std::move(written_);
    written_ = {};
  }
  Snapshot snapshot = take(std::move(written));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    pending_ = std::move(snapshot);
    stall_seconds_ = SecondsSince(start);
  }
  changed_.notify_all();
}

void Checkpointer::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return !pending_ && !writing_; });
}

std::optional<CheckpointReport> Checkpointer::TakeReport() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (reports_.empty()) return std::nullopt;
  CheckpointReport report = std::move(reports_.front());
  reports_.erase(reports_.begin());
  return report;
}

CheckpointReport Checkpointer::Write(const Snapshot& snapshot) const {
  const Clock::time_point start = Clock::now();
  CheckpointReport report;
  report.step = snapshot.step;
  try {
    if (snapshot.arrived) snapshot.arrived();
    report.path = WriteCheckpoint(root_, snapshot);
    report.problems = PruneCheckpoints(root_, snapshot.step, keep_last_, keep_best_);
  } catch (const std::exception& error) {
    report.failure = Told(error);
    report.code = CodeOf(error);
  }
  report.seconds = SecondsSince(start);
  return report;
}

void Checkpointer::Serve() {
  for (;;) {
    Snapshot snapshot;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return leaving_ || pending_; });
      if (!pending_) return;
      snapshot = std::move(*pending_);
      pending_.reset();
      writing_ = true;
    }
    CheckpointReport report = Write(snapshot);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      report.stall_seconds = stall_seconds_;
      reports_.push_back(std::move(report));
      written_ = std::move(snapshot);
      writing_ = false;
    }
    changed_.notify_all();
  }
}

}  // namespace gpuctl::trainer
