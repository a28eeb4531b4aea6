// gpuctl wait: wait for runs, for scripts.
#include <poll.h>

#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/base/suggest.h"
#include "client/dispatch/dispatch_pass.h"
#include "client/dispatch/settle_claims.h"
#include "client/follow/ask_again.h"
#include "client/follow/catch_up.h"
#include "client/follow/output_hint.h"
#include "client/follow/run_outcome.h"
#include "client/launch/after_run.h"
#include "client/market/holdings.h"
#include "client/node/explain_error.h"
#include "client/node/make_links.h"
#include "client/notify/tell_end.h"
#include "client/runs/context.h"
#include "client/runs/find_run.h"
#include "client/runs/run_status.h"
#include "client/streams/mirror.h"
#include "client/streams/mirror_reader.h"
#include "client/terminal/console.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "common/process/signal_pipe.h"

namespace gpuctl {
namespace {

enum class WaitFor { kDone, kRunning, kCheckpoint };

absl::StatusOr<WaitFor> ParseWaitFor(const std::string& text) {
  if (text == "done") return WaitFor::kDone;
  if (text == "running") return WaitFor::kRunning;
  if (text == "checkpoint") return WaitFor::kCheckpoint;
  return UsageError(absl::StrCat("--for: cannot wait for \"", text, "\"",
                                 DidYouMean(text, {"done", "running", "checkpoint"})),
                    "use --for done, running or checkpoint");
}

// Returns a function that is true when the waiting can end early; null for kDone. It is called on
// one thread.
std::function<bool()> Condition(WaitFor what, const std::string& mirror_dir, const RunRow& row) {
  if (what == WaitFor::kRunning) {
    return [mirror_dir] {
      const absl::StatusOr<Lifecycle> lifecycle = ReadMirrorLifecycle(mirror_dir);
      if (!lifecycle.ok() || LastStateEvent(*lifecycle) == nullptr) return false;
      const std::optional<SetupState> setup = SetupOf(*lifecycle);
      return !setup.has_value() || !setup->running;
    };
  }
  if (what == WaitFor::kCheckpoint) {
    auto mirror = std::make_shared<MirrorReader>(mirror_dir, row.output_segment_bytes);
    return [mirror] { return mirror->Refresh().ok() && mirror->progress().checkpoint_step() >= 0; };
  }
  return nullptr;
}

absl::StatusOr<int> WaitForRun(CommandContext& context, RunStore& store, RunRow& row, WaitFor what,
                               absl::Duration timeout) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  const std::function<bool()> met = Condition(what, paths.MirrorDir(row.run_id), row);
  if (met && met()) return kExitOk;
  // When the node cannot be asked, the recorded end is all that is known.
  (void)AskAgain(context, store, row);
  if (!row.end.has_value()) {
    ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
    const absl::Status followed =
        FollowQuietly(context, store, row, *links, timeout, absl::InfiniteDuration(), met);
    if (absl::IsCancelled(followed)) return followed;
    if (absl::IsDeadlineExceeded(followed)) return followed;
    if (!followed.ok() && !row.end.has_value()) return ExplainLinkError(followed, row.target);
  }
  if (met && met()) return kExitOk;
  if (!row.end.has_value()) return NoEndError(row);
  if (what == WaitFor::kDone || row.end->exit_code != 0) return row.end->exit_code;
  return absl::FailedPreconditionError(
      absl::StrCat(row.name, " ended without what was waited for; it ", DescribeEnd(*row.end)));
}

// How often the machines of a batch are asked.
constexpr absl::Duration kBatchPassEvery = absl::Seconds(1);

// Makes a pass over the batches, and then waits until the next one is due. Returns whether the user
// interrupts that: what was begun goes on by itself.
bool PassInterrupted(CommandContext& context, SignalPipe& signals) {
  const absl::Status passed = MakePass(kBatchPassEvery, signals.fd()).status();
  if (!signals.Take().empty()) return true;
  if (!passed.ok()) context.Warn(passed.message());
  pollfd polled{signals.fd(), POLLIN, 0};
  (void)poll(&polled, 1, static_cast<int>(absl::ToInt64Milliseconds(kBatchPassEvery)));
  return !signals.Take().empty();
}

// Says how a batch goes on whose waiter was interrupted. What waits for its start waits on.
absl::StatusOr<int> TellOfInterrupt(CommandContext& context, RunStore& runs, BatchStore& batches,
                                    const Batch& batch) {
  const std::string& name = batch.name;
  RETURN_IF_ERROR(TakeTurnsBack(context, batches, batch.batch_id));
  ASSIGN_OR_RETURN(const std::vector<BatchView> views,
                   ReadBatches(runs, batches, {name}, /*open_only=*/false));
  if (views.empty()) return absl::NotFoundError(absl::StrCat("batch ", name, " is gone"));
  context.Warn(absl::StrCat("interrupted, and ", name, " goes on: ", DescribeCounts(views.front()),
                            "; what a machine has in its queue starts by itself"));
  context.Hint(absl::StrCat("gpuctl wait --batch ", name,
                            " goes on with the rest, gpuctl keep --install does so by itself, "
                            "gpuctl cancel ",
                            name, " calls it off"));
  return kExitInterrupted;
}

// Waits until a batch is over, and meanwhile starts what may start.
absl::StatusOr<int> WaitForBatch(CommandContext& context, RunStore& runs, const std::string& name,
                                 absl::Duration timeout) {
  ASSIGN_OR_RETURN(const std::unique_ptr<BatchStore> batches, OpenBatches(context));
  const absl::Duration begin = context.clock.SinceBoot();
  std::string told;
  ASSIGN_OR_RETURN(const Batch batch, batches->Get(name));
  Holdings holdings(context);
  RentalNews rentals(context, holdings, *batches, batch);
  ASSIGN_OR_RETURN(SignalPipe signals, SignalPipe::Install({SIGINT, SIGTERM, SIGHUP}));
  while (true) {
    rentals.Tell();
    ASSIGN_OR_RETURN(std::vector<BatchView> views,
                     ReadBatches(runs, *batches, {name}, /*open_only=*/false));
    if (views.empty()) return absl::NotFoundError(absl::StrCat("batch ", name, " is gone"));
    MarkQueued(context, views);
    const BatchView& view = views.front();
    if (const std::string counts = DescribeCounts(view); counts != told) {
      context.Say(absl::StrCat(name, ": ", counts));
      told = counts;
    }
    if (view.over()) {
      TellOfGivingUp(context, view);
      ASSIGN_OR_RETURN(const BatchMoney money,
                       MoneyOfBatch(context, holdings, *batches, view.batch));
      nlohmann::ordered_json json = BatchToJson(view, money);
      context.Hint(absl::StrCat("gpuctl queue ", name, " --results compares its runs"));
      json["bills"] = TellWhatBatchBills(context, holdings, runs, *batches, view.batch);
      if (context.json()) context.PrintJsonList("batches", {json});
      for (const EntryView& entry : view.entries) {
        if (entry.phase == EntryPhase::kDone) continue;
        const bool has_code = entry.run.has_value() && entry.run->end.has_value();
        return has_code && entry.run->end->exit_code != 0 ? entry.run->end->exit_code : kExitFailed;
      }
      return kExitOk;
    }
    if (context.clock.SinceBoot() - begin >= timeout) {
      return WithHint(absl::DeadlineExceededError(absl::StrCat("wait for ", name, ": timed out")),
                      absl::StrCat("it goes on; gpuctl queue ", name, " shows it"));
    }
    if (PassInterrupted(context, signals)) {
      return TellOfInterrupt(context, runs, *batches, batch);
    }
  }
}

// Waits until an entry that FindUnstarted found has a run, and meanwhile starts what may start.
// Nothing when it will never start, which it says.
absl::StatusOr<std::optional<RunRow>> WaitForStart(CommandContext& context, RunStore& runs,
                                                   Entry entry, absl::Duration timeout) {
  const absl::Duration begin = context.clock.SinceBoot();
  std::string told;
  ASSIGN_OR_RETURN(const std::unique_ptr<BatchStore> batches, OpenBatches(context));
  ASSIGN_OR_RETURN(SignalPipe signals, SignalPipe::Install({SIGINT, SIGTERM, SIGHUP}));
  while (entry.state != EntryState::kStarted) {
    if (const std::string state = DescribeUnstarted(entry); state != told) {
      context.Say(state);
      told = state;
    }
    if (entry.state == EntryState::kFailed || entry.state == EntryState::kCancelled) {
      return std::nullopt;
    }
    if (context.clock.SinceBoot() - begin >= timeout) {
      return WithHint(
          absl::DeadlineExceededError(absl::StrCat("wait for ", entry.name, ": timed out")),
          "it starts when its turn comes; gpuctl queue shows it");
    }
    if (PassInterrupted(context, signals)) {
      return WithExitCode(
          WithHint(absl::CancelledError(absl::StrCat("interrupted, and ", entry.name, " waits")),
                   absl::StrCat("gpuctl queue starts it when its turn comes, gpuctl keep --install "
                                "does so by itself, gpuctl cancel ",
                                entry.name, " calls it off")),
          kExitInterrupted);
    }
    ASSIGN_OR_RETURN(std::optional<Entry> now, batches->FindEntry(entry.entry_id));
    if (!now.has_value()) return absl::NotFoundError(absl::StrCat(entry.name, " is gone"));
    entry = *std::move(now);
  }
  ASSIGN_OR_RETURN(RunRow row, runs.Get(entry.run_id));
  return row;
}

// What a reference names: a run, or an entry of a batch that has none yet.
struct Awaited {
  std::optional<RunRow> row;
  Entry entry;
};

absl::StatusOr<std::vector<Awaited>> FindAwaited(CommandContext& context, RunStore& store,
                                                 const std::vector<std::string>& references) {
  std::vector<Awaited> all;
  for (const std::string& reference : references) {
    ASSIGN_OR_RETURN(std::optional<Entry> entry, FindUnstarted(context, reference));
    if (entry.has_value()) {
      all.push_back({std::nullopt, *std::move(entry)});
    } else {
      ASSIGN_OR_RETURN(RunRow row, store.Get(reference));
      all.push_back({std::move(row), {}});
    }
  }
  if (references.empty()) {
    ASSIGN_OR_RETURN(RunRow row, FindNewestLiveRun(context, store));
    all.push_back({std::move(row), {}});
  }
  return all;
}

// Says what to do about an error that the run's output ends with.
void TellOfOutput(CommandContext& context, const RunRow& row) {
  const absl::StatusOr<ClientPaths> paths = context.Paths();
  if (!paths.ok() || row.end->exit_code == 0) return;
  MirrorReader mirror(paths->MirrorDir(row.run_id), row.output_segment_bytes);
  if (const std::string hint = HintOfOutput(mirror); !hint.empty()) context.Hint(hint);
}

}  // namespace

