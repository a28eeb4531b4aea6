#include "client/dispatch/start_array.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/base/exit_codes.h"
#include "client/base/paths.h"
#include "client/dispatch/start_entry.h"
#include "client/plan/launch_plan.h"
#include "client/rent/interruptible_hooks.h"
#include "client/rent/lease_limits.h"
#include "client/rent/machine_options.h"
#include "client/spec/launch_record.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/process/process.h"
#include "common/release/slurm_job.h"
#include "provisioning/market/label.h"
#include "provisioning/markets.h"
#include "provisioning/rental/rent_array.h"

namespace gpuctl {
namespace {

constexpr size_t kTasksAtOnce = 8;
constexpr absl::Duration kLookAtTasksEvery = absl::Milliseconds(30);
// Descriptors that this process needs beside one for each task's lock.
constexpr rlim_t kOtherDescriptors = 64;

// Returns for how many locks this process has descriptors, after it has asked for as many as it may
// have.
int MostLocks() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 128;
  const rlim_t wanted = kMostTasks + kOtherDescriptors;
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = limit.rlim_max == RLIM_INFINITY ? wanted : std::min(wanted, limit.rlim_max);
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    (void)getrlimit(RLIMIT_NOFILE, &limit);
  }
  const rlim_t most = limit.rlim_cur > kOtherDescriptors ? limit.rlim_cur - kOtherDescriptors : 1;
  return static_cast<int>(std::min<rlim_t>(most, kMostTasks));
}

// Starts entries on the tasks of one array, several at a time.
class TaskStarts {
 public:
  TaskStarts(CommandContext& context, Ledger& ledger, Provider& provider, std::string state_dir)
      : context_(context), ledger_(ledger), provider_(provider), state_dir_(std::move(state_dir)) {}

  void Begin(const Entry& entry, Rental rental) {
    while (running_.size() >= kTasksAtOnce) Wait();
    const absl::StatusOr<pid_t> pid = Spawn(entry, rental);
    if (!pid.ok()) {
      context_.Warn(absl::StrCat(entry.name, ": ", pid.status().message()));
      return GiveBack(rental);
    }
    running_.emplace(*pid, std::move(rental));
  }

  void Finish() {
    while (!running_.empty()) Wait();
  }

  // Ends a task that no entry took. One that a node has claimed is its run's.
  void GiveBack(const Rental& rental) {
    const absl::StatusOr<Lease> lease = ledger_.Get(rental.lease.lease_id);
    if (!lease.ok() || lease->state != LeaseState::kRented || lease->claimed_ms > 0) return;
    ReleaseOptions release;
    release.how = "of no use";
    release.lock = &rental.lock;
    const absl::Status ended =
        Release(ledger_, provider_, lease->lease_id, context_.clock, {}, release).status();
    if (!ended.ok()) context_.Warn(ended.message());
  }

 private:
  // The lock goes to the process as its stdin.
  absl::StatusOr<pid_t> Spawn(const Entry& entry, const Rental& rental) {
    SpawnOptions options;
    options.argv = {ExecutablePath(), "queue",  "--start-entry",
                    entry.entry_id,   "--task", rental.lease.lease_id};
    options.stdin_fd = rental.lock.fd();
    options.new_session = true;
    const std::string log_path = EntryLogPath(state_dir_, entry.entry_id);
    RETURN_IF_ERROR(MakeDirectories(DirName(log_path)));
    const UniqueFd log(file_ops::Open(log_path, O_WRONLY | O_CREAT | O_APPEND, 0600));
    options.stderr_fd = log.get();
    return gpuctl::Spawn(options);
  }

  void Wait() {
    bool any = false;
    for (auto one = running_.begin(); one != running_.end();) {
      int status = 0;
      if (waitpid(one->first, &status, WNOHANG) != one->first) {
        ++one;
        continue;
      }
      GiveBack(one->second);
      one = running_.erase(one);
      any = true;
    }
    if (!any) context_.clock.SleepFor(kLookAtTasksEvery);
  }

