// gpuctl submit: a batch of runs, each with parameters of its own.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/exit_codes.h"
#include "client/base/other_tools.h"
#include "client/base/quantity.h"
#include "client/batch/batch_store.h"
#include "client/batch/entry_spec.h"
#include "client/batch/parameters.h"
#include "client/bill/lease_view.h"
#include "client/dispatch/dispatch_pass.h"
#include "client/dispatch/due_schedules.h"
#include "client/dispatch/settle_claims.h"
#include "client/hosts/resolve_target.h"
#include "client/keep/keep_status.h"
#include "client/market/holdings.h"
#include "client/market/secret_values.h"
#include "client/plan/launch_flags.h"
#include "client/plan/launch_plan.h"
#include "client/plan/plan_text.h"
#include "client/rent/lease_limits.h"
#include "client/spec/launch_record.h"
#include "client/terminal/console.h"
#include "client/terminal/shown_name.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/submission.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/process/signal_pipe.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

absl::StatusOr<bool> ReadFlags(CommandContext& context, const std::vector<std::string>& args,
                               SubmitFlags& flags) {
  VerbParser parser(
      context, "submit [FILE...] [FLAGS] [-- CMD...]",
      "Submits a batch: one run for each combination of parameters, or for each file.\n"
      "Prints the runs' names, starts what can start now, and returns.",
      "{lr} in the command, or in run, env, checkpoints and artifacts of the run file, is\n"
      "the value of parameter lr; the job also has it in its environment, as LR. A\n"
      "parameter trainer.optimizer.lr is that setting of the built-in trainer.\n"
      "The same batch under the same name is submitted once; --replace puts another one in its\n"
      "place. What waits is started by gpuctl keep, and by any gpuctl queue or wait --batch.\n\n"
      "  gpuctl submit --name sweep --host gpu1 --host gpu2 --sweep lr=1e-4,2e-4 rank=8,16 \\\n"
      "    -- python train.py --lr {lr} --rank {rank}\n"
      "  gpuctl submit run.yaml --sweep lr=1e-5,1e-4,1e-3 --max-parallel 2 --max-cost 20\n"
      "  gpuctl submit --on amber-fox-3 --gpus 1 --sweep seed=1,2,3 --max-failures 1 -- ./eval\n"
      "  gpuctl queue sweep --results");
  LaunchFlags& launch = flags.launch;
  parser.Option("FILE", flags.files, "Run files; flags override their fields");
  parser.Option("--name", flags.name, "Name of the batch; its runs are NAME-1, NAME-2, ...");
  parser.Option("--from-csv", flags.csv, "Parameters from a CSV file with a line of names");
  const FlagSet::Flag sample =
      parser.Option("--sample", flags.sample, "Draw so many of the combinations");
  sample.Range(1, kMostEntries);
  const FlagSet::Flag seed = parser.Option("--seed", flags.seed, "Draw others (default 0)");
  parser
      .Option("--max-parallel", flags.max_parallel,
              "Most runs at once (default: one a machine, all with --gpus; when\nrenting one, with "
              "--gpus as many as one machine has GPUs for)")
      .Range(1, kMostEntries);
  parser.Switch("--array", flags.array,
                "On a Slurm cluster: submit the runs as one array. --max-parallel is then how\n"
                "many of its tasks run at once (default: all)");
  parser.Option("--max-cost", flags.max_cost, "Most that the batch may cost in all, in USD");
  parser
      .Option("--max-failures", flags.max_failures,
              "Start no more after so many failed runs (default: no limit)")
      .Range(1, kMostEntries);
  parser.Switch("--replace", flags.replace,
                "Take the name of a batch that is over or runs something else: what waits\n"
                "of that one is called off, what runs goes on");
  parser.Option("--every", flags.every,
                "Start a run at these times, as in a crontab: \"0 3 * * *\"");
  parser.Switch("--overlap", flags.overlap, "With --every: also while the run before is not over");
  parser.Option("--priority", flags.priority, "Higher ones start first (default 0)")
      .Range(-1000, 1000);
  parser.Option("--after", flags.after, "Run, entry or batch that must have succeeded first");
  parser.Option("--tag", launch.tags, "Word to find its runs by");
  parser.Switch("--pull", launch.pull, "Let gpuctl keep bring results to ./NAME-NUMBER");
  parser.Switch("--dry-run", launch.dry_run, "Show the plan and stop");
  parser.Switch("-y,--yes", launch.yes, "Do not ask; also send large work directories");
  parser.Option("--host", flags.hosts, "Machine to use, as for launch, or local; several times")
      .Group("Machine");
  parser.Option("-p,--port", launch.target.port, "Their ssh port").Range(1, 65535).Group("Machine");
  parser.Option("-i,--identity", launch.target.identity, "Private key for them").Group("Machine");
  parser.Option("--on", launch.on, "Machine to use: that of this RUN, or of this name in gpuctl ps")
      .Group("Machine");
  AddResourceFlags(parser, "Machine", /*image=*/true, launch.resources);
  AddJobFlags(parser, launch);
  parser.OneValueEach();
  parser.Option("--sweep", flags.sweep,
                "NAME=VALUE,VALUE ...: a grid of parameters; 0..5 is a range");
  parser.Quiet("Print the batch's name alone");
  // Slurm's, whose value is the tasks' numbers.
  for (const std::string& word : args) {
    if (word == "--") break;
    if (!absl::StartsWith(word, "--array=")) continue;
    return UsageError(absl::StrCat("--array takes no value", OursForOthers("--array")),
                      "with --array they are one array of a Slurm cluster");
  }
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  flags.sampled = sample.given();
  flags.seeded = seed.given();
  launch.detach = true;
  launch.verb = "submit";
  return go_on;
}

