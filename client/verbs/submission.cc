#include "client/verbs/submission.h"

#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/base/run_program.h"
#include "client/batch/entry_spec.h"
#include "client/batch/parameters.h"
#include "client/dispatch/dispatch_pass.h"
#include "client/dispatch/due_schedules.h"
#include "client/hosts/resolve_target.h"
#include "client/rent/lease_limits.h"
#include "client/results/pull_files.h"
#include "client/spec/job_spec.h"
#include "client/terminal/shown_name.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {
namespace {

constexpr int64_t kMostCsvBytes = 16 << 20;

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

}  // namespace

// Returns a name that no batch has: the name with a number behind it.
std::string FreeName(BatchStore& batches, const std::string& name) {
  // The runs of a batch NAME are NAME-1 and so on, so the number has no "-" in front.
  const std::string base = name.substr(0, name.find_last_not_of("0123456789") + 1);
  for (int number = 2; number <= kMostEntries; ++number) {
    std::string free = absl::StrCat(base.empty() ? name : base, number);
    if (free != name && absl::IsNotFound(batches.Get(free).status())) return free;
  }
  return "NAME";
}

absl::Status RunsSomethingElse(BatchStore& batches, const Batch& stored, bool replaceable) {
  const std::string other =
      replaceable
          ? "--replace takes that name, and calls off what waits of the one before"
          : absl::StrCat("gpuctl cancel ", stored.name, " calls off what waits of that one");
  return WithExitCode(
      WithHint(absl::AlreadyExistsError(absl::StrCat("there is a batch ", stored.name,
                                                     " already, and it runs something else")),
               absl::StrCat("choose another --name, such as --name ",
                            FreeName(batches, stored.name), "; ", other)),
      kExitUsage);
}

absl::Status Submission::Plan() {
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
  RETURN_IF_ERROR(CheckBefore());
  RETURN_IF_ERROR(PlanArray());
  batch_.max_parallel = Parallel();
  RETURN_IF_ERROR(CheckMachines());
  return SetMoney();
}

// Finds the batch of the same name.
absl::Status Submission::FindBefore() {
  const absl::StatusOr<Batch> stored = batches_.Get(batch_.name);
  if (!stored.ok()) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::vector<BatchView> views,
                   ReadBatches(runs_, batches_, {batch_.name}, /*open_only=*/false));
  if (!views.empty()) before_ = std::move(views.front());
  return absl::OkStatus();
}

// Gives the runs numbers behind those of the batch whose name it takes: a run's name is that of one
// run alone.
absl::Status Submission::NumberOn() {
  int last = 0;
  for (const EntryView& view : before_->entries) last = std::max(last, view.entry.number);
  for (Entry& entry : entries_) {
    entry.number += last;
    entry.name = absl::StrCat(batch_.name, "-", entry.number);
    ASSIGN_OR_RETURN(LaunchRecord record, ParseLaunchRecord(entry.launch_json));
    record.spec.name = entry.name;
    entry.launch_json = FormatLaunchRecord(record);
  }
  return absl::OkStatus();
}

// A schedule may be replaced by other times and another run; a batch only goes on as it is, unless
// another one is to take its place.
absl::Status Submission::CheckBefore() {
  if (!before_.has_value() || (schedule_.has_value() && before_->schedule.has_value())) {
    return absl::OkStatus();
  }
  const bool same = before_->batch.digest == batch_.digest;
  const bool batches = !schedule_.has_value() && !before_->schedule.has_value();
  if (flags_.replace && batches && (!same || before_->over())) {
    replaces_ = true;
    return NumberOn();
  }
  return same ? absl::OkStatus() : RunsSomethingElse(batches_, before_->batch, batches);
}

