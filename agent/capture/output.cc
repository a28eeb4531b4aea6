#include "agent/capture/output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "agent/base/platform.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;
constexpr int kChunksAPump = 8;
constexpr size_t kBufferBytes = 256 << 10;
// The pause after the disk refused bytes. It limits the number of gaps, and so of lines about them.
constexpr absl::Duration kPause = absl::Milliseconds(250);

}  // namespace

OutputDrain::OutputDrain(UniqueFd pipe, StreamWriter stream, Clock& clock)
    : pipe_(std::move(pipe)), stream_(std::move(stream)), clock_(clock) {}

bool OutputDrain::Pump() {
  for (int i = 0; i < kChunksAPump; ++i) {
    if (!pipe_.valid()) return false;
    const Step step = MoveOnce();
    if (step == Step::kEnded) pipe_.reset();
    if (step != Step::kMoved) return false;
  }
  return true;
}

void OutputDrain::PumpAll() {
  while (Pump()) {
  }
}

OutputDrain::Step OutputDrain::MoveOnce() {
  if (open_gap_.has_value() && clock_.SinceBoot() < retry_at_) return ReadAway();
  return can_splice_ ? SpliceOnce() : CopyOnce();
}

OutputDrain::Step OutputDrain::SpliceOnce() {
  const auto tail = stream_.TailForSplice();
  if (!tail.ok()) {
    BeginGap(tail.status());
    return ReadAway();
  }
  const size_t most = static_cast<size_t>(std::min(tail->room, kChunkBytes));
  const ssize_t moved = SplicePipe(pipe_.get(), tail->fd, tail->position, most);
  if (moved > 0) {
    stream_.Spliced(moved);
    CloseGap();
    return Step::kMoved;
  }
  if (moved == 0) return Step::kEnded;
  if (errno == EAGAIN) return Step::kEmpty;
  if (errno == ENOSYS || errno == EINVAL) {
    can_splice_ = false;
    return CopyOnce();
  }
  BeginGap(ErrnoStatus(errno, "write the output"));
  return ReadAway();
}

OutputDrain::Step OutputDrain::CopyOnce() {
  buffer_.resize(kBufferBytes);
  const ssize_t got = read(pipe_.get(), buffer_.data(), buffer_.size());
  if (got == 0) return Step::kEnded;
  if (got < 0) return errno == EINTR ? Step::kMoved : Step::kEmpty;
  const int64_t before = stream_.size();
  absl::Status status = stream_.Append({buffer_.data(), static_cast<size_t>(got)});
  const int64_t stored = stream_.size() - before;
  if (stored > 0) CloseGap();
  if (!status.ok()) {
    BeginGap(std::move(status));
    open_gap_->bytes += got - stored;
  }
  return Step::kMoved;
}

OutputDrain::Step OutputDrain::ReadAway() {
  buffer_.resize(kBufferBytes);
  const ssize_t got = read(pipe_.get(), buffer_.data(), buffer_.size());
  if (got == 0) return Step::kEnded;
  if (got < 0) return errno == EINTR ? Step::kMoved : Step::kEmpty;
  open_gap_->bytes += got;
  return Step::kMoved;
}

void OutputDrain::BeginGap(absl::Status why) {
  trouble_ = std::move(why);
  retry_at_ = clock_.SinceBoot() + kPause;
  if (!open_gap_.has_value()) open_gap_ = Gap{stream_.size(), 0};
}

void OutputDrain::CloseGap() {
  if (!open_gap_.has_value()) return;
  trouble_ = absl::OkStatus();
  const Gap gap = *std::exchange(open_gap_, std::nullopt);
  if (gap.bytes == 0) return;
  // The caller takes gaps after each Pump. Within one Pump the pause prevents a second closed gap.
  if (closed_gap_.has_value()) {
    closed_gap_->bytes += gap.bytes;
  } else {
    closed_gap_ = gap;
  }
}

std::optional<Gap> OutputDrain::TakeGap(bool at_end) {
  if (at_end) {
    const absl::Status trouble = trouble_;
    CloseGap();
    trouble_ = trouble;
  }
  return std::exchange(closed_gap_, std::nullopt);
}

}  // namespace gpuctl