bool IsRunFile(const std::string& word) {
  return absl::EndsWith(word, ".yaml") || absl::EndsWith(word, ".yml") ||
         absl::StrContains(word, '/') || PathExists(word);
}

// Refuses a name behind the first one of --after and the like, which is taken for a run file.
absl::Status CheckFiles(const SubmitFlags& flags) {
  const char* flag = !flags.after.empty()         ? "--after"
                     : !flags.hosts.empty()       ? "--host"
                     : !flags.launch.tags.empty() ? "--tag"
                                                  : nullptr;
  for (const std::string& file : flags.files) {
    if (flag == nullptr || IsRunFile(file)) continue;
    return UsageError(absl::StrCat("submit: \"", file,
                                   "\" is taken for a run file, and there is "
                                   "none of that name"),
                      absl::StrCat(flag, " takes one name, and may come again: ", flag, " ",
                                   TypedName(file, "NAME")));
  }
  return absl::OkStatus();
}

absl::Status CheckFlags(SubmitFlags& flags) {
  // A file behind --sweep is a file.
  for (auto word = flags.sweep.begin(); word != flags.sweep.end();) {
    if (absl::StrContains(*word, '=') || !IsRunFile(*word)) {
      ++word;
      continue;
    }
    flags.files.push_back(*word);
    word = flags.sweep.erase(word);
  }
  RETURN_IF_ERROR(CheckFiles(flags));
  if (flags.seeded && !flags.sampled) {
    return UsageError("--seed goes with --sample", "gpuctl submit --help");
  }
  if (flags.name.size() > kLongestBatchName) {
    return UsageError(
        absl::StrCat("--name: a batch's name has at most ", kLongestBatchName, " characters"),
        "choose a shorter one");
  }
  return SetPullDirectory(flags.launch);
}