  CommandContext& context_;
  Ledger& ledger_;
  Provider& provider_;
  const std::string state_dir_;
  std::map<pid_t, Rental> running_;
};

class ArrayStarter {
 public:
  ArrayStarter(CommandContext& context, Holdings& holdings, BatchStore& batches, Batch batch,
               std::vector<Entry> entries)
      : context_(context),
        holdings_(holdings),
        batches_(batches),
        batch_(std::move(batch)),
        entries_(std::move(entries)) {}

  absl::Status Start() {
    const absl::Status started = StartAll();
    return started.ok() ? started : Failed(started);
  }

 private:
  absl::Status StartAll() {
    ASSIGN_OR_RETURN(const ClientPaths paths, context_.Paths());
    LaunchFlags flags;
    ASSIGN_OR_RETURN(const LaunchPlan plan, Plan(flags));
    if (plan.rental.in_order.empty()) return plan.rental.nothing_offered;
    ASSIGN_OR_RETURN(Ledger* const ledger, holdings_.OpenLedger());
    Provider& provider = *plan.rental.markets.front().provider;
    ASSIGN_OR_RETURN(const int most, provider.MostInArray());
    RETURN_IF_ERROR(EndLeftOver(*ledger, provider));
    const bool limited = batch_.max_parallel < static_cast<int>(entries_.size());
    size_t done = 0;
    while (done < entries_.size()) {
      const int left = static_cast<int>(entries_.size() - done);
      const int count = std::min({left, most, MostLocks()});
      ASSIGN_OR_RETURN(std::vector<Rental> tasks,
                       Rent(*ledger, provider, plan, count, limited ? batch_.max_parallel : 0));
      TaskStarts starts(context_, *ledger, provider, paths.state_dir);
      for (Rental& task : tasks) {
        // An entry for each, as long as there are any.
        if (done < entries_.size()) {
          starts.Begin(entries_[done++], std::move(task));
        } else {
          starts.GiveBack(task);
        }
      }
      starts.Finish();
      // Another one would run as many at once again.
      if (limited) break;
    }
    return absl::OkStatus();
  }

  // Ends the tasks of earlier starts of these entries, which came to nothing: a task serves one
  // run.
  absl::Status EndLeftOver(Ledger& ledger, Provider& provider) {
    ASSIGN_OR_RETURN(const std::vector<Attempt> attempts, batches_.Attempts(batch_.batch_id));
    for (const Attempt& attempt : attempts) {
      const bool ours = std::any_of(
          entries_.begin(), entries_.end(),
          [&attempt](const Entry& entry) { return entry.entry_id == attempt.entry_id; });
      if (!ours) continue;
      ASSIGN_OR_RETURN(const std::optional<Lease> lease, holdings_.LeaseOf(attempt.run_id));
      if (!lease.has_value() || !lease->open() ||
          !EndsWithItsRun(lease->provider, lease->instance_id)) {
        continue;
      }
      ReleaseOptions release;
      release.how = "of no use";
      RETURN_IF_ERROR(
          Release(ledger, provider, lease->lease_id, context_.clock, {}, release).status());
    }
    return absl::OkStatus();
  }

  // Plans the first run, for the allocation that all of them need.
  absl::StatusOr<LaunchPlan> Plan(LaunchFlags& flags) {
    ASSIGN_OR_RETURN(LaunchRecord record, ParseLaunchRecord(entries_.front().launch_json));
    flags.include = record.include;
    flags.leave_out = record.leave_out;
    flags.no_workdir = record.no_workdir;
    flags.detach = flags.yes = flags.fresh = flags.dry_run = true;
    return PlanLaunch(context_, holdings_, flags, std::move(record.spec), /*machines=*/{},
                      /*resume=*/{});
  }

