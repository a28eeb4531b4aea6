// gpuctl debug: show a job's internal state, or replay a run's display.
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/base/suggest.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/runs/context.h"
#include "client/runs/run_end.h"
#include "client/runs/run_status.h"
#include "client/show/show_run.h"
#include "client/streams/mirror.h"
#include "client/terminal/console.h"
#include "client/terminal/table.h"
#include "client/trainer/trainer_kit.h"
#include "client/verbs/describe_verbs.h"
#include "client/verbs/man_page.h"
#include "client/verbs/verb.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "client/warm/warm_socket.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

// Returns the job as the node derives it, or NOT_FOUND.
absl::StatusOr<gpuctl::v1::Job> AskNode(CommandContext& context, const RunRow& row) {
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
  ASSIGN_OR_RETURN(NodeCalls calls, NodeCalls::Connect(context, *links, row.target));
  ASSIGN_OR_RETURN(const gpuctl::v1::HelloReply node, calls.Hello({row.job_id}));
  if (!row.node_id.empty() && node.node_id() != row.node_id) {
    return absl::NotFoundError(
        absl::StrCat("another node answers: ", node.node_id(), ", not ", row.node_id));
  }
  for (const gpuctl::v1::Job& job : node.jobs()) {
    if (job.job_id() == row.job_id) return job;
  }
  return absl::NotFoundError("the node does not know the job");
}

absl::StatusOr<int> DebugJob(CommandContext& context, const std::string& reference) {
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  ASSIGN_OR_RETURN(const RunRow row, store->Get(reference));
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadMirrorLifecycle(paths.MirrorDir(row.run_id)));
  const RunStatus status = DeriveStatus(row, lifecycle);
  const absl::StatusOr<gpuctl::v1::Job> job = AskNode(context, row);
  const LifecycleEvent* last = LastStateEvent(lifecycle);
  std::string last_line = "none";
  if (last != nullptr) {
    last_line = FormatLifecycleEvent(*last);
    if (!last_line.empty() && last_line.back() == '\n') last_line.pop_back();
  }
  const std::string node_says =
      job.ok() ? absl::StrCat(gpuctl::v1::JobState_Name(job->state()), ", because ", job->why())
               : std::string(job.status().message());
  if (context.json()) {
    nlohmann::ordered_json json;
    json["run"] = RunToJson(row, status);
    json["mirror"] = paths.MirrorDir(row.run_id);
    json["last_lifecycle_line"] = last_line;
    json["skipped_lifecycle_lines"] = lifecycle.skipped_lines;
    json["node_reached"] = job.ok();
    json["node_says"] = node_says;
    context.PrintJson(json);
    return kExitOk;
  }
  context.PrintTable(
      {{"run", absl::StrCat(row.name, " (", row.run_id, ")")},
       {"job", absl::StrCat(row.job_id, " on ", row.target.name)},
       {"node", row.node_id.empty() ? "none has been asked" : row.node_id},
       {"accepted", row.accepted_ms > 0 ? "yes" : "not that we know"},
       {"node says", node_says},
       {"mirror says", absl::StrCat(WordOf(status.phase), ", from the last line: ", last_line)},
       {"skipped lines", absl::StrCat(lifecycle.skipped_lines)},
       {"mirror", paths.MirrorDir(row.run_id)}});
  return kExitOk;
}

// Feeds a mirror through the renderer, as if the run had just ended.
absl::StatusOr<int> DebugReplay(CommandContext& context, const std::string& reference) {
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  ASSIGN_OR_RETURN(RunRow row, store->Get(reference));
  if (!row.end.has_value()) {
    RunEnd end;
    end.source = EndSource::kGpuctl;
    end.reason = "replayed from the mirror; the run itself may go on";
    row.end = end;
  }
  ShowRunOptions options;
  options.from_beginning = true;
  ASSIGN_OR_RETURN(const int code, ShowRun(context, *store, row, nullptr, std::move(options)));
  (void)code;
  return kExitOk;
}

absl::StatusOr<int> DebugTrainerKit(CommandContext& context, const std::string& directory) {
  ASSIGN_OR_RETURN(const TrainerKit kit, FindTrainerKit(BundlePaths::Find()));
  RETURN_IF_ERROR(WriteTrainerKit(kit, directory));
  context.Say(absl::StrCat(directory, ": ", DescribeTrainerKit(kit)));
  return kExitOk;
}