absl::StatusOr<bool> Agrees(CommandContext& context, const Submission& submission) {
  if (submission.AgreedBefore()) return true;
  if (!submission.rents() || submission.flags().launch.yes) {
    for (const std::string& line : submission.Terms(ColumnsFor(context, STDERR_FILENO))) {
      context.Note(line);
    }
    return true;
  }
  constexpr absl::string_view kNobody = "submit asks before it rents, and there is nobody to ask";
  constexpr absl::string_view kHint = "add -y to accept the cost, or --dry-run to see it";
  if (!context.CanAsk()) return UsageError(kNobody, kHint);
  for (const std::string& line : submission.Text(ColumnsFor(context, STDERR_FILENO))) {
    context.NoteForQuestion(line);
  }
  return context.AskYesNo("Submit it?", "nothing was submitted", kNobody, kHint);
}

// Brings the stored batch of the same name up to date with the limits that were typed.
absl::Status TakeOver(CommandContext& context, BatchStore& batches, Submission& submission,
                      const Batch& stored) {
  Batch wanted = stored;
  const SubmitFlags& flags = submission.flags();
  if (flags.max_failures > 0) wanted.max_failures = flags.max_failures;
  if (flags.max_parallel > 0) wanted.max_parallel = flags.max_parallel;
  if (!flags.max_cost.empty()) wanted.max_cost_usd = submission.batch().max_cost_usd;
  wanted.rents = stored.rents || submission.rents();
  // A price that was shown and agreed to allows more; only one that was typed takes something back.
  const bool shown_dearer = !submission.AgreedBefore() &&
                            submission.batch().agreed_usd_per_hour > stored.agreed_usd_per_hour;
  if (submission.rents() && (!flags.launch.resources.max_price.empty() || shown_dearer)) {
    wanted.agreed_usd_per_hour = submission.batch().agreed_usd_per_hour;
  }
  wanted.hosts = submission.batch().hosts;
  RETURN_IF_ERROR(batches.SetLimits(wanted));
  context.Say(absl::StrCat(stored.name, " is submitted already; nothing is submitted again"));
  return absl::OkStatus();
}

