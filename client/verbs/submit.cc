// gpuctl submit: a batch of runs, each with parameters of its own.
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/batch/batch_store.h"
#include "client/batch/entry_spec.h"
#include "client/batch/parameters.h"
#include "client/dispatch/dispatch_pass.h"
#include "client/dispatch/due_schedules.h"
#include "client/launch/launch_flags.h"
#include "client/launch/launch_plan.h"
#include "client/launch/plan_text.h"
#include "client/launch/resolve_target.h"
#include "client/market/holdings.h"
#include "client/market/secret_values.h"
#include "client/rent/lease_limits.h"
#include "client/results/pull_files.h"
#include "client/spec/launch_record.h"
#include "client/terminal/console.h"
#include "client/terminal/shown_name.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr size_t kLongestBatchName = 40;  // a run's name has its number behind it
constexpr int64_t kMostCsvBytes = 16 << 20;
constexpr absl::Duration kPatience = absl::Seconds(30);
// A machine that costs so much more than the first offer is taken, too: offers change.
constexpr double kDearer = 1.25;
constexpr size_t kShownEntries = 4;

struct SubmitFlags {
  LaunchFlags launch;
  std::vector<std::string> files, sweep, hosts, after;
  std::string csv, name, max_cost, every;
  int sample = 0, seed = 0, max_parallel = 0, priority = 0;
  bool sampled = false, seeded = false, overlap = false;
};

// A run file, or the command line alone, with the runs that are made of it.
struct Source {
  std::string name;  // of the run file's name:, or the file's own
  LaunchPlan plan;   // without parameters
  LaunchRecord record;
  std::vector<std::string> after;
  std::string every;
};

