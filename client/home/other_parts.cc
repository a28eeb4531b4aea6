#include "client/home/other_parts.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/runs/pulled_record.h"
#include "gpuctl/v1/run.pb.h"

namespace gpuctl {

bool IsNotedHome(const ClientPaths& paths, const RunRow& row) {
  return row.end.has_value() && PulledRecord(paths.MirrorDir(row.run_id)).AllHomeMs() > 0;
}

OtherParts FindOtherParts(const ClientPaths& paths, const RunRow& row) {
  OtherParts found;
  const absl::StatusOr<std::unique_ptr<RunStore>> store = RunStore::Open(paths.database());
  const std::string& whole = row.leader.empty() ? row.run_id : row.leader;
  const absl::StatusOr<std::vector<RunRow>> members =
      store.ok() ? (*store)->Members(whole) : store.status();
  // What is not known may be lost.
  found.all_home = members.ok();
  if (!members.ok() || members->empty()) return found;
  absl::StatusOr<RunRow> first = (*store)->Get(whole);
  found.all_home = first.ok();
  // Those of an allocation are called after its first node.
  const auto is_of_it = [&](const RunRow& part) {
    return absl::StartsWith(part.target.name, absl::StrCat(first->target.name, "."));
  };
  if (!first.ok() || !is_of_it(members->front())) return found;
  const auto is_home = [&](const RunRow& part) {
    const bool never_ran =
        part.end.has_value() && part.end->state == gpuctl::v1::JOB_STATE_UNSPECIFIED;
    // It is noted only once a job is over, whether or not its end is known here.
    return part.run_id == row.run_id || never_ran ||
           PulledRecord(paths.MirrorDir(part.run_id)).AllHomeMs() > 0;
  };
  found.all_home = is_home(*first);
  for (const RunRow& part : *members) found.all_home = found.all_home && is_home(part);
  if (!row.leader.empty()) found.first = *std::move(first);
  return found;
}

}  // namespace gpuctl