// Brings the stored schedule of the same name up to date with what was typed.
absl::Status ReplaceSchedule(CommandContext& context, BatchStore& batches, Submission& submission,
                             const Batch& stored, const Schedule& before) {
  Batch wanted = submission.batch();
  wanted.batch_id = stored.batch_id;
  RETURN_IF_ERROR(batches.SetLimits(wanted));
  if (stored.digest == wanted.digest && !before.ended) {
    context.Say(absl::StrCat(stored.name, " is submitted already, and goes on"));
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(batches.ReplaceSchedule(wanted, *submission.schedule()));
  context.Say(absl::StrCat(stored.name, before.ended ? " goes on" : " is replaced", ": ",
                           DescribeSchedule(*submission.schedule())));
  return absl::OkStatus();
}

// Stores the batch in the place of the one before, and says what became of that. Returns the name
// that that one has now.
absl::StatusOr<std::string> ReplaceBefore(CommandContext& context, BatchStore& batches,
                                          const Submission& submission) {
  const std::string& name = submission.batch().name;
  ASSIGN_OR_RETURN(const ReplacedBatch replaced,
                   batches.Replace(submission.batch(), submission.entries(),
                                   submission.before()->batch.batch_id));
  std::vector<std::string> parts;
  if (replaced.cancelled > 0) parts.push_back(absl::StrCat(replaced.cancelled, " called off"));
  if (replaced.live > 0) parts.push_back(absl::StrCat(replaced.live, " running on"));
  context.Say(absl::StrCat("the batch that was ", name, " is ", replaced.name, " now",
                           parts.empty() ? "" : ": ", absl::StrJoin(parts, ", ")));
  if (replaced.live > 0) {
    context.Hint(absl::StrCat("gpuctl cancel --running ", replaced.name, " stops those"));
  }
  return replaced.name;
}

absl::Status PrintSubmitted(CommandContext& context, RunStore& runs, BatchStore& batches,
                            const std::string& name, bool again, const std::string& replaced) {
  ASSIGN_OR_RETURN(std::vector<BatchView> views,
                   ReadBatches(runs, batches, {name}, /*open_only=*/false));
  if (views.empty()) return absl::NotFoundError(absl::StrCat("batch ", name, " is gone"));
  MarkQueued(context, views);
  if (!context.json()) {
    std::vector<std::string> names;
    for (const EntryView& view : views[0].entries) names.push_back(view.entry.name);
    if (views[0].schedule.has_value() || context.quiet) names = {name};
    context.PrintLines(names);
    return absl::OkStatus();
  }
  nlohmann::ordered_json json = BatchToJson(views[0], BatchMoney());
  json["submitted_before"] = again;
  json["replaced"] = replaced.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(replaced);
  json["entries"] = nlohmann::ordered_json::array();
  for (const EntryView& view : views[0].entries) json["entries"].push_back(EntryToJson(view));
  context.PrintJson({{"submitted", json}});
  return absl::OkStatus();
}

// Says which limits of machines the runs of a batch raised that others have as well.
void TellOfRaises(CommandContext& context, Holdings& holdings, const BatchView& view) {
  if (!view.batch.rents) return;
  for (const EntryView& one : view.entries) {
    if (one.over() || !one.run.has_value()) continue;
    const absl::StatusOr<std::optional<Lease>> lease = holdings.LeaseOf(one.run->run_id);
    if (!lease.ok() || !lease->has_value()) continue;
    if (const std::string raise = DescribeRaiseBy(**lease, one.run->run_id); !raise.empty()) {
      context.Say(absl::StrCat(one.run->name, " ", raise));
    }
  }
}

// Says why the first of the runs waits, where nothing of the batch has begun.
void TellWhyNoneStarts(CommandContext& context, Holdings& holdings, RunStore& runs,
                       BatchStore& batches, const BatchView& view) {
  for (const EntryView& one : view.entries) {
    if (one.phase != EntryPhase::kWaiting) return;
  }
  const auto known = WhyTheyWait(context, holdings, runs, batches);
  for (const EntryView& one : view.entries) {
    std::string why = one.why;
    if (known.ok()) {
      const auto found = known->find(one.entry.entry_id);
      if (found != known->end()) why = found->second;
    }
    if (why.empty()) continue;
    context.Say(absl::StrCat(one.entry.name, " waits: ", why));
    return;
  }
}

// Says what became of the batch so far, and how it goes on. `pulls`: with --pull.
absl::Status TellOfBatch(CommandContext& context, Holdings& holdings, RunStore& runs,
                         BatchStore& batches, const std::string& name, bool pulls) {
  ASSIGN_OR_RETURN(std::vector<BatchView> views,
                   ReadBatches(runs, batches, {name}, /*open_only=*/false));
  if (views.empty()) return absl::OkStatus();
  MarkQueued(context, views);
  if (views[0].schedule.has_value()) {
    context.Say(absl::StrCat(name, ": ", DescribeSchedule(*views[0].schedule)));
    context.Hint("gpuctl keep --install starts its runs; with --every 1m they begin on time");
    return absl::OkStatus();
  }
  const absl::StatusOr<ClientPaths> paths = context.Paths();
  if (pulls && paths.ok() && !IsKept(paths->state_dir)) {
    context.Warn(
        "--pull is for gpuctl keep, which nobody calls here: gpuctl keep --install lets it "
        "bring the results home");
  }
  TellOfRaises(context, holdings, views[0]);
  context.Say(absl::StrCat(name, ": ", DescribeCounts(views[0])));
  TellWhyNoneStarts(context, holdings, runs, batches, views[0]);
  if (CountOf(views[0], EntryPhase::kWaiting) > 0) {
    context.Hint(absl::StrCat("gpuctl wait --batch ", name,
                              " goes on with it here; gpuctl keep --install does so by itself"));
  } else {
    context.Hint(absl::StrCat("gpuctl queue ", name, " shows it"));
  }
  return absl::OkStatus();
}

// Says that a batch that is submitted again has nothing left to do.
absl::StatusOr<int> TellItIsOver(CommandContext& context, RunStore& runs, BatchStore& batches,
                                 const Submission& submission) {
  const BatchView& before = *submission.before();
  const std::string& name = before.batch.name;
  RETURN_IF_ERROR(PrintSubmitted(context, runs, batches, name, /*again=*/true, ""));
  context.Say(absl::StrCat(name, " was submitted before and is over: ", DescribeCounts(before),
                           "; nothing is left to do, and nothing was run"));
  TellOfGivingUp(context, before);
  // A content that is not known differs from none.
  std::string content;
  for (const EntryView& view : before.entries) {
    if (content.empty()) content = ContentOf(runs, view);
  }
  const std::string& now = submission.first().plan.job.manifest_digest();
  if (!content.empty() && !now.empty() && content != now) {
    context.Warn("the files of the work directory differ from those that it ran with");
  }
  context.Hint("--replace, or another --name, runs it again, with the work directory as it is now");
  return kExitOk;
}

// Says which entries were given up at once, because what they come after has failed. Returns the
// exit code.
absl::StatusOr<int> TellOfCancelled(CommandContext& context, RunStore& runs, BatchStore& batches,
                                    const std::string& name) {
  ASSIGN_OR_RETURN(const std::vector<BatchView> views,
                   ReadBatches(runs, batches, {name}, /*open_only=*/false));
  if (views.empty()) return kExitOk;
  int code = kExitOk;
  for (const EntryView& view : views[0].entries) {
    if (view.entry.state != EntryState::kCancelled) continue;
    if (code == kExitOk) {
      context.Warn(absl::StrCat(view.entry.name, " is cancelled: ", view.why));
    }
    code = kExitFailed;
  }
  return code;
}

// Says which secrets a later start will not have.
absl::Status TellOfSecrets(CommandContext& context, const RunSpec& spec) {
  ASSIGN_OR_RETURN(const std::vector<std::string> unseen, SecretsNotStored(context, spec));
  for (const std::string& name : unseen) {
    context.Warn(
        absl::StrCat("gpuctl keep has none of this shell's variables, and could not start "
                     "runs without secret ",
                     name, ": gpuctl login --secret ", name, " keeps it"));
  }
  return absl::OkStatus();
}

// Makes a pass, and tells of the machines that it rents as it rents them. CANCELLED when the user
// interrupts that: what was begun goes on by itself.
absl::Status PassAndTell(RentalNews& rentals) {
  constexpr std::chrono::milliseconds kLookEvery(300);
  ASSIGN_OR_RETURN(SignalPipe signals, SignalPipe::Install({SIGINT, SIGTERM, SIGHUP}));
  std::future<absl::Status> pass = std::async(
      std::launch::async, [fd = signals.fd()] { return MakePass(kPatience, fd).status(); });
  while (pass.wait_for(kLookEvery) != std::future_status::ready) rentals.Tell();
  rentals.Tell();
  absl::Status passed = pass.get();
  return signals.Take().empty() ? passed : absl::CancelledError("interrupted");
}

// Says where an interrupted submit has left the batch. Returns the exit code.
absl::StatusOr<int> TellOfInterrupt(CommandContext& context, RunStore& runs, BatchStore& batches,
                                    const std::string& name) {
  ASSIGN_OR_RETURN(const Batch batch, batches.Get(name));
  RETURN_IF_ERROR(TakeTurnsBack(context, batches, batch.batch_id));
  ASSIGN_OR_RETURN(const std::vector<BatchView> views,
                   ReadBatches(runs, batches, {name}, /*open_only=*/false));
  if (!views.empty()) {
    context.Warn(absl::StrCat("interrupted, and ", name, " is submitted: ",
                              DescribeCounts(views[0]), "; what is being started goes on"));
  }
  context.Hint(absl::StrCat("gpuctl cancel ", name, " calls off what waits, gpuctl wait --batch ",
                            name, " goes on with it"));
  return kExitInterrupted;
}

}  // namespace