absl::StatusOr<bool> ReadFlags(CommandContext& context, const std::vector<std::string>& args,
                               SubmitFlags& flags) {
  VerbParser parser(
      context, "submit [FILE...] [FLAGS] [-- CMD...]",
      "Submits a batch: one run for each combination of parameters, or for each file.\n"
      "Prints the runs' names, starts what can start now, and returns.",
      "{lr} in the command, or in run, env, checkpoints and artifacts of the run file, is\n"
      "the value of parameter lr; the job also has it in its environment, as LR. A\n"
      "parameter trainer.optimizer.lr is that setting of the built-in trainer.\n"
      "The same batch under the same name is submitted once. What waits is started by\n"
      "gpuctl keep, and by any gpuctl queue or wait --batch.\n\n"
      "  gpuctl submit --name sweep --host gpu1 --host gpu2 --sweep lr=1e-4,2e-4 rank=8,16 \\\n"
      "    -- python train.py --lr {lr} --rank {rank}\n"
      "  gpuctl submit run.yaml --sweep lr=1e-5,1e-4,1e-3 --max-parallel 2 --max-cost 20\n"
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
  parser.Option("--max-cost", flags.max_cost, "Most that the batch may cost in all, in USD");
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
  AddResourceFlags(parser, "Machine", /*image=*/true, launch.resources);
  AddJobFlags(parser, launch);
  parser.OneValueEach();
  parser.Option("--sweep", flags.sweep,
                "NAME=VALUE,VALUE ...: a grid of parameters; 0..5 is a range");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  flags.sampled = sample.given();
  flags.seeded = seed.given();
  launch.detach = true;
  return go_on;
}

absl::Status CheckFlags(SubmitFlags& flags) {
  // A file behind --sweep is a file.
  for (auto word = flags.sweep.begin(); word != flags.sweep.end();) {
    if (absl::StrContains(*word, '=')) {
      ++word;
      continue;
    }
    flags.files.push_back(*word);
    word = flags.sweep.erase(word);
  }
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

absl::StatusOr<std::vector<Parameters>> ReadParameters(const SubmitFlags& flags) {
  std::vector<Parameters> rows;
  std::vector<ParameterAxis> axes;
  if (!flags.csv.empty()) {
    absl::StatusOr<std::string> text = ReadFileToString(flags.csv, kMostCsvBytes);
    if (!text.ok()) {
      return WithExitCode(Annotate(text.status(), "--from-csv"), kExitUsage);
    }
    absl::StatusOr<std::vector<Parameters>> read = ParseParameterCsv(*text);
    if (!read.ok()) {
      return UsageError(absl::StrCat("--from-csv ", flags.csv, ": ", read.status().message()),
                        "the first line names the parameters, each further line is a run");
    }
    rows = *std::move(read);
  }
  for (const std::string& word : flags.sweep) {
    absl::StatusOr<ParameterAxis> axis = ParseAxis(word);
    if (!axis.ok()) {
      return UsageError(absl::StrCat("--sweep: ", axis.status().message()),
                        "for example --sweep lr=1e-4,2e-4 rank=8,16 seed=0..4");
    }
    axes.push_back(*std::move(axis));
  }
  const Sampling sampling{flags.sample, static_cast<uint64_t>(flags.seed)};
  absl::StatusOr<std::vector<Parameters>> all = ExpandGrid(rows, axes, sampling);
  if (!all.ok()) return UsageError(all.status().message(), "gpuctl submit --help");
  if (absl::Status names = CheckParameterNames(all->front()); !names.ok()) {
    return UsageError(names.message(), "gpuctl submit --help explains parameters");
  }
  return all;
}

// Makes the batch and its entries out of the command line.
class Submission {
 public:
  Submission(CommandContext& context, Holdings& holdings, RunStore& runs, BatchStore& batches,
             SubmitFlags flags)
      : context_(context),
        holdings_(holdings),
        runs_(runs),
        batches_(batches),
        flags_(std::move(flags)) {}

  absl::Status Plan() {
    ASSIGN_OR_RETURN(const std::vector<Parameters> parameters, ReadParameters(flags_));
    RETURN_IF_ERROR(ReadHosts());
    if (flags_.files.empty()) RETURN_IF_ERROR(AddSource(""));
    for (const std::string& file : flags_.files) RETURN_IF_ERROR(AddSource(file));
    RETURN_IF_ERROR(MakeBatch());
    RETURN_IF_ERROR(MakeSchedule(parameters));
    if (!schedule_.has_value()) {
      RETURN_IF_ERROR(MakeEntries(parameters));
      RETURN_IF_ERROR(CheckShared());
    }
    batch_.max_parallel = Parallel();
    return SetMoney();
  }

  bool rents() const { return batch_.rents; }
  const Batch& batch() const { return batch_; }
  Batch& batch() { return batch_; }
  const std::vector<Entry>& entries() const { return entries_; }
  const std::optional<Schedule>& schedule() const { return schedule_; }
  const SubmitFlags& flags() const { return flags_; }
  const Source& first() const { return sources_.front(); }

  // Returns the most that all may cost, in USD.
  double MostCost() const {
    return batch_.max_cost_usd.has_value() ? std::min(*batch_.max_cost_usd, bound_usd_)
                                           : bound_usd_;
  }

  std::vector<std::string> Text() const;
  nlohmann::ordered_json ToJson() const;

 private:
  absl::Status ReadHosts();
  absl::Status AddSource(const std::string& file);
  absl::Status MakeBatch();
  absl::Status MakeSchedule(const std::vector<Parameters>& parameters);
  absl::Status MakeEntries(const std::vector<Parameters>& parameters);
  absl::Status CheckShared() const;
  absl::Status SetMoney();
  // Returns how many runs of the batch fit on one machine that is rented for it.
  int RunsOnOne() const;
  // Returns how many may run at once.
  int Parallel() const;
  absl::StatusOr<std::vector<std::string>> Resolve(const std::vector<std::string>& names);

  CommandContext& context_;
  Holdings& holdings_;
  RunStore& runs_;
  BatchStore& batches_;
  SubmitFlags flags_;
  std::vector<Source> sources_;
  std::vector<BatchHost> hosts_;
  Batch batch_;
  std::vector<Entry> entries_;
  std::optional<Schedule> schedule_;
  double one_usd_ = 0, bound_usd_ = 0;
};

// Names ours for "afterok:42" and the like, which Slurm's --dependency takes.
absl::Status CheckNoSlurmDependency(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, ':');
  const std::string& word = parts.front();
  if (parts.size() < 2 || !absl::StartsWith(word, "after")) return absl::OkStatus();
  const std::string run = parts[1].empty() ? "RUN" : parts[1];
  if (word == "afterok") {
    return UsageError(absl::StrCat("--after: \"", word, ":\" is Slurm's, and what --after means"),
                      absl::StrCat("--after ", TypedName(run, "RUN"), " alone"));
  }
  return UsageError(
      absl::StrCat("--after: \"", word, ":\" is Slurm's; here --after waits for success only"),
      absl::StrCat("--after ", TypedName(run, "RUN"),
                   " waits for its success; gpuctl wait RUN in a script waits for any end"));
}

absl::Status Submission::ReadHosts() {
  TargetFlags target = flags_.launch.target;
  for (const std::string& name : flags_.hosts) {
    const bool local = name == "local";
    target.host = local ? "" : name;
    target.provider = local ? "local" : "";
    TargetFlags one = target;
    if (local) one.port = 0, one.identity.clear();
    ASSIGN_OR_RETURN(const NodeTarget found, ResolveTarget(one));
    BatchHost host;
    host.host = name;
    host.port = one.port;
    if (!one.identity.empty()) {
      ASSIGN_OR_RETURN(host.identity, AbsolutePath(one.identity));
    }
    host.target_name = found.name;
    const bool again = std::any_of(hosts_.begin(), hosts_.end(), [&host](const BatchHost& other) {
      return other.target_name == host.target_name;
    });
    if (!again) hosts_.push_back(std::move(host));
  }
  return absl::OkStatus();
}

absl::Status Submission::AddSource(const std::string& file) {
  LaunchFlags flags = flags_.launch;
  flags.run_file = file;
  // A plan without a command to look at its work directory's commit.
  flags.dry_run = true;
  Settings settings;
  ASSIGN_OR_RETURN(RunSpec spec, BuildRunSpec(context_, flags, /*like=*/nullptr, &settings));
  Source& source = sources_.emplace_back();
  source.name = spec.name;
  if (source.name.empty() && !file.empty()) {
    source.name = BaseName(file);
    source.name.resize(std::min(source.name.size(), source.name.rfind('.')));
  }
  source.after = std::exchange(spec.after, {});
  source.every = std::exchange(spec.every, "");
  const bool to_rent = hosts_.empty() || !flags.resources.providers.empty();
  if (!to_rent) {
    const BatchHost& host = hosts_.front();
    flags.target.host = host.host == "local" ? "" : host.host;
    if (host.host == "local") spec.providers = {"local"};
  }
  ASSIGN_OR_RETURN(source.plan, PlanLaunch(context_, holdings_, flags, std::move(spec), nullptr,
                                           nullptr, std::move(settings)));
  ASSIGN_OR_RETURN(source.record, ParseLaunchRecord(source.plan.row.launch_json));
  if (!to_rent || source.plan.rents) {
    batch_.rents = batch_.rents || source.plan.rents;
    return absl::OkStatus();
  }
  if (!hosts_.empty()) {
    const bool there = std::any_of(hosts_.begin(), hosts_.end(), [&source](const BatchHost& one) {
      return one.target_name == source.plan.own_machine.name;
    });
    if (there) return absl::OkStatus();
  }
  BatchHost own;
  own.host = "local";
  own.target_name = source.plan.own_machine.name;
  hosts_.push_back(std::move(own));
  return absl::OkStatus();
}

absl::Status Submission::MakeBatch() {
  batch_.name = !flags_.name.empty()    ? flags_.name
                : !first().name.empty() ? first().name.substr(0, kLongestBatchName)
                                        : NewReadableName();
  batch_.batch_id = absl::StrCat("b-", RandomHex(6));
  batch_.created_ms = context_.NowMs();
  batch_.tags = flags_.launch.tags;
  const std::string tag = absl::StrCat("batch:", batch_.name);
  if (std::find(batch_.tags.begin(), batch_.tags.end(), tag) == batch_.tags.end()) {
    batch_.tags.push_back(tag);
  }
  if (absl::Status tags = CheckTags(batch_.tags); !tags.ok()) {
    return UsageError(absl::StrCat("--tag: ", tags.message()), "gpuctl tag --help");
  }
  batch_.hosts = hosts_;
  if (batch_.rents) batch_.hosts.emplace_back();  // the markets
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Submission::Resolve(
    const std::vector<std::string>& names) {
  std::vector<std::string> references;
  for (const std::string& name : names) {
    RETURN_IF_ERROR(CheckNoSlurmDependency(name));
    if (const absl::StatusOr<Batch> batch = batches_.Get(name); batch.ok()) {
      ASSIGN_OR_RETURN(const std::vector<Entry> of_batch, batches_.Entries(batch->batch_id));
      for (const Entry& entry : of_batch) {
        references.push_back(absl::StrCat("entry:", entry.entry_id));
      }
      continue;
    }
    ASSIGN_OR_RETURN(const std::optional<Entry> entry, batches_.FindEntry(name));
    if (entry.has_value()) {
      references.push_back(absl::StrCat("entry:", entry->entry_id));
      continue;
    }
    ASSIGN_OR_RETURN(const RunRow row, runs_.Get(name));
    references.push_back(absl::StrCat("run:", row.run_id));
  }
  return references;
}

// Makes the schedule, if the run file or the command line has times.
absl::Status Submission::MakeSchedule(const std::vector<Parameters>& parameters) {
  std::string every = flags_.every;
  for (const Source& source : sources_) {
    if (every.empty()) every = source.every;
  }
  if (every.empty() && flags_.overlap) {
    return UsageError("--overlap goes with --every", "gpuctl submit --help");
  }
  if (every.empty()) return absl::OkStatus();
  const Source& source = first();
  if (sources_.size() > 1 || parameters.size() > 1 || !parameters.front().empty() ||
      !source.after.empty() || !flags_.after.empty()) {
    return UsageError("every: starts one run at each time, without parameters and without after",
                      "submit one run file; a script that calls gpuctl submit --sweep is one, too");
  }
  const absl::StatusOr<int64_t> next_ms = NextTimeMs(every, context_.NowMs());
  if (!next_ms.ok()) {
    return UsageError(absl::StrCat("every: ", next_ms.status().message()),
                      "for example --every \"0 3 * * *\": each day at three");
  }
  if (batch_.rents && flags_.max_cost.empty()) {
    return UsageError("every: rents again and again, and nothing says how much it may cost in all",
                      "--max-cost USD limits what all its runs may cost together");
  }
  Schedule& schedule = schedule_.emplace();
  schedule.batch_id = batch_.batch_id;
  schedule.cron = every;
  schedule.overlap = flags_.overlap;
  schedule.priority = flags_.priority;
  schedule.next_ms = *next_ms;
  // Fails now, and not at three in the night.
  const absl::StatusOr<LaunchRecord> record =
      WithParameters(source.record, absl::StrCat(batch_.name, "-1"), {});
  if (!record.ok()) return UsageError(record.status().message(), "gpuctl submit --help");
  const bool resumes = batch_.rents && ResumesWhenPreempted(record->spec);
  schedule.resumes = resumes ? record->spec.max_retries : 0;
  schedule.gpus = record->spec.gpus.value_or(-1);
  schedule.launch_json = FormatLaunchRecord(source.record);
  batch_.digest =
      BatchDigest({schedule.launch_json, schedule.cron, schedule.overlap ? "overlap" : ""});
  return absl::OkStatus();
}

absl::Status Submission::MakeEntries(const std::vector<Parameters>& parameters) {
  ASSIGN_OR_RETURN(const std::vector<std::string> after_all, Resolve(flags_.after));
  std::vector<std::string> launches;
  std::map<std::string, std::vector<std::string>> of_source;  // entries, by the source's name
  if (sources_.size() * parameters.size() > kMostEntries) {
    return UsageError(absl::StrCat("a batch has at most ", kMostEntries, " runs, and these are ",
                                   sources_.size() * parameters.size()),
                      "--sample N draws some of the combinations");
  }
  for (const Source& source : sources_) {
    std::vector<std::string> after = after_all, others;
    for (const std::string& name : source.after) {
      const auto earlier = of_source.find(name);
      if (earlier == of_source.end()) others.push_back(name);
      if (earlier != of_source.end()) {
        after.insert(after.end(), earlier->second.begin(), earlier->second.end());
      }
    }
    ASSIGN_OR_RETURN(const std::vector<std::string> resolved, Resolve(others));
    after.insert(after.end(), resolved.begin(), resolved.end());
    for (const Parameters& one : parameters) {
      Entry entry;
      entry.number = static_cast<int>(entries_.size()) + 1;
      entry.name = absl::StrCat(batch_.name, "-", entry.number);
      entry.entry_id = absl::StrCat("e-", RandomHex(6));
      entry.parameters = one;
      entry.priority = flags_.priority;
      entry.after = after;
      absl::StatusOr<LaunchRecord> record = WithParameters(source.record, entry.name, one);
      if (!record.ok()) {
        return UsageError(absl::StrCat(entry.name, ": ", record.status().message()),
                          "gpuctl submit --help");
      }
      const bool resumes = batch_.rents && ResumesWhenPreempted(record->spec);
      entry.resumes = resumes ? record->spec.max_retries : 0;
      entry.gpus = record->spec.gpus.value_or(-1);
      entry.launch_json = FormatLaunchRecord(*record);
      launches.push_back(absl::StrCat(entry.launch_json, absl::StrJoin(source.after, ","), ";",
                                      absl::StrJoin(flags_.after, ",")));
      of_source[source.name].push_back(absl::StrCat("entry:", entry.entry_id));
      entries_.push_back(std::move(entry));
    }
  }
  batch_.digest = BatchDigest(launches);
  return absl::OkStatus();
}

// Each run that was preempted would be resumed on a whole machine of its own.
absl::Status Submission::CheckShared() const {
  if (!batch_.rents || RunsOnOne() == 1) return absl::OkStatus();
  for (const Source& source : sources_) {
    if (ResumesWhenPreempted(source.record.spec)) {
      return UsageError("retry.on: preempted does not go with runs that share a rented machine",
                        "leave it out, or gpus, so that each run has a machine of its own");
    }
  }
  return absl::OkStatus();
}

absl::Status Submission::SetMoney() {
  if (!flags_.max_cost.empty()) {
    const absl::StatusOr<double> cost = ParsePrice(flags_.max_cost);
    if (!cost.ok()) {
      return UsageError(absl::StrCat("--max-cost: ", cost.status().message()),
                        "for example --max-cost 20");
    }
    if (!batch_.rents) {
      return UsageError("--max-cost is for rented machines, and nothing is rented here",
                        "leave it out, or add --provider to rent");
    }
    batch_.max_cost_usd = *cost;
  }
  if (!batch_.rents) return absl::OkStatus();
  // Runs that share machines share what those cost.
  const int on_one = RunsOnOne(), parallel = Parallel();
  for (const Source& source : sources_) {
    const LaunchPlan& plan = source.plan;
    const double price = plan.spec.max_price_usd_per_hour.value_or(PriceOf(plan) * kDearer);
    batch_.agreed_usd_per_hour = std::max(batch_.agreed_usd_per_hour, price);
    const double one = AgreeLimits(plan.spec, price).cost_usd;
    one_usd_ = std::max(one_usd_, one);
    if (schedule_.has_value()) {
      bound_usd_ = *batch_.max_cost_usd;
      continue;
    }
    const int runs = static_cast<int>(entries_.size() / sources_.size());
    // With m machines of k places n runs take at most ⌈n/k⌉ + m - 1 times what one may cost: none
    // starts while a place is free.
    const int machines = (std::min(parallel, runs) + on_one - 1) / on_one;
    bound_usd_ += one * std::min(runs, (runs + on_one - 1) / on_one + machines - 1);
  }
  if (!batch_.max_cost_usd.has_value() || one_usd_ <= *batch_.max_cost_usd) {
    return absl::OkStatus();
  }
  return UsageError(
      absl::StrCat("--max-cost ", FormatUsd(*batch_.max_cost_usd),
                   " does not pay for one run, which may cost ", FormatUsd(one_usd_)),
      "--time, --salvage (how long results wait to be fetched) or --cost limits what one "
      "run may cost");
}

int Submission::RunsOnOne() const {
  int least = 0;
  for (const Source& source : sources_) {
    const RunSpec& spec = source.record.spec;
    const int runs = spec.gpus.has_value() ? RentedGpus(spec) / ShareOfMachine(*spec.gpus) : 1;
    least = least == 0 ? runs : std::min(least, runs);
  }
  return std::max(1, least);
}

int Submission::Parallel() const {
  if (schedule_.has_value() && !schedule_->overlap) return 1;
  if (schedule_.has_value()) return flags_.max_parallel > 0 ? flags_.max_parallel : kMostEntries;
  if (flags_.max_parallel > 0) return flags_.max_parallel;
  const bool shares =
      std::all_of(entries_.begin(), entries_.end(), [](const Entry& one) { return one.gpus >= 0; });
  if (shares && !batch_.rents) return static_cast<int>(entries_.size());
  return std::max({1, static_cast<int>(hosts_.size()), batch_.rents ? RunsOnOne() : 1});
}

std::vector<std::string> Submission::Text() const {
  const size_t count = entries_.size();
  const std::string what =
      schedule_.has_value()
          ? absl::StrCat(DescribeSchedule(*schedule_), schedule_->overlap ? "" : ", one at once")
          : absl::StrCat(count, count == 1 ? " run, " : " runs, ", "at most ", batch_.max_parallel,
                         " at once");
  std::vector<std::string> lines = {absl::StrCat("batch     ", batch_.name, ": ", what)};
  for (size_t i = 0; i < count && i < kShownEntries; ++i) {
    if (entries_[i].parameters.empty()) continue;
    lines.push_back(absl::StrCat("          ", entries_[i].name, "  ",
                                 DescribeParameters(entries_[i].parameters)));
  }
  if (count > kShownEntries && !entries_[0].parameters.empty()) {
    lines.push_back(absl::StrCat("          and ", count - kShownEntries, " more"));
  }
  std::vector<std::string> machines;
  for (const BatchHost& host : hosts_) machines.push_back(host.target_name);
  if (!machines.empty()) {
    lines.push_back(absl::StrCat("machines  ", absl::StrJoin(machines, ", ")));
  }
  lines.push_back("each run:");
  for (const std::string& line : PlanText(first().plan, 0))
    lines.push_back(absl::StrCat("  ", line));
  if (!batch_.rents) return lines;
  lines.push_back(absl::StrCat("machines of up to ", FormatUsd(batch_.agreed_usd_per_hour),
                               " per hour are taken, idle ones of yours first"));
  lines.push_back(absl::StrCat("cost      ", FormatUsd(MostCost()), " at most in all, ",
                               FormatUsd(one_usd_), " at most a run",
                               batch_.max_cost_usd.has_value() ? "" : "; --max-cost limits it"));
  return lines;
}

nlohmann::ordered_json Submission::ToJson() const {
  nlohmann::ordered_json plan = {{"batch", batch_.name},
                                 {"runs", entries_.size()},
                                 {"digest", batch_.digest},
                                 {"max_parallel", batch_.max_parallel},
                                 {"rents", batch_.rents}};
  plan["every"] = schedule_.has_value() ? nlohmann::ordered_json(schedule_->cron) : nullptr;
  plan["next"] =
      schedule_.has_value() ? nlohmann::ordered_json(FormatRfc3339(schedule_->next_ms)) : nullptr;
  plan["cost_usd"] = batch_.rents ? nlohmann::ordered_json(MostCost()) : nullptr;
  plan["each_cost_usd"] = batch_.rents ? nlohmann::ordered_json(one_usd_) : nullptr;
  plan["max_price_usd_per_hour"] =
      batch_.rents ? nlohmann::ordered_json(batch_.agreed_usd_per_hour) : nullptr;
  plan["nodes"] = nlohmann::ordered_json::array();
  for (const BatchHost& host : hosts_) plan["nodes"].push_back(host.target_name);
  plan["entries"] = nlohmann::ordered_json::array();
  for (const Entry& entry : entries_) {
    plan["entries"].push_back(
        {{"entry", entry.name}, {"parameters", ParametersToJson(entry.parameters)}});
  }
  plan["each"] = PlanToJson(first().plan);
  return plan;
}

absl::StatusOr<bool> Agrees(CommandContext& context, const Submission& submission) {
  if (!submission.rents() || submission.flags().launch.yes) return true;
  constexpr absl::string_view kNobody = "submit asks before it rents, and there is nobody to ask";
  constexpr absl::string_view kHint = "add -y to accept the cost, or --dry-run to see it";
  if (!context.CanAsk()) return UsageError(kNobody, kHint);
  for (const std::string& line : submission.Text()) context.Note(line);
  return context.AskYesNo("Submit it?", kNobody, kHint);
}

// Brings the stored batch of the same name and content up to date with the limits that were typed.
absl::Status TakeOver(CommandContext& context, BatchStore& batches, Submission& submission,
                      const Batch& stored) {
  if (stored.digest != submission.batch().digest) {
    return WithExitCode(
        WithHint(
            absl::AlreadyExistsError(absl::StrCat("there is a batch ", stored.name,
                                                  " already, and it runs something else")),
            absl::StrCat("choose another --name; gpuctl queue ", stored.name, " shows that one")),
        kExitUsage);
  }
  Batch wanted = stored;
  const SubmitFlags& flags = submission.flags();
  if (flags.max_parallel > 0) wanted.max_parallel = flags.max_parallel;
  if (!flags.max_cost.empty()) wanted.max_cost_usd = submission.batch().max_cost_usd;
  wanted.rents = stored.rents || submission.rents();
  wanted.agreed_usd_per_hour =
      submission.rents() ? submission.batch().agreed_usd_per_hour : stored.agreed_usd_per_hour;
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

absl::Status PrintSubmitted(CommandContext& context, RunStore& runs, BatchStore& batches,
                            const std::string& name, bool again) {
  ASSIGN_OR_RETURN(const std::vector<BatchView> views,
                   ReadBatches(runs, batches, {name}, /*open_only=*/false));
  if (views.empty()) return absl::NotFoundError(absl::StrCat("batch ", name, " is gone"));
  if (!context.json()) {
    std::vector<std::string> names;
    for (const EntryView& view : views[0].entries) names.push_back(view.entry.name);
    if (views[0].schedule.has_value()) names = {name};
    context.PrintLines(names);
    return absl::OkStatus();
  }
  nlohmann::ordered_json json = BatchToJson(views[0], BatchMoney());
  json["submitted_before"] = again;
  json["entries"] = nlohmann::ordered_json::array();
  for (const EntryView& view : views[0].entries) json["entries"].push_back(EntryToJson(view));
  context.PrintJson({{"submitted", json}});
  return absl::OkStatus();
}

// Says what became of the batch so far, and how it goes on.
absl::Status TellOfBatch(CommandContext& context, RunStore& runs, BatchStore& batches,
                         const std::string& name) {
  ASSIGN_OR_RETURN(std::vector<BatchView> views,
                   ReadBatches(runs, batches, {name}, /*open_only=*/false));
  if (views.empty()) return absl::OkStatus();
  MarkQueued(context, views);
  if (views[0].schedule.has_value()) {
    context.Say(absl::StrCat(name, ": ", DescribeSchedule(*views[0].schedule)));
    context.Hint("gpuctl keep --install starts its runs; with --every 1m they begin on time");
    return absl::OkStatus();
  }
  context.Say(absl::StrCat(name, ": ", DescribeCounts(views[0])));
  if (CountOf(views[0], EntryPhase::kWaiting) > 0) {
    context.Hint(absl::StrCat("gpuctl wait --batch ", name,
                              " goes on with it here; gpuctl keep --install does so by itself"));
  } else {
    context.Hint(absl::StrCat("gpuctl queue ", name, " shows it"));
  }
  return absl::OkStatus();
}

// Says which secrets a later start will not have.
absl::Status TellOfSecrets(CommandContext& context, const RunSpec& spec) {
  ASSIGN_OR_RETURN(const std::vector<std::string> unseen, SecretsNotStored(context, spec));
  for (const std::string& name : unseen) {
    context.Say(
        absl::StrCat("gpuctl keep has none of this shell's variables, and could not start "
                     "runs without secret ",
                     name, ": gpuctl login --secret ", name, " keeps it"));
  }
  return absl::OkStatus();
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
      context.PrintLines(submission.Text());
    }
    return kExitOk;
  }
  ASSIGN_OR_RETURN(const bool agreed, Agrees(context, submission));
  if (!agreed) {
    context.Say("nothing was submitted");
    return kExitFailed;
  }
  const std::string& name = submission.batch().name;
  absl::Status stored = submission.schedule().has_value()
                            ? batches->InsertScheduled(submission.batch(), *submission.schedule())
                            : batches->Insert(submission.batch(), submission.entries());
  const bool again = absl::IsAlreadyExists(stored);
  if (again) {
    ASSIGN_OR_RETURN(const Batch before, batches->Get(name));
    ASSIGN_OR_RETURN(const auto schedules, batches->Schedules());
    const auto schedule = schedules.find(before.batch_id);
    stored = submission.schedule().has_value() && schedule != schedules.end()
                 ? ReplaceSchedule(context, *batches, submission, before, schedule->second)
                 : TakeOver(context, *batches, submission, before);
  }
  RETURN_IF_ERROR(stored);
  RETURN_IF_ERROR(PrintSubmitted(context, *runs, *batches, name, again));
  RETURN_IF_ERROR(TellOfSecrets(context, submission.first().plan.spec));
  const absl::Status passed = MakePass(kPatience).status();
  if (!passed.ok()) context.Say(absl::StrCat("nothing could be started: ", passed.message()));
  if (!context.json()) RETURN_IF_ERROR(TellOfBatch(context, *runs, *batches, name));
  return kExitOk;
}

}  // namespace gpuctl
