#include "common/base/rank_mark.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace gpuctl {
namespace {

constexpr absl::string_view kLauncher = "gpuctl";
constexpr size_t kMostDigits = 5;

// What stands at the beginning of a text: a whole mark, the beginning of one, or neither.
struct MarkScan {
  std::optional<RankMark> mark;
  bool partial = false;
};

MarkScan ScanMark(absl::string_view text) {
  MarkScan scan;
  RankMark mark;
  size_t at = 0;
  if (!text.empty() && text[0] == kLauncher[0]) {
    const size_t shared = std::min(text.size(), kLauncher.size());
    if (text.substr(0, shared) != kLauncher.substr(0, shared)) return scan;
    mark.rank = kLauncherRank;
    at = shared;
    if (shared < kLauncher.size()) {
      scan.partial = true;
      return scan;
    }
  } else {
    while (at < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[at]))) ++at;
    // No rank is written with a zero before it.
    if (at > kMostDigits || (at > 1 && text[0] == '0')) return scan;
    if (at == 0 && !text.empty()) return scan;
    if (at > 0 && !absl::SimpleAtoi(text.substr(0, at), &mark.rank)) return scan;
  }
  if (at < text.size() && text[at] == '>') {
    mark.interrupts = true;
    ++at;
  }
  if (at < text.size()) {
    if (text[at] != '|' && text[at] != '+') return scan;
    mark.ended = text[at] == '|';
    ++at;
  }
  if (at < text.size()) {
    if (text[at] != ' ') return scan;
    mark.size = at + 1;
    scan.mark = mark;
    return scan;
  }
  scan.partial = true;
  return scan;
}

}  // namespace

std::optional<RankMark> ParseRankMark(absl::string_view line) { return ScanMark(line).mark; }

bool MayBecomeRankMark(absl::string_view text) { return ScanMark(text).partial; }

void AppendRankMark(int rank, bool interrupts, bool ended, std::string& out) {
  if (rank == kLauncherRank) {
    absl::StrAppend(&out, kLauncher);
  } else {
    absl::StrAppend(&out, rank);
  }
  absl::StrAppend(&out, interrupts ? ">" : "", ended ? "| " : "+ ");
}

void RankReader::Read(absl::string_view bytes, const Sink& sink) {
  while (!bytes.empty()) {
    if (at_start_) {
      Begin(bytes, sink);
      continue;
    }
    size_t end = bytes.size();
    if (const void* found = std::memchr(bytes.data(), '\n', bytes.size()); found != nullptr) {
      end = static_cast<size_t>(static_cast<const char*>(found) - bytes.data());
    }
    const bool whole = end < bytes.size();
    // Rank 0's newline waits: the mark behind it may say that it is none.
    if (end > 0) sink(rank_, bytes.substr(0, end));
    bytes.remove_prefix(whole ? end + 1 : end);
    if (!whole) return;
    at_start_ = true;
    if (rank_ == 0) {
      newline_ = true;
    } else if (ended_) {
      sink(rank_, "\n");
    }
  }
}

// Reads the beginning of a line.
void RankReader::Begin(absl::string_view& bytes, const Sink& sink) {
  const size_t before = start_.size();
  // No mark is longer than this.
  constexpr size_t kMostBytes = 16;
  const size_t taken = std::min(bytes.size(), kMostBytes - before);
  start_.append(bytes.data(), taken);
  const MarkScan scan = ScanMark(start_);
  if (scan.partial) {
    bytes.remove_prefix(taken);
    return;
  }
  if (newline_ && !(scan.mark.has_value() && scan.mark->interrupts)) sink(0, "\n");
  newline_ = false;
  at_start_ = false;
  if (scan.mark.has_value()) {
    rank_ = scan.mark->rank;
    ended_ = scan.mark->ended;
    bytes.remove_prefix(scan.mark->size - before);
  } else {
    rank_ = 0;
    ended_ = true;
    if (before > 0) sink(0, absl::string_view(start_).substr(0, before));
  }
  start_.clear();
}

void RankReader::End(const Sink& sink) {
  if (newline_) sink(0, "\n");
  if (!start_.empty()) sink(0, start_);
  *this = RankReader();
}

}  // namespace gpuctl
