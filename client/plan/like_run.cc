#include "client/plan/like_run.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/keys/market_access.h"
#include "common/base/status_macros.h"

namespace gpuctl {

absl::StatusOr<LikeRun> FindLikeRun(RunStore& store, LaunchFlags& flags) {
  if (!flags.run_file.empty()) {
    return UsageError(absl::StrCat("--like ", flags.like, " takes the place of a run file"),
                      "leave out one of the two; flags change what the earlier run had");
  }
  LikeRun like;
  ASSIGN_OR_RETURN(like.row, store.Get(flags.like));
  if (!like.row.leader.empty()) {
    ASSIGN_OR_RETURN(like.row, store.Get(like.row.leader));
  }
  ASSIGN_OR_RETURN(like.members, store.Members(like.row.run_id));
  ASSIGN_OR_RETURN(LaunchRecord record, LaunchRecordOf(like.row, "launch like"));
  like.spec = std::move(record.spec);
  if (flags.workdir.empty()) {
    flags.no_workdir = flags.no_workdir || record.no_workdir;
    flags.include.insert(flags.include.begin(), record.include.begin(), record.include.end());
    flags.leave_out = std::move(record.leave_out);
  }
  flags.like_run_id = like.row.run_id;
  return like;
}

absl::StatusOr<LaunchRecord> LaunchRecordOf(const RunRow& row, absl::string_view doing) {
  absl::StatusOr<LaunchRecord> record = ParseLaunchRecord(row.launch_json);
  if (record.ok()) return record;
  return WithHint(
      absl::FailedPreconditionError(absl::StrCat(
          doing, " ", row.name, ": ",
          row.launch_json.empty() ? "an older gpuctl launched it" : record.status().message())),
      "launch it again, with the same flags");
}

std::vector<NodeTarget> OwnMachinesOf(const RunRow& row, const std::vector<RunRow>& members,
                                      const LaunchFlags& flags) {
  const bool rented = CheckMarketName(row.target.provider).ok();
  const bool elsewhere = !flags.target.host.empty() || !flags.resources.providers.empty();
  std::vector<NodeTarget> machines;
  if (rented || elsewhere) return machines;
  machines.push_back(row.target);
  for (const RunRow& member : members) machines.push_back(member.target);
  return machines;
}

void DropForeignCostLimit(const LaunchFlags& flags, RunSpec& spec) {
  const bool own = !flags.target.host.empty() || (!spec.providers.empty() && !NamesMarket(spec));
  if (own && flags.cost.empty()) spec.cost_limit_usd.reset();
}

}  // namespace gpuctl