absl::StatusOr<int> CmdWait(CommandContext& context, std::vector<std::string> args) {
  std::vector<std::string> references;
  std::string what_text = "done", timeout_text, batch;
  VerbParser parser(
      context, "wait [RUN...] [--batch BATCH] [FLAGS]",
      "Waits until the runs have ended; for one that waits in a batch, too, which it\n"
      "starts when its turn comes. Exits with the first code that is not 0, in\n"
      "the order of the arguments; 124 when --timeout came first.",
      "  gpuctl wait amber-fox-3 --timeout 2h\n"
      "  gpuctl wait amber-fox-3 --for checkpoint\n"
      "  gpuctl wait --batch sweep");
  parser.Option("RUN", references, kRunOrNewestLive);
  parser.Option("--for", what_text, "done, running, or checkpoint (seen in its metrics)");
  parser.Option("--timeout", timeout_text, "Give up after, e.g. 30m");
  parser.Option("--batch", batch, "Batch to wait for; what waits of it is started meanwhile");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  ASSIGN_OR_RETURN(const WaitFor what, ParseWaitFor(what_text));
  absl::Duration timeout = absl::InfiniteDuration();
  if (!timeout_text.empty()) {
    const absl::StatusOr<absl::Duration> parsed = ParseDuration(timeout_text);
    if (!parsed.ok())
      return UsageError(absl::StrCat("--timeout: ", parsed.status().message()),
                        "for example --timeout 30m");
    timeout = *parsed;
  }
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  if (!batch.empty()) {
    if (references.empty() && what == WaitFor::kDone) {
      return WaitForBatch(context, *store, batch, timeout);
    }
    return UsageError("--batch waits for the end of a whole batch", "leave out RUN and --for");
  }
  Holdings holdings(context);
  RETURN_IF_ERROR(CheckNoBatch(context, references, "gpuctl wait --batch $ waits for all of it"));
  ASSIGN_OR_RETURN(std::vector<Awaited> all, FindAwaited(context, *store, references));
  const absl::Duration begin = context.clock.SinceBoot();
  int code = kExitOk;
  std::vector<nlohmann::ordered_json> objects;
  const auto left = [&] {
    return std::max(timeout - (context.clock.SinceBoot() - begin), absl::ZeroDuration());
  };
  for (Awaited& each : all) {
    if (!each.row.has_value()) {
      ASSIGN_OR_RETURN(each.row, WaitForStart(context, *store, std::move(each.entry), left()));
    }
    if (!each.row.has_value()) {
      if (code == kExitOk) code = kExitFailed;
      continue;
    }
    RunRow& row = *each.row;
    ASSIGN_OR_RETURN(const int ended, WaitForRun(context, *store, row, what, left()));
    if (code == kExitOk) code = ended;
    if (row.end.has_value()) TellEnd(context, holdings, *store, row.run_id);
    ASSIGN_OR_RETURN(const RunStatus status, MirroredStatus(context, row));
    objects.push_back(RunToJson(row, status));
    if (!context.json() && row.end.has_value()) {
      const bool failed = row.end->exit_code != 0;
      context.Say(absl::StrCat(row.name, " ", DescribeEnd(*row.end)),
                  failed ? Tone::kWarning : Tone::kPlain);
      TellOfOutput(context, row);
      TellWhatIsLeft(context, holdings, *store, row);
    }
  }
  if (context.json()) context.PrintJsonList("runs", objects);
  return code;
}

}  // namespace gpuctl