absl::StatusOr<int> DebugManPages(CommandContext& context, const std::string& directory) {
  std::vector<ManVerb> verbs;
  for (const Verb& verb : Verbs()) {
    verbs.push_back({verb.name, verb.group, verb.summary, DescribeVerb(context, verb.name)});
  }
  RETURN_IF_ERROR(MakeDirectories(directory, 0755));
  RETURN_IF_ERROR(
      WriteFileAtomic(JoinPath(directory, "gpuctl.1"), ManOverview(verbs, GPUCTL_VERSION), 0644));
  for (const ManVerb& verb : verbs) {
    RETURN_IF_ERROR(WriteFileAtomic(JoinPath(directory, absl::StrCat("gpuctl-", verb.name, ".1")),
                                    ManPageOf(verb, GPUCTL_VERSION), 0644));
  }
  context.Say(absl::StrCat(directory, ": ", verbs.size() + 1, " pages"));
  if (context.json()) context.PrintJson({{"path", directory}, {"pages", verbs.size() + 1}});
  return kExitOk;
}

// Lists the connections that are kept for the next commands, or ends them.
absl::StatusOr<int> DebugLinks(CommandContext& context, bool close) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  const std::vector<HolderState> holders = ListHolders(paths.state_dir);
  if (close) {
    const int closed = CloseHolders(paths.state_dir, "");
    if (context.json()) context.PrintJson({{"closed", closed}});
    context.Say(absl::StrCat("closed: ", closed));
    return kExitOk;
  }
  std::vector<nlohmann::ordered_json> list;
  std::vector<TableRow> rows = {{"MACHINE", "PROCESS", "COMMANDS", "SERVED", "ENDS IN"}};
  for (const HolderState& holder : holders) {
    if (!holder.answers) {
      rows.push_back({"(does not answer)", "-", "-", "-", "-"});
      list.push_back({{"socket", holder.socket}, {"answers", false}});
      continue;
    }
    rows.push_back({holder.node, absl::StrCat(holder.pid), absl::StrCat(holder.commands),
                    absl::StrCat(holder.served), HumanDuration(holder.ends_in)});
    list.push_back({{"socket", holder.socket},
                    {"answers", true},
                    {"node", holder.node},
                    {"pid", holder.pid},
                    {"commands", holder.commands},
                    {"served", holder.served},
                    {"ends_in_s", absl::ToInt64Seconds(holder.ends_in)}});
  }
  if (context.json()) {
    context.PrintJsonList("links", list);
  } else {
    context.PrintTable(rows);
  }
  return kExitOk;
}

}  // namespace

absl::StatusOr<int> CmdDebug(CommandContext& context, std::vector<std::string> args) {
  std::string what, reference;
  VerbParser parser(
      context, "debug job|replay|trainer-kit|man-pages|links [RUN|DIR] [FLAGS]",
      "job          the state of a run's job and what it is derived from, by the node and\n"
      "             by the copy here\n"
      "replay       shows the copy here as attach would, without any link\n"
      "trainer-kit  puts into the new directory DIR what trainer: sends to other machines\n"
      "man-pages    puts into the directory DIR a manual page for each verb\n"
      "links        the connections that are kept for the next commands",
      "  gpuctl debug job amber-fox-3\n"
      "  gpuctl debug links --close\n"
      "  gpuctl debug man-pages man1 && man -l man1/gpuctl-launch.1");
  bool close = false;
  parser.Option("WHAT", what, "job, replay, trainer-kit, man-pages or links").Required();
  const FlagSet::Flag run =
      parser.Option("RUN", reference, "Run: name, id, or the beginning of one; or DIR");
  parser.Switch("--close", close, "With links: end them");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  if (what == "links") return DebugLinks(context, close);
  if (close) return UsageError("debug: --close is for links", "gpuctl debug links --close");
  if (!run.given()) {
    return UsageError(absl::StrCat("debug ", what, ": RUN or DIR is missing"),
                      "gpuctl debug --help");
  }
  if (what == "job") return DebugJob(context, reference);
  if (what == "replay") return DebugReplay(context, reference);
  if (what == "trainer-kit") return DebugTrainerKit(context, reference);
  if (what == "man-pages") return DebugManPages(context, reference);
  return UsageError(
      absl::StrCat("debug: unknown view \"", what, "\"",
                   DidYouMean(what, {"job", "replay", "trainer-kit", "man-pages", "links"})),
      "gpuctl debug job RUN, or gpuctl debug replay RUN");
}

}  // namespace gpuctl