  // Rents `count` tasks, or as many fewer as the account may submit now.
  absl::StatusOr<std::vector<Rental>> Rent(Ledger& ledger, Provider& provider,
                                           const LaunchPlan& plan, int count, int at_once) {
    RentedNodeRequest request;
    request.spec = &plan.spec;
    LeaseTerms terms;
    terms.offer = plan.rental.in_order.front();
    ASSIGN_OR_RETURN(terms.limits, LimitsWithin(plan.spec, terms.offer.price_usd_per_hour,
                                                AgreeLimits(plan.spec, PriceOf(plan)).cost_usd));
    terms.purpose = absl::StrCat("a task of batch ", batch_.name);
    terms.run_gpus = GpusOfUse(plan.spec);
    const InterruptibleHooks interrupt(context_);
    while (true) {
      ASSIGN_OR_RETURN(const RentOptions options,
                       MachineOptions(context_, provider, terms.offer, request, terms.limits));
      absl::StatusOr<std::vector<Rental>> tasks =
          RentArray(ledger, provider, terms, count, at_once < count ? at_once : 0, options,
                    context_.clock, interrupt.hooks());
      if (!absl::IsResourceExhausted(tasks.status()) || count == 1) return tasks;
      context_.Say(absl::StrCat("an array of ", count, " is refused, so half of that is tried: ",
                                tasks.status().message()));
      count /= 2;
    }
  }

  // Lets the batch wait, and says why.
  absl::Status Failed(const absl::Status& why) {
    context_.Warn(absl::StrCat(batch_.name, ": ", why.message()));
    const auto market = std::find_if(batch_.hosts.begin(), batch_.hosts.end(),
                                     [](const BatchHost& host) { return host.host.empty(); });
    const int failures = market == batch_.hosts.end() ? 0 : market->failures;
    return batches_.SetHost(batch_.batch_id, "", why.message(),
                            NextTryMs(context_.NowMs(), failures), failures + 1);
  }

  CommandContext& context_;
  Holdings& holdings_;
  BatchStore& batches_;
  const Batch batch_;
  const std::vector<Entry> entries_;
};

}  // namespace

std::string DescribeArray(const Lease& lease) {
  if (!EndsWithItsRun(lease.provider, lease.instance_id)) return "";
  return absl::StrCat("submitted array ", ParseSlurmJob(lease.instance_id)->number, " at ",
                      lease.provider);
}

std::string ArrayLockPath(absl::string_view state_dir, absl::string_view batch_id) {
  return EntryLockPath(state_dir, absl::StrCat(batch_id, ".array"));
}

absl::Status StartArray(CommandContext& context, Holdings& holdings, BatchStore& batches,
                        const std::vector<std::string>& entry_ids) {
  std::vector<Entry> waiting;
  for (const std::string& entry_id : entry_ids) {
    ASSIGN_OR_RETURN(std::optional<Entry> entry, batches.FindEntry(entry_id));
    if (entry.has_value()) waiting.push_back(*std::move(entry));
  }
  if (waiting.empty()) return absl::OkStatus();
  const std::string batch_id = waiting.front().batch_id;
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  const std::string lock_path = ArrayLockPath(paths.state_dir, batch_id);
  RETURN_IF_ERROR(MakeDirectories(DirName(lock_path)));
  absl::StatusOr<UniqueFd> lock = TryRemovableLock(lock_path);
  if (absl::IsUnavailable(lock.status())) return absl::OkStatus();
  RETURN_IF_ERROR(lock.status());
  const absl::Cleanup done = [&] { RemoveLock(*std::move(lock), lock_path); };
  // Under the lock: whoever had it before may have started them.
  std::vector<Entry> entries;
  for (const Entry& one : waiting) {
    ASSIGN_OR_RETURN(std::optional<Entry> entry, batches.FindEntry(one.entry_id));
    const bool ours =
        entry.has_value() && entry->state == EntryState::kWaiting && entry->batch_id == batch_id;
    if (ours) entries.push_back(*std::move(entry));
  }
  if (entries.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(Batch batch, batches.WithId(batch_id));
  return ArrayStarter(context, holdings, batches, std::move(batch), std::move(entries)).Start();
}

}  // namespace gpuctl
