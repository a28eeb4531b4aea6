#include "client/plan/start_point.h"

#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/home/checkpoint_keep.h"
#include "client/results/pull_files.h"
#include "client/results/verify_run.h"
#include "client/runs/pulled_record.h"
#include "client/terminal/console.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {

namespace {

// The checkpoints of a part that are recorded here, newest first.
class AtHome {
 public:
  static absl::StatusOr<AtHome> Read(CommandContext& context, const RunRow& row) {
    ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
    ASSIGN_OR_RETURN(const std::vector<PulledItem> items,
                     PulledRecord(paths.MirrorDir(row.run_id)).Read());
    return AtHome(context, NewestFirst(items));
  }
  bool empty() const { return items_.empty(); }
  const std::vector<PulledItem>& items() const { return items_; }

  // Returns the checkpoint where its content is as it was recorded; else says why it is passed
  // over.
  std::optional<StartPoint> Intact(const PulledItem& item) {
    VerifyOptions verify;
    verify.read_data = true;
    const std::vector<Problem> problems = CheckItem(item, verify);
    if (problems.empty() && PathExists(item.path)) {
      return StartPoint{item.path, !IsDirectory(item.path), item.step};
    }
    if (told_.insert(item.path).second) {
      context_->Warn(absl::StrCat("passed over ", item.path, ": ",
                                  problems.empty() ? "gone" : ProblemWord(problems[0].kind),
                                  problems.empty() ? "" : absl::StrCat(", ", problems[0].path)));
    }
    return std::nullopt;
  }
  // Returns the newest of this step that is intact.
  std::optional<StartPoint> IntactAt(int64_t step) {
    for (const PulledItem& item : items_) {
      if (item.step != step) continue;
      if (std::optional<StartPoint> point = Intact(item)) return point;
    }
    return std::nullopt;
  }

 private:
  AtHome(CommandContext& context, std::vector<PulledItem> items)
      : context_(&context), items_(std::move(items)) {}

  CommandContext* context_;
  std::vector<PulledItem> items_;
  std::set<std::string> told_;
};

}  // namespace

absl::StatusOr<std::optional<StartPoint>> NewestAtHome(CommandContext& context, const RunRow& row) {
  ASSIGN_OR_RETURN(AtHome home, AtHome::Read(context, row));
  for (const PulledItem& item : home.items()) {
    if (std::optional<StartPoint> point = home.Intact(item)) return point;
  }
  return std::nullopt;
}

absl::StatusOr<std::vector<StartPoint>> NewestOfAll(CommandContext& context,
                                                    const std::vector<RunRow>& parts) {
  std::vector<AtHome> homes;
  for (const RunRow& part : parts) {
    ASSIGN_OR_RETURN(AtHome home, AtHome::Read(context, part));
    homes.push_back(std::move(home));
  }
  bool told = false;
  for (const PulledItem& item : homes.front().items()) {
    const std::optional<StartPoint> first = homes.front().Intact(item);
    if (!first.has_value()) continue;
    std::vector<StartPoint> points = {*first};
    for (size_t rank = 1; rank < homes.size(); ++rank) {
      const std::optional<StartPoint> own =
          homes[rank].empty() ? first : homes[rank].IntactAt(item.step);
      if (own.has_value()) points.push_back(*own);
    }
    if (points.size() == parts.size()) return points;
    context.Warn(absl::StrCat("passed over ", item.path,
                              ": not every machine of the run has one of that step at home"));
    told = true;
  }
  if (told) {
    context.Hint(absl::StrCat("gpuctl pull ", parts.front().name,
                              " --checkpoint STEP brings one that all of them have"));
  }
  return std::vector<StartPoint>();
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
