#include "client/results/start_point.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/home/checkpoint_keep.h"
#include "client/results/verify_run.h"
#include "client/runs/pulled_record.h"
#include "client/terminal/console.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {

absl::StatusOr<std::optional<StartPoint>> NewestAtHome(CommandContext& context, const RunRow& row) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const std::vector<PulledItem> items,
                   PulledRecord(paths.MirrorDir(row.run_id)).Read());
  const std::vector<PulledItem> checkpoints = NewestFirst(items);
  VerifyOptions verify;
  verify.read_data = true;
  for (const PulledItem& item : checkpoints) {
    const std::vector<Problem> problems = CheckItem(item, verify);
    if (!problems.empty() || !PathExists(item.path)) {
      context.Warn(absl::StrCat("passed over ", item.path, ": ",
                                problems.empty() ? "gone" : ProblemWord(problems[0].kind),
                                problems.empty() ? "" : absl::StrCat(", ", problems[0].path)));
      continue;
    }
    StartPoint point;
    point.path = item.path;
    point.is_file = !IsDirectory(item.path);
    return std::make_optional(std::move(point));
  }
  return std::nullopt;
}

absl::StatusOr<StartPoint> NamedStart(const std::string& from) {
  if (!PathExists(from)) {
    return UsageError(absl::StrCat("--from: there is no ", from),
                      "gpuctl pull RUN PATTERN brings files of a run to ./RUN");
  }
  ASSIGN_OR_RETURN(const std::string path, AbsolutePath(from));
  return StartPoint{path, !IsDirectory(path)};
}

}  // namespace gpuctl