absl::StatusOr<int> CmdSubmit(CommandContext& context, std::vector<std::string> args) {
  SubmitFlags flags;
  ASSIGN_OR_RETURN(const bool go_on, ReadFlags(context, args, flags));
  if (!go_on) return kExitOk;
  RETURN_IF_ERROR(CheckFlags(flags));
  ASSIGN_OR_RETURN(RunStore * runs, context.Store());
  ASSIGN_OR_RETURN(const std::unique_ptr<BatchStore> batches, OpenBatches(context));
  Holdings holdings(context);
  Submission submission(context, holdings, *runs, *batches, std::move(flags));
  RETURN_IF_ERROR(submission.Plan());
  if (submission.flags().launch.dry_run) {
    if (context.json()) {
      context.PrintJson({{"plan", submission.ToJson()}});
    } else {
      context.PrintLines(submission.Text(ColumnsFor(context, STDOUT_FILENO)));
    }
    return kExitOk;
  }
  if (submission.is_over()) {
    return TellItIsOver(context, *runs, *batches, submission);
  }
  ASSIGN_OR_RETURN(const bool agreed, Agrees(context, submission));
  if (!agreed) {
    context.Say("nothing was submitted");
    return kExitFailed;
  }
  const std::string& name = submission.batch().name;
  absl::Status stored;
  std::string replaced;  // the name that the batch before has now
  if (submission.replaces()) {
    absl::StatusOr<std::string> done = ReplaceBefore(context, *batches, submission);
    stored = done.status();
    if (done.ok()) replaced = *std::move(done);
  } else if (submission.schedule().has_value()) {
    stored = batches->InsertScheduled(submission.batch(), *submission.schedule());
  } else {
    stored = batches->Insert(submission.batch(), submission.entries());
  }
  const bool again = absl::IsAlreadyExists(stored);
  if (again) {
    ASSIGN_OR_RETURN(const Batch before, batches->Get(name));
    ASSIGN_OR_RETURN(const auto schedules, batches->Schedules());
    const auto schedule = schedules.find(before.batch_id);
    // Another process may have stored something else since the plan was made.
    const bool same = before.digest == submission.batch().digest;
    if (!same && (schedule == schedules.end() || !submission.schedule().has_value())) {
      return RunsSomethingElse(*batches, before, /*replaceable=*/false);
    }
    stored = submission.schedule().has_value() && schedule != schedules.end()
                 ? ReplaceSchedule(context, *batches, submission, before, schedule->second)
                 : TakeOver(context, *batches, submission, before);
  }
  RETURN_IF_ERROR(stored);
  // People see the names at once; a program gets one document, with what has started by then.
  if (!context.json()) {
    RETURN_IF_ERROR(PrintSubmitted(context, *runs, *batches, name, again, replaced));
  }
  RETURN_IF_ERROR(TellOfSecrets(context, submission.first().plan.spec));
  ASSIGN_OR_RETURN(const Batch batch, batches->Get(name));
  RentalNews rentals(context, holdings, *batches, batch);
  const absl::Status passed = PassAndTell(rentals);
  if (absl::IsCancelled(passed)) return TellOfInterrupt(context, *runs, *batches, name);
  if (!passed.ok()) context.Warn(absl::StrCat("nothing could be started: ", passed.message()));
  RETURN_IF_ERROR(context.json() ? PrintSubmitted(context, *runs, *batches, name, again, replaced)
                                 : TellOfBatch(context, holdings, *runs, *batches, name,
                                               !submission.flags().launch.pull.empty()));
  if (again) return kExitOk;
  return TellOfCancelled(context, *runs, *batches, name);
}

}  // namespace gpuctl
