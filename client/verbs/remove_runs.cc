#include "client/verbs/remove_runs.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/follow/catch_up.h"
#include "client/node/listing.h"
#include "client/streams/mirror.h"
#include "client/terminal/console.h"
#include "client/terminal/table.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

using Outcome = RunRemoval::Outcome;

constexpr absl::Duration kRemovalPatience = absl::Seconds(30);

// Brings the job's output, metrics and lifecycle here completely: nobody can ask the node for them
// afterwards.
absl::Status BringStreams(CommandContext& context, RunStore& store, RunRow& row) {
  absl::Status error;
  ASSIGN_OR_RETURN(const Caught caught, CatchUp(context, store, row, kRemovalPatience, &error));
  if (caught == Caught::kNot) return error;
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const bool complete,
                   MirrorIsComplete(paths.MirrorDir(row.run_id), row.output_segment_bytes));
  MirrorLimits all;
  all.output = all.metrics = INT64_MAX;
  ASSIGN_OR_RETURN(const bool whole,
                   MirrorIsComplete(paths.MirrorDir(row.run_id), row.output_segment_bytes, all));
  if (whole && row.end.has_value()) return absl::OkStatus();
  if (complete && row.end.has_value()) {
    return WithHint(absl::FailedPreconditionError("only the first part of its output is kept here"),
                    absl::StrCat("gpuctl exec ", row.name, " -- ls ../output shows the rest; ",
                                 "gpuctl rm --force ", row.name, " does without it"));
  }
  return WithHint(absl::FailedPreconditionError("its output is not all here"),
                  absl::StrCat("gpuctl attach ", row.name, " brings it"));
}

// `left` is what the node says of an ended job's files.
absl::StatusOr<Missing> FindAllMissing(CommandContext& context, NodeCalls& calls, const RunRow& row,
                                       const gpuctl::v1::RemoveJobReply& left) {
  ASSIGN_OR_RETURN(gpuctl::v1::ListArtifactsReply listed,
                   calls.ListArtifacts(row.job_id, "", row.checkpoint_patterns));
  RETURN_IF_ERROR(CheckListing("", row.checkpoint_patterns, listed));
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const PulledRecord::All pulled,
                   PulledRecord(paths.MirrorDir(row.run_id)).ReadAll());
  const int64_t ended_ms = row.end.has_value() ? row.end->ended_ms : context.NowMs();
  return FindMissing(left, listed, pulled, ended_ms);
}

absl::Status Judge(CommandContext& context, RunStore& store, NodeCalls& calls, RunRemoval& removal,
                   bool force) {
  RunRow& row = removal.row;
  const absl::StatusOr<gpuctl::v1::RemoveJobReply> found =
      calls.RemoveJob(row.job_id, /*dry_run=*/true, ResultPatterns(row));
  if (absl::IsNotFound(found.status()) || (found.ok() && found->removed())) {
    removal.outcome = Outcome::kGone;
    return absl::OkStatus();
  }
  if (absl::IsFailedPrecondition(found.status())) {
    return WithHint(found.status(),
                    absl::StrCat("gpuctl stop ", row.name,
                                 " ends a job; a process that works in its directory "
                                 "must end first"));
  }
  // What is there cannot be read any more: a copy on a cluster's file system was damaged.
  if (absl::IsDataLoss(found.status())) {
    if (!force) {
      return WithHint(found.status(),
                      absl::StrCat("gpuctl rm --force ", row.name, " removes it all the same"));
    }
    removal.outcome = Outcome::kWouldRemove;
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(found.status());
  removal.freed_bytes = found->freed_bytes();
  removal.shared_bytes = found->shared_bytes();
  absl::Status home = BringStreams(context, store, row);
  if (home.ok()) {
    absl::StatusOr<Missing> missing = FindAllMissing(context, calls, row, *found);
    home = missing.status();
    if (missing.ok()) removal.missing = *std::move(missing);
  }
  if (home.ok() && !removal.missing.empty()) {
    home = WithHint(absl::FailedPreconditionError(
                        absl::StrCat("not at home: ", DescribeMissing(removal.missing))),
                    absl::StrCat(HowToBring(row.name, removal.missing), "; gpuctl rm --force ",
                                 row.name, " does without them"));
  }
  if (!home.ok() && !force) return home;
  removal.outcome = Outcome::kWouldRemove;
  return absl::OkStatus();
}

const char* ActionWord(Outcome outcome) {
  switch (outcome) {
    case Outcome::kKept:
      return "kept";
    case Outcome::kGone:
      return "gone";
    case Outcome::kWouldRemove:
      return "would_remove";
    case Outcome::kRemoved:
      return "removed";
  }
  return "kept";
}

nlohmann::ordered_json ToJson(const RunRemoval& removal) {
  const RunRow& row = removal.row;
  nlohmann::ordered_json json = {
      {"run_id", row.run_id},
      {"name", row.name},
      {"job_id", row.job_id},
      {"provider", row.target.provider},
      {"node", row.target.name},
      {"action", ActionWord(removal.outcome)},
      {"freed_bytes", removal.freed_bytes},
      {"shared_bytes", removal.shared_bytes},
      {"not_home", nlohmann::ordered_json::array()},
      {"not_home_count", removal.missing.checkpoints + removal.missing.files},
      {"not_home_bytes", removal.missing.bytes},
      {"why", nullptr}};
  constexpr size_t kNamed = 1000;
  for (const NotHome& item : removal.missing.items) {
    if (json["not_home"].size() >= kNamed) break;
    json["not_home"].push_back(
        {{"kind", item.kind == NotHome::Kind::kCheckpoint ? "checkpoint" : "file"},
         {"path", item.path},
         {"bytes", item.bytes}});
  }
  if (!removal.why.ok()) json["why"] = std::string(removal.why.message());
  return json;
}

std::string OutcomeText(const RunRemoval& removal) {
  switch (removal.outcome) {
    case Outcome::kKept:
      return "stays";
    case Outcome::kGone:
      return "was not there";
    case Outcome::kWouldRemove:
      return removal.missing.empty() ? "would go" : "would go, not all of it at home";
    case Outcome::kRemoved:
      return removal.missing.empty() ? "removed" : "removed, not all of it at home";
  }
  return "";
}

}  // namespace

