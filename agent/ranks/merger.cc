#include "agent/ranks/merger.h"

#include <algorithm>
#include <cstring>

#include "common/base/rank_mark.h"

namespace gpuctl {
namespace {

// Rank 0's line is held for its end only as long as it is short.
constexpr size_t kMostHeldBytes = 64 << 10;

// Appends a part of a line, without what it writes over.
void AppendVisible(absl::string_view part, std::string& line) {
  const size_t last = part.find_last_not_of('\r');
  if (last == part.npos) {
    line.append(part.data(), part.size());
    return;
  }
  const size_t back = part.rfind('\r', last);
  if (back != part.npos) part.remove_prefix(back + 1);
  if (back != part.npos || (!line.empty() && line.back() == '\r')) line.clear();
  line.append(part.data(), part.size());
}

}  // namespace

RankMerger::RankMerger(int first_rank, int processes)
    : first_rank_(first_rank), lines_(static_cast<size_t>(processes)) {}

void RankMerger::Add(int local, absl::string_view bytes, std::string& out) {
  if (IsZero(local)) return AddZero(bytes, out);
  std::string& line = lines_[static_cast<size_t>(local)];
  const int rank = first_rank_ + local;
  while (!bytes.empty()) {
    size_t end = bytes.size();
    if (const void* found = std::memchr(bytes.data(), '\n', end); found != nullptr) {
      end = static_cast<size_t>(static_cast<const char*>(found) - bytes.data());
    }
    const bool whole = end < bytes.size();
    if (end > 0) AppendVisible(bytes.substr(0, end), line);
    bytes.remove_prefix(whole ? end + 1 : end);
    if (!whole && line.size() < kLongestPiece) return;
    AppendMarked(rank, line, whole, out);
    line.clear();
  }
}

void RankMerger::End(int local, std::string& out) {
  if (IsZero(local)) return Flush(out);
  std::string& line = lines_[static_cast<size_t>(local)];
  if (!line.empty()) AppendMarked(first_rank_ + local, line, /*ended=*/false, out);
  line.clear();
}

void RankMerger::Say(absl::string_view line, std::string& out) {
  Flush(out);
  AppendMarked(kLauncherRank, line, /*ended=*/true, out);
}

void RankMerger::Flush(std::string& out) {
  AppendZero(held_, out);
  held_.clear();
}

void RankMerger::AddZero(absl::string_view bytes, std::string& out) {
  held_.append(bytes.data(), bytes.size());
  size_t whole = held_.rfind('\n');
  whole = whole == held_.npos ? 0 : whole + 1;
  // A bar's drawing begins with '\r', or ends with it.
  const size_t back = held_.rfind('\r');
  if (back != held_.npos && back > whole) whole = back;
  if (held_.size() - whole > kMostHeldBytes) whole = held_.size();
  AppendZero(absl::string_view(held_).substr(0, whole), out);
  held_.erase(0, whole);
}

void RankMerger::AppendZero(absl::string_view text, std::string& out) {
  while (!text.empty()) {
    size_t end = text.find('\n');
    end = end == text.npos ? text.size() : end + 1;
    const absl::string_view line = text.substr(0, end);
    text.remove_prefix(end);
    if (!in_line_ && (ParseRankMark(line).has_value() || MayBecomeRankMark(line))) {
      AppendRankMark(0, /*interrupts=*/false, /*ended=*/true, out);
    }
    out.append(line.data(), line.size());
    in_line_ = line.back() != '\n';
  }
}

void RankMerger::AppendMarked(int rank, absl::string_view text, bool ended, std::string& out) {
  if (in_line_) out += '\n';
  AppendRankMark(rank, /*interrupts=*/in_line_, ended, out);
  in_line_ = false;
  out.append(text.data(), text.size());
  out += '\n';
}

}  // namespace gpuctl
