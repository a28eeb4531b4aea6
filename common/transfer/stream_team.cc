#include "common/transfer/stream_team.h"

#include <algorithm>
#include <thread>

#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr int kMaxStreams = 8;
// The largest number of streams over a fast link. They compete for processors, and two use those of
// both ends.
constexpr int kMaxFastStreams = 2;
constexpr int64_t kBatchBytes = 1 << 20;
constexpr size_t kBatchPieces = 256;
// The bytes left to move that justify another stream. With fewer it would come too late.
constexpr int64_t kWorthAStreamBytes = 16 << 20;
// The time over which a rate is measured, and the gain of the last stream that justifies another
// one.
constexpr absl::Duration kMeasure = absl::Milliseconds(400);
constexpr double kGain = 1.1;

}  // namespace

StreamTeam::StreamTeam(const Manifest& manifest, const MissingContent& missing, Clock& clock,
                       const TransferOptions& options)
    : clock_(clock), options_(options) {
  MutexLock lock(mutex_);
  int64_t last = -1;
  missing.ForEachPiece(manifest, [&](const Piece& piece) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    pieces_.push_back(piece);
    count_.total_bytes += piece.length;
    count_.total_files += piece.index != last ? 1 : 0;
    last = piece.index;
  });
}

std::vector<Piece> StreamTeam::Next() {
  MutexLock lock(mutex_);
  std::vector<Piece> batch;
  int64_t bytes = 0;
  if (!status_.ok()) return batch;
  while (next_ < pieces_.size() && batch.size() < kBatchPieces) {
    const Piece& piece = pieces_[next_];
    if (!batch.empty() && bytes + piece.length > kBatchBytes) break;
    batch.push_back(piece);
    bytes += piece.length;
    ++next_;
  }
  return batch;
}

void StreamTeam::Moved(const Piece& piece, int64_t there) {
  MutexLock lock(mutex_);
  count_.bytes += piece.length - there;
  count_.total_bytes -= there;
  // A file in parts counts with its first part.
  count_.files += piece.offset == 0 ? 1 : 0;
  if (options_.progress) options_.progress(count_);
}

void StreamTeam::MovedBeside(int64_t bytes, bool is_new_file) {
  MutexLock lock(mutex_);
  count_.bytes += bytes;
  count_.total_bytes += bytes;
  count_.files += is_new_file ? 1 : 0;
  count_.total_files += is_new_file ? 1 : 0;
  if (options_.progress) options_.progress(count_);
}

TransferCount StreamTeam::count() {
  MutexLock lock(mutex_);
  return count_;
}

void StreamTeam::Fail(const absl::Status& status) {
  MutexLock lock(mutex_);
  status_.Update(status);
}

absl::Status StreamTeam::Run(const std::function<absl::Status()>& first, const RunStream& further) {
  std::thread recruiter;
  if (options_.open && options_.streams != 1) recruiter = std::thread([&] { Recruit(further); });
  Fail(first());
  {
    MutexLock lock(mutex_);
    ended_ = true;
    changed_.NotifyAll();
  }
  if (recruiter.joinable()) recruiter.join();
  MutexLock lock(mutex_);
  return status_;
}

// True when another stream is worth trying: enough is left, and the last one helped.
bool StreamTeam::WaitForGain(int64_t& bytes_before, double& best_rate) {
  MutexLock lock(mutex_);
  const int wanted = options_.streams > 0 ? options_.streams
                     : options_.slow_link ? kMaxStreams
                                          : kMaxFastStreams;
  const auto worth_it = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return !ended_ && status_.ok() && count_.streams < wanted &&
           count_.total_bytes - count_.bytes >= kWorthAStreamBytes;
  };
  if (options_.streams > 0 || count_.streams == 1) return worth_it();
  const absl::Duration begin = clock_.SinceBoot();
  bytes_before = count_.bytes;
  while (worth_it()) {
    const absl::Duration passed = clock_.SinceBoot() - begin;
    if (passed >= kMeasure) {
      const double rate =
          static_cast<double>(count_.bytes - bytes_before) / absl::ToDoubleSeconds(passed);
      const bool gained = rate > best_rate * kGain;
      best_rate = std::max(best_rate, rate);
      return gained;
    }
    changed_.WaitFor(mutex_, kMeasure - passed);
  }
  return false;
}

void StreamTeam::Recruit(const RunStream& further) {
  std::vector<std::thread> threads;
  int64_t bytes_before = 0;
  double best_rate = 0;
  while (WaitForGain(bytes_before, best_rate)) {
    absl::StatusOr<TransferStream> stream = options_.open();
    if (!stream.ok()) break;  // the streams there are can do it
    {
      MutexLock lock(mutex_);
      ++count_.streams;
    }
    threads.emplace_back([this, &further, stream = *std::move(stream)] { Fail(further(stream)); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace gpuctl