absl::StatusOr<Missing> MissingSoFar(CommandContext& context, NodeCalls& calls, const RunRow& row) {
  return FindAllMissing(context, calls, row, {});
}

RunRemoval JudgeRun(CommandContext& context, RunStore& store, NodeCalls& calls, RunRow row,
                    bool force) {
  RunRemoval removal;
  removal.row = std::move(row);
  removal.why = Judge(context, store, calls, removal, force);
  return removal;
}

void RemoveRun(NodeCalls& calls, RunRemoval& removal) {
  if (removal.outcome != Outcome::kWouldRemove) return;
  removal.why = calls.RemoveJob(removal.row.job_id, /*dry_run=*/false).status();
  removal.outcome = removal.why.ok() ? Outcome::kRemoved : Outcome::kKept;
}

void PrintRemovals(CommandContext& context, const std::vector<RunRemoval>& removals, bool dry_run,
                   const nlohmann::ordered_json* more) {
  std::vector<nlohmann::ordered_json> objects;
  for (const RunRemoval& removal : removals) objects.push_back(ToJson(removal));
  if (context.format == OutputFormat::kJsonLines) return context.PrintJsonList("runs", objects);
  if (context.json()) {
    nlohmann::ordered_json json = {{"dry_run", dry_run}, {"runs", objects}};
    if (more != nullptr) json.update(*more);
    return context.PrintJson(json);
  }
  std::vector<TableRow> table = {{"NAME", "ON", "FREES", "SHARED", "WHAT"}};
  int64_t freed = 0;
  for (const RunRemoval& removal : removals) {
    const bool goes =
        removal.outcome == Outcome::kRemoved || removal.outcome == Outcome::kWouldRemove;
    if (goes) freed += removal.freed_bytes;
    const bool gone = removal.outcome == Outcome::kGone;
    table.push_back({removal.row.name, removal.row.target.name,
                     gone ? "-" : FormatBytes(removal.freed_bytes),
                     gone ? "-" : FormatBytes(removal.shared_bytes), OutcomeText(removal)});
  }
  if (context.quiet && dry_run) {
    for (const RunRemoval& removal : removals) {
      if (removal.outcome == Outcome::kWouldRemove) context.PrintLine(removal.row.name);
    }
  }
  if (table.size() > 1 && !context.quiet) context.PrintTable(table);
  const auto not_home = std::count_if(removals.begin(), removals.end(), [](const auto& removal) {
    return !removal.why.ok() && !removal.missing.empty();
  });
  std::string of_all;  // one hint for runs of which all the same is missing
  for (const RunRemoval& removal : removals) {
    if (removal.why.ok()) continue;
    context.Warn(absl::StrCat(removal.row.name, " stays: ", removal.why.message()));
    const std::string hint = HintOf(removal.why);
    if (not_home > 1 && !removal.missing.empty()) {
      if (of_all.empty()) of_all = absl::StrReplaceAll(hint, {{removal.row.name, "RUN"}});
    } else if (!hint.empty()) {
      context.Hint(hint);
    }
  }
  if (!of_all.empty()) context.Hint(of_all);
  if (freed > 0) {
    context.Say(absl::StrCat(FormatBytes(freed), dry_run ? " would be free" : " are free again"));
  }
}

}  // namespace gpuctl
