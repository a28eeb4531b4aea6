#include "client/market/last_time.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/base/quantity.h"

namespace gpuctl {
namespace {

// Older runs tell little of today's code.
constexpr int kRunsLookedAt = 200;

bool Succeeded(const RunRow& row) {
  return row.end.has_value() && row.end->state == gpuctl::v1::JOB_STATE_FINISHED &&
         row.end->exit_code == 0 && row.accepted_ms > 0 && row.end->ended_ms > row.accepted_ms;
}

// Returns the words of a command before its first flag, at most two: "python train.py".
std::string ProgramOf(absl::string_view command) {
  std::string program;
  int words = 0;
  for (const absl::string_view word : absl::StrSplit(command, ' ', absl::SkipEmpty())) {
    if (word[0] == '-' || ++words > 2) break;
    absl::StrAppend(&program, word, " ");
  }
  return program;
}

}  // namespace

std::optional<LastTime> FindLastTime(Holdings& holdings, RunStore& store, const Work& work,
                                     int64_t now_ms) {
  if (work.workdir.empty() || work.gpu_name.empty()) return std::nullopt;
  const absl::StatusOr<std::vector<RunRow>> rows = store.List(/*live_only=*/false, kRunsLookedAt);
  if (!rows.ok()) return std::nullopt;
  for (const RunRow& row : *rows) {
    if (row.workdir != work.workdir || !Succeeded(row)) continue;
    if (ProgramOf(row.command) != ProgramOf(work.command)) continue;
    const absl::StatusOr<std::optional<Lease>> lease = holdings.LeaseOf(row.run_id);
    if (!lease.ok() || !lease->has_value() || (*lease)->gpu_name != work.gpu_name ||
        (*lease)->gpu_count != work.gpu_count) {
      continue;
    }
    return LastTime{row.name, absl::Milliseconds(row.end->ended_ms - row.accepted_ms),
                    SpentByRun(**lease, row.run_id, now_ms).high_usd};
  }
  return std::nullopt;
}

std::string DescribeLastTime(const LastTime& last) {
  return absl::StrCat(HumanDuration(last.took), ", ", FormatUsd(last.usd), " (", last.run_name,
                      ")");
}

}  // namespace gpuctl