// A run that is rented for now needs an offer; one that is rented later needs at least a price.
absl::Status Submission::CheckMachines() const {
  if (is_over()) return absl::OkStatus();
  for (const Source& source : sources_) {
    const LaunchPlan& plan = source.plan;
    if (!plan.rents || plan.rental.has_machine()) continue;
    const absl::Status& nothing = plan.rental.nothing_offered;
    if (!RunsLater(source)) return nothing;
    if (plan.spec.max_price_usd_per_hour.has_value()) continue;
    return WithExitCode(
        WithHint(absl::NotFoundError(
                     absl::StrCat(nothing.message(), "; so there is no price to agree to")),
                 "--max-price USD says what a machine may cost an hour when its time comes"),
        kExitCapacity);
  }
  return absl::OkStatus();
}

// True when nothing is rented for it at the moment of the submit.
bool Submission::RunsLater(const Source& source) const {
  return !source.after.empty() || !flags_.after.empty() || !source.every.empty() ||
         !flags_.every.empty();
}

absl::Status Submission::ReadHosts() {
  if (!flags_.launch.on.empty()) {
    if (!flags_.hosts.empty()) flags_.launch.target.host = flags_.hosts.front();
    RETURN_IF_ERROR(CheckOnFlags(flags_.launch));
    ASSIGN_OR_RETURN(on_, FindMachineOf(context_, holdings_, runs_, flags_.launch.on));
    BatchHost host;
    host.target_name = on_->target.name;
    const bool local = on_->target.provider == "local";
    host.host = local ? "local" : absl::StrCat(kOnMachine, host.target_name);
    hosts_.push_back(std::move(host));
    return absl::OkStatus();
  }
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
  // Each task of an array gets an allocation of its own.
  flags.fresh = flags_.array;
  Settings settings;
  ASSIGN_OR_RETURN(RunSpec spec, BuildRunSpec(context_, flags, /*like=*/nullptr, &settings));
  Source& source = sources_.emplace_back();
  source.file = file;
  source.name = spec.name;
  if (source.name.empty() && !file.empty()) {
    source.name = BaseName(file);
    source.name.resize(std::min(source.name.size(), source.name.rfind('.')));
  }
  source.after = std::exchange(spec.after, {});
  source.every = std::exchange(spec.every, "");
  if (sources_.size() == 1) {
    batch_.name = !flags_.name.empty()   ? flags_.name
                  : !source.name.empty() ? source.name.substr(0, kLongestBatchName)
                                         : NewReadableName();
    RETURN_IF_ERROR(FindBefore());
  }
  // A batch that was submitted before is compared first; whether it needs an offer comes later.
  flags.later = before_.has_value() || RunsLater(source);
  const bool to_rent = hosts_.empty() || !flags.resources.providers.empty();
  if (!to_rent && !on_.has_value()) {
    const BatchHost& host = hosts_.front();
    flags.target.host = host.host == "local" ? "" : host.host;
    if (host.host == "local") spec.providers = {"local"};
  }
  std::vector<NodeTarget> machines;
  if (on_.has_value()) machines.push_back(on_->target);
  if (spec.nodes > 1) {
    return UsageError("nodes: the runs of a batch take one machine each",
                      "gpuctl launch starts one run on several");
  }
  ASSIGN_OR_RETURN(source.plan, PlanLaunch(context_, holdings_, flags, std::move(spec), machines,
                                           /*resume=*/{}, std::move(settings)));
  // What is lost with the machine is told as for a rented one.
  if (on_.has_value()) source.plan.joined = on_->lease;
  ASSIGN_OR_RETURN(source.record, ParseLaunchRecord(source.plan.row.launch_json));
  // What was typed for all is a limit of the batch, which a later submit may change.
  if (!flags.resources.max_price.empty()) source.record.spec.max_price_usd_per_hour.reset();
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
  // As launch does: the batch would wait for ever.
  if (!source.record.spec.gpu.empty() && FindInPath("nvidia-smi").empty()) {
    return CheckNodeSatisfies(source.record.spec, gpuctl::v1::HelloReply(),
                              source.plan.own_machine.name);
  }
  BatchHost own;
  own.host = "local";
  own.target_name = source.plan.own_machine.name;
  hosts_.push_back(std::move(own));
  return absl::OkStatus();
}

