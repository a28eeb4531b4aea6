#include "client/terminal/drawn_rows.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "client/terminal/line_assembler.h"

namespace gpuctl {
namespace {

// More rows than nested bars take.
constexpr size_t kMostRows = 16;
constexpr absl::string_view kMove = "\x1b[";

// A move of the cursor upwards within a line.
struct MoveUp {
  size_t at = absl::string_view::npos;  // npos: there is none
  size_t bytes = 0;
  size_t rows = 0;
};

MoveUp FindMoveUp(absl::string_view line) {
  for (size_t at = line.find(kMove); at != absl::string_view::npos; at = line.find(kMove, at + 1)) {
    size_t end = at + kMove.size();
    while (end < line.size() && absl::ascii_isdigit(static_cast<unsigned char>(line[end]))) ++end;
    if (end == line.size() || line[end] != 'A') continue;
    const absl::string_view digits = line.substr(at + kMove.size(), end - at - kMove.size());
    size_t rows = 1;
    if (!digits.empty() && !absl::SimpleAtoi(digits, &rows)) rows = kMostRows;
    return {at, end + 1 - at, std::max<size_t>(rows, 1)};
  }
  return {};
}

bool IsBlank(absl::string_view row) { return absl::StripAsciiWhitespace(row).empty(); }

}  // namespace

void DrawnRows::Draw(absl::string_view text) {
  if (cursor_ == rows_.size()) rows_.emplace_back();
  const absl::string_view shown = AfterCarriageReturns(text);
  if (!text.empty()) rows_[cursor_].assign(shown.data(), shown.size());
}

void DrawnRows::Add(absl::string_view line, const std::function<void(absl::string_view)>& row) {
  MoveUp up = FindMoveUp(line);
  follows_ = follows_ || up.bytes > 0;
  if (!follows_) return row(AfterCarriageReturns(line));
  const absl::string_view text = absl::StripTrailingAsciiWhitespace(line);
  const bool plain = up.bytes == 0 && !text.empty() && text.find('\r') == absl::string_view::npos;
  for (; up.bytes > 0; up = FindMoveUp(line)) {
    Draw(line.substr(0, up.at));
    cursor_ -= std::min(cursor_, up.rows);
    line.remove_prefix(up.at + up.bytes);
  }
  Draw(line);
  ++cursor_;
  if (plain) {
    Pass(cursor_, row);
  } else if (cursor_ > kMostRows) {
    Pass(cursor_ - kMostRows, row);
  }
}

void DrawnRows::Finish(const std::function<void(absl::string_view)>& row) {
  while (!rows_.empty() && IsBlank(rows_.back())) rows_.pop_back();
  Pass(rows_.size(), row);
}

absl::string_view DrawnRows::Last() const {
  const auto last = std::find_if_not(rows_.rbegin(), rows_.rend(), IsBlank);
  return last == rows_.rend() ? absl::string_view() : *last;
}

void DrawnRows::Pass(size_t count, const std::function<void(absl::string_view)>& row) {
  count = std::min(count, rows_.size());
  for (size_t i = 0; i < count; ++i) row(rows_[i]);
  rows_.erase(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(count));
  cursor_ -= std::min(cursor_, count);
}

}  // namespace gpuctl
