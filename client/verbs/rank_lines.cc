#include "client/verbs/rank_lines.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/status_macros.h"

namespace gpuctl {

RankLines::RankLines(int rank, std::vector<OutputPart> parts, int64_t begin, LogLines& lines)
    : rank_(rank), parts_(std::move(parts)), begin_(begin), lines_(lines) {}

absl::StatusOr<bool> RankLines::Add(int64_t offset, absl::string_view bytes) {
  const auto take = [this](int rank, absl::string_view text) { Take(rank, text); };
  // Bytes before it were dropped, or are not there any more.
  const bool gap = next_ >= 0 ? offset != next_ : offset > 0;
  if (gap) {
    EndPart();
    torn_ = true;
  }
  while (!bytes.empty() && status_.ok() && more_) {
    for (; part_ < parts_.size() && parts_[part_].begin <= offset; ++part_) {
      // One that was told late began in what was read already.
      if (parts_[part_].begin < offset && !gap) continue;
      EndPart();
      if (parts_[part_].begin == offset) torn_ = false;
    }
    size_t size = bytes.size();
    if (part_ < parts_.size()) {
      size =
          static_cast<size_t>(std::min(static_cast<int64_t>(size), parts_[part_].begin - offset));
    }
    if (part_ > 0 && parts_[part_ - 1].ranks) {
      const size_t newline = bytes.substr(0, size).find('\n');
      if (newline != bytes.npos) size = newline + 1;
      at_ = offset;
      if (!torn_) reader_.Read(bytes.substr(0, size), take);
      torn_ = torn_ && newline == bytes.npos;
    }
    bytes.remove_prefix(size);
    offset += static_cast<int64_t>(size);
  }
  next_ = offset;
  RETURN_IF_ERROR(status_);
  return more_;
}

int64_t RankLines::readable() const {
  if (parts_.empty()) return 0;
  return parts_.back().setup ? parts_.back().begin : std::numeric_limits<int64_t>::max();
}

void RankLines::EndPart() {
  reader_.End([this](int rank, absl::string_view text) { Take(rank, text); });
  if (!line_.empty()) Pass();
}

absl::Status RankLines::Finish() {
  EndPart();
  RETURN_IF_ERROR(status_);
  return lines_.Finish();
}

void RankLines::Take(int rank, absl::string_view text) {
  if (rank != rank_) return;
  if (line_.empty()) line_at_ = at_;
  line_.append(text.data(), text.size());
  if (line_.back() == '\n' || line_.size() >= LogLines::kLongestLine) Pass();
}

void RankLines::Pass() {
  if (status_.ok() && more_ && line_at_ >= begin_) {
    const absl::StatusOr<bool> more = lines_.Add(line_at_, line_);
    status_ = more.status();
    more_ = more.value_or(false);
  }
  line_.clear();
}

}  // namespace gpuctl