absl::Status Submission::MakeBatch() {
  batch_.batch_id = absl::StrCat("b-", RandomHex(6));
  batch_.created_ms = context_.NowMs();
  batch_.tags = flags_.launch.tags;
  batch_.max_failures = flags_.max_failures;
  const std::string tag = absl::StrCat("batch:", batch_.name);
  // Its runs have this tag.
  if (!CheckTags({tag}).ok()) {
    return UsageError(absl::StrCat("--name: \"", batch_.name,
                                   "\": use up to 48 letters, digits, '-', '_' and '.'"),
                      "for example --name sweep-2");
  }
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
      entry.file = source.file;
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
      std::vector<std::string>& names = after_.emplace_back(source.after);
      names.insert(names.end(), flags_.after.begin(), flags_.after.end());
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
  double least_usd = 0;
  for (const Source& source : sources_) {
    const LaunchPlan& plan = source.plan;
    const double price = PriceLimitOf(plan);
    batch_.agreed_usd_per_hour = std::max(batch_.agreed_usd_per_hour, price);
    const LeaseLimits limits = AgreeLimits(plan.spec, price);
    const double one = limits.cost_usd,
                 salvage = PartsOfCost(limits, price, plan.spec.grace).salvage_usd;
    if (one > one_usd_)
      one_usd_ = one, one_limits_ = limits, one_usd_per_hour_ = price, one_grace_ = plan.spec.grace;
    // An idle machine costs what it costs already.
    const bool idle = plan.rental.idle.has_value();
    least_usd = std::max(least_usd, idle ? AgreeLimits(plan.spec, PriceOf(plan)).cost_usd : one);
    if (schedule_.has_value()) {
      bound_usd_ = *batch_.max_cost_usd;
      continue;
    }
    const int runs = static_cast<int>(entries_.size() / sources_.size());
    // With m machines of k places n runs take at most ⌈n/k⌉ + m - 1 times what one may cost: none
    // starts while a place is free.
    const int machines = (std::min(parallel, runs) + on_one - 1) / on_one;
    const int times = std::min(runs, (runs + on_one - 1) / on_one + machines - 1);
    bound_usd_ += one * times;
    bound_salvage_usd_ += salvage * times;
  }
  if (!batch_.max_cost_usd.has_value() || least_usd <= *batch_.max_cost_usd) {
    return absl::OkStatus();
  }
  return UsageError(
      absl::StrCat("--max-cost ", FormatUsd(*batch_.max_cost_usd),
                   " does not pay for one run, which may cost ", FormatUsd(least_usd)),
      "--time, --salvage (how long results wait to be fetched) or --cost limits what one "
      "run may cost");
}

bool Submission::AgreedBefore() const {
  if (!before_.has_value() || before_->schedule.has_value() != schedule_.has_value()) return false;
  const Batch& stored = before_->batch;
  if (stored.digest != batch_.digest || stored.rents != batch_.rents || replaces_) return false;
  if (schedule_.has_value() && before_->schedule->ended) return false;
  const bool more_money = !flags_.max_cost.empty() && stored.max_cost_usd.has_value() &&
                          *batch_.max_cost_usd > *stored.max_cost_usd;
  // What machines cost now does not matter: without --max-price the stored limit stays.
  const bool dearer = !flags_.launch.resources.max_price.empty() &&
                      batch_.agreed_usd_per_hour > stored.agreed_usd_per_hour;
  return !more_money && !dearer && flags_.max_parallel <= stored.max_parallel;
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
  if (batch_.array) return std::max<int>(1, static_cast<int>(entries_.size()));
  const bool shares =
      std::all_of(entries_.begin(), entries_.end(), [](const Entry& one) { return one.gpus >= 0; });
  if (shares && !batch_.rents) return static_cast<int>(entries_.size());
  return std::max({1, static_cast<int>(hosts_.size()), batch_.rents ? RunsOnOne() : 1});
}

}  // namespace gpuctl
