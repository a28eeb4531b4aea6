#include "client/verbs/log_lines.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "common/base/status_macros.h"

namespace gpuctl {

int64_t TimeBefore(const std::vector<OutputStamp>& stamps, int64_t offset) {
  const auto after = std::upper_bound(
      stamps.begin(), stamps.end(), offset,
      [](int64_t wanted, const OutputStamp& stamp) { return wanted < stamp.offset; });
  return after == stamps.begin() ? 0 : std::prev(after)->time_ms;
}

LogLines::LogLines(Options options, Sink sink)
    : options_(std::move(options)), sink_(std::move(sink)) {
  if (!options_.stamps.has_value()) return;
  std::sort(options_.stamps->begin(), options_.stamps->end(),
            [](const OutputStamp& a, const OutputStamp& b) {
              return std::pair(a.offset, a.time_ms) < std::pair(b.offset, b.time_ms);
            });
}

absl::StatusOr<bool> LogLines::Add(int64_t offset, absl::string_view bytes) {
  // Bytes before it were dropped: what is left of a line ends there.
  if (next_ >= 0 && offset != next_ && !partial_.empty()) {
    RETURN_IF_ERROR(AddLine(partial_, /*ended=*/false));
    partial_.clear();
  }
  next_ = offset + static_cast<int64_t>(bytes.size());
  while (!bytes.empty()) {
    if (partial_.empty()) begin_ = next_ - static_cast<int64_t>(bytes.size());
    const size_t newline = bytes.find('\n');
    const size_t room = kLongestLine - partial_.size();
    const size_t size = std::min(newline == bytes.npos ? bytes.size() : newline + 1, room);
    const bool ended = newline != bytes.npos && size == newline + 1;
    absl::string_view line = bytes.substr(0, size);
    bytes.remove_prefix(size);
    if (!partial_.empty() || (!ended && size < room)) {
      partial_.append(line.data(), line.size());
      line = partial_;
    }
    if (!ended && line.size() < kLongestLine) break;
    if (ended) line.remove_suffix(1);
    RETURN_IF_ERROR(AddLine(line, ended));
    partial_.clear();
  }
  return Flush();
}

absl::StatusOr<bool> LogLines::GiveLast() {
  options_.last = -1;
  for (const std::string& line : newest_) ready_ += line;
  newest_.clear();
  return Flush();
}

absl::Status LogLines::Finish() {
  if (!partial_.empty()) RETURN_IF_ERROR(AddLine(partial_, /*ended=*/false));
  partial_.clear();
  for (const std::string& line : newest_) ready_ += line;
  newest_.clear();
  return Flush().status();
}

absl::Status LogLines::AddLine(absl::string_view line, bool ended) {
  if (options_.pattern.has_value()) {
    absl::string_view text = line;
    if (ended && !text.empty() && text.back() == '\r') text.remove_suffix(1);
    const absl::StatusOr<bool> matches = options_.pattern->Matches(text);
    if (!matches.ok()) {
      // As grep: 1 says that no line matches, and this is another answer.
      return WithExitCode(
          WithHint(absl::FailedPreconditionError(
                       absl::StrCat("--grep: the line at byte ", begin_,
                                    " of the output: ", matches.status().message())),
                   "a simpler expression, without repeats of repeats, needs fewer steps"),
          kExitUsage);
    }
    if (!*matches) return absl::OkStatus();
  }
  chose_ = true;
  std::string whole;
  if (options_.stamps.has_value()) {
    const int64_t time_ms = TimeBefore(*options_.stamps, begin_);
    absl::StrAppend(&whole, time_ms > 0 ? FormatRfc3339(time_ms) : "-", " ");
  }
  absl::StrAppend(&whole, line, "\n");
  if (options_.last < 0) {
    ready_ += whole;
    return absl::OkStatus();
  }
  newest_.push_back(std::move(whole));
  if (newest_.size() > static_cast<size_t>(options_.last)) newest_.pop_front();
  return absl::OkStatus();
}

absl::StatusOr<bool> LogLines::Flush() {
  if (ready_.empty()) return true;
  const absl::StatusOr<bool> more = sink_(ready_);
  ready_.clear();
  return more;
}

}  // namespace gpuctl
