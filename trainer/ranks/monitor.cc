#include "trainer/ranks/monitor.h"

#include <poll.h>

#include <algorithm>

#include "trainer/base/text.h"

namespace gpuctl::trainer {
namespace {

constexpr double kBeat = 0.5;  // seconds
// A longer gap is no time in which the others were silent: this process was stopped itself.
constexpr double kLongestBeat = 1.5;
constexpr double kGrace = 6;     // seconds after which a process that has not noticed is ended
constexpr double kLinger = 3;    // seconds that rank 0 waits for the others to hear of an error
constexpr double kGoodbye = 10;  // and at the end of a run

const char* const kTrouble = "trouble";
const char* const kClaimed = "trouble/claimed";
const char* const kText = "trouble/text";
const char* const kHeard = "trouble/heard";
const char* const kSuspicion = "suspicion";
const char* const kLeft = "left";

std::string BeatsOf(int64_t rank) { return "beats/" + std::to_string(rank); }
std::string LeftBy(int64_t rank) { return "left/" + std::to_string(rank); }

std::chrono::duration<double> Seconds(double seconds) {
  return std::chrono::duration<double>(seconds);
}

}  // namespace

Monitor::Monitor(const Ranks& ranks, double silence, std::unique_ptr<Store> store,
                 std::function<void(const std::string&)> end)
    : ranks_(ranks),
      silence_(silence),
      store_(std::move(store)),
      end_(std::move(end)),
      peers_(static_cast<size_t>(ranks.size)) {
  try {
    beat_ = std::thread([this] { Beat(); });
    watch_ = std::thread([this] { Watch(); });
  } catch (...) {
    Stop();
    throw;
  }
}

Monitor::~Monitor() { Stop(); }

void Monitor::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    leaving_ = true;
  }
  changed_.notify_all();
  if (beat_.joinable()) beat_.join();
  if (watch_.joinable()) watch_.join();
}

void Monitor::Learn(const std::string& trouble) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!trouble_.empty() || leaving_) return;
    trouble_ = trouble;
  }
  changed_.notify_all();
}

// The first word counts: what others say later follows from it.
void Monitor::Tell(const std::string& trouble) {
  if (store_->Add(kClaimed, 1) != 1) return;
  store_->Set(kText, trouble);
  store_->Add(kTrouble, 1);
}

// One beat, and a look at the others.
void Monitor::Look() {
  store_->Add(BeatsOf(ranks_.rank), 1);
  if (store_->Add(kTrouble, 0) > 0) {
    Learn(store_->Get(kText));
    return;
  }
  if (ranks_.rank > 0) return;
  if (store_->Add(kSuspicion, 0) > 0) suspects_ = true;
  for (int64_t rank = 1; rank < ranks_.size; ++rank) {
    Peer& peer = peers_[static_cast<size_t>(rank)];
    if (!peer.left && store_->Add(LeftBy(rank), 0) > 0) peer.left = true;
    if (peer.left) continue;
    const int64_t beats = store_->Add(BeatsOf(rank), 0);
    if (beats != peer.beats) {
      peer.beats = beats;
      peer.seen = time_;
    } else if (time_ - peer.seen > silence()) {
      Tell(Format("rank %lld is gone: no sign of life for %.1f s", static_cast<long long>(rank),
                  time_ - peer.seen));
      return;
    }
  }
}

void Monitor::Beat() {
  Clock::time_point last = Clock::now();
  for (;;) {
    const Clock::time_point now = Clock::now();
    time_ += std::min(kLongestBeat, std::chrono::duration<double>(now - last).count());
    last = now;
    try {
      Look();
      answered_ = true;
    } catch (const std::exception&) {
      Learn("rank 0 is gone: the connection to it is broken");
      return;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    if (!trouble_.empty()) {
      lock.unlock();
      try {
        if (ranks_.rank > 0) store_->Add(kHeard, 1);
      } catch (const std::exception&) {  // rank 0 needs it no more
      }
      return;
    }
    if (changed_.wait_for(lock, Seconds(suspects_ ? kBeat / 4 : kBeat),
                          [this] { return leaving_; })) {
      return;
    }
  }
}

// Sees that rank 0 does not answer, for which Beat waits. Ends the process that waits for the dead.
void Monitor::Watch() {
  double silent = 0, troubled = 0;
  Clock::time_point last = Clock::now();
  for (;;) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, Seconds(kBeat), [this] { return leaving_; });
    if (leaving_) return;
    const bool trouble = !trouble_.empty();
    const std::string text = trouble_;
    lock.unlock();
    const Clock::time_point now = Clock::now();
    const double passed = std::min(kLongestBeat, std::chrono::duration<double>(now - last).count());
    last = now;
    if (trouble) {
      troubled += passed;
      if (!noticed_ && troubled > kGrace) end_(text);
      continue;
    }
    silent = answered_.exchange(false) ? 0 : silent + passed;
    if (silent > silence_) Learn(Format("rank 0 is gone: no answer for %.1f s", silent));
  }
}

std::string Monitor::Trouble() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return trouble_;
}

std::string Monitor::FindTrouble() {
  suspects_ = true;
  try {
    store_->Add(kSuspicion, 1);
  } catch (const std::exception&) {  // Beat sees it, too
  }
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, Seconds(silence_ + kSuspectedSilence),
                    [this] { return !trouble_.empty(); });
  return trouble_;
}

void Monitor::WaitForOthers(const char* key, int64_t count, double seconds) {
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
  while (Clock::now() < end && store_->Add(key, 0) < count) {
    poll(nullptr, 0, 20);
  }
}

void Monitor::Fail(const std::string& message) {
  try {
    const bool first = Trouble().empty();
    if (first) Tell(Format("rank %lld ended: ", static_cast<long long>(ranks_.rank)) + message);
    // The one that caused it hears nothing.
    if (ranks_.rank == 0) WaitForOthers(kHeard, ranks_.size - (first ? 1 : 2), kLinger);
  } catch (const std::exception&) {  // they see that it is gone
  }
}

void Monitor::Leave() {
  noticed_ = true;
  try {
    store_->Add(LeftBy(ranks_.rank), 1);
    Stop();
    if (ranks_.rank > 0) {
      store_->Add(kLeft, 1);
    } else {
      WaitForOthers(kLeft, ranks_.size - 1, kGoodbye);
    }
  } catch (const std::exception&) {  // all work is done
  }
  Stop();
}

}  // namespace gpuctl::trainer
