#include "client/launch/gang_launch.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/follow/members.h"
#include "client/launch/launch.h"
#include "client/launch/member_results.h"
#include "client/launch/push_plan.h"
#include "client/launch/share_content.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/results/pull_files.h"
#include "client/show/show_run.h"
#include "client/spec/job_spec.h"
#include "client/streams/mirror.h"
#include "client/terminal/console.h"
#include "client/trainer/trainer_choice.h"
#include "client/transfer/transfer_bar.h"
#include "client/transfer/transfer_interrupt.h"
#include "common/base/at_once.h"
#include "common/base/ids.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/job/gang_key.h"
#include "common/job/job_layout.h"
#include "common/transfer/error_detail.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

constexpr int kKeyBytes = 32;
constexpr int kGangIdBytes = 6;
// The number of machines to which connections and content go at once.
constexpr size_t kAtOnce = 8;
// A time from which on a person wants to know where it went.
constexpr absl::Duration kWorthTelling = absl::Seconds(1);
// The time that must be saved for the others to take large content from the first machine.
constexpr absl::Duration kWorthSharing = absl::Seconds(10);

// A machine with its part of the run.
struct Part {
  RunRow row;
  std::unique_ptr<LaunchPlan> own_plan;  // null: the plan of all
  gpuctl::v1::StartJobRequest start;
  std::optional<ChosenTrainer> trainer;
  std::unique_ptr<LinkFactory> links;
  std::unique_ptr<NodeCalls> calls;
  bool asked = false;     // its node may have the job
  bool accepted = false;  // its node has it
  int gpus = 0;           // that its machine has
};

// The progress of several pushes as one line.
class SharedBar {
 public:
  SharedBar(CommandContext& context, size_t machines)
      : bar_(context, absl::StrCat("sending to ", machines, " machines"), /*quiet=*/false) {}

  // Any thread may call it.
  void Update(size_t machine, const std::string& what, const TransferCount& count) {
    const MutexLock lock(mutex_);
    counts_[{machine, what}] = count;
    bar_.Update(Sum());
  }
  int64_t SentBytes() {
    const MutexLock lock(mutex_);
    return Sum().bytes;
  }
  int64_t Finish() {
    const MutexLock lock(mutex_);
    bar_.Finish();
    return Sum().bytes;
  }

 private:
  TransferCount Sum() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    TransferCount sum;
    for (const auto& [of, count] : counts_) {
      sum.bytes += count.bytes;
      sum.total_bytes += count.total_bytes;
      sum.files += count.files;
      sum.total_files += count.total_files;
    }
    return sum;
  }

  Mutex mutex_;
  TransferBar bar_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<size_t, std::string>, TransferCount> counts_ ABSL_GUARDED_BY(mutex_);
};

class GangLauncher {
 public:
  GangLauncher(CommandContext& context, RunStore& store, const LaunchFlags& flags,
               const LaunchPlan& plan, const std::vector<NodeTarget>& machines,
               const GangHooks& hooks, bool* all_came)
      : context_(context),
        store_(store),
        flags_(flags),
        plan_(plan),
        machines_(machines),
        hooks_(hooks),
        all_came_(all_came) {}

  absl::StatusOr<int> Run() {
    RETURN_IF_ERROR(Bring());
    ASSIGN_OR_RETURN(const ClientPaths paths, context_.Paths());
    // Held until the jobs are there: another gpuctl does not take the launch for dead.
    ASSIGN_OR_RETURN(std::shared_ptr<Mirror> mirror, Mirror::Open(paths.MirrorDir(plan_.row.run_id),
                                                                  plan_.row.output_segment_bytes));
    if (const absl::Status started = Start(); !started.ok()) {
      mirror.reset();
      return TakeBack(started, paths);
    }
    mirror.reset();
    return Show();
  }

 private:
  // Reaches all machines and brings the content there, at several of them at a time.
  absl::Status Bring() {
    RETURN_IF_ERROR(MakeParts());
    ASSIGN_OR_RETURN(
        const auto interrupt,
        TransferInterrupt::Install(
            context_, "launch",
            hooks_.give_back ? "nothing was started"
                             : "nothing was started, and what was sent stays there",
            hooks_.give_back ? "" : "the same command goes on with the rest", hooks_.give_back));
    RETURN_IF_ERROR(AtAll([this](Part& part) { return Connect(part); }));
    RETURN_IF_ERROR(CheckProcesses());
    RETURN_IF_ERROR(ChooseTrainers());
    for (Part& part : parts_) Seal(part);
    return Push();
  }

  // With a process for each GPU the ranks add up only where all machines have as many.
  absl::Status CheckProcesses() const {
    const bool counts = plan_.job.processes() == kOneForEachGpu &&
                        plan_.job.env().count("CUDA_VISIBLE_DEVICES") == 0;
    for (const Part& part : parts_) {
      if (!counts || part.gpus == parts_.front().gpus) continue;
      return UsageError(absl::StrCat("processes: gpus starts as many on each machine, and ",
                                     parts_.front().row.target.name, " has ", parts_.front().gpus,
                                     " GPUs, ", part.row.target.name, " has ", part.gpus),
                        "name a number: processes: 2, and gpus: 2 below resources:");
    }
    return absl::OkStatus();
  }

  // Does `work` with all machines, several at a time, and with no further one after an error. An
  // error names its machine; returns that of the lowest rank and says the others.
  absl::Status AtAll(const std::function<absl::Status(Part&)>& work) {
    std::vector<absl::Status> results(parts_.size());
    std::atomic<bool> failed{false};
    ForEachAtOnce(parts_.size(), kAtOnce, [&](size_t rank) {
      if (failed) return;
      results[rank] = work(parts_[rank]);
      if (!results[rank].ok()) failed = true;
    });
    absl::Status first;
    for (size_t rank = 0; rank < results.size(); ++rank) {
      if (results[rank].ok()) continue;
      // Errors of a connection name the machine already.
      const std::string& name = parts_[rank].row.target.name;
      const bool named = absl::StrContains(results[rank].message(), name);
      const absl::Status error = named ? results[rank] : Annotate(results[rank], name);
      if (first.ok()) {
        first = error;
      } else {
        context_.Warn(error.message());
      }
    }
    return first;
  }

  absl::Status Connect(Part& part) {
    ASSIGN_OR_RETURN(NodeCalls calls, NodeCalls::Connect(context_, *part.links, part.row.target));
    part.calls = std::make_unique<NodeCalls>(std::move(calls));
    const bool gpus_matter = !plan_.spec.gpu.empty() || plan_.trainer.has_value() ||
                             plan_.job.processes() == kOneForEachGpu;
    ASSIGN_OR_RETURN(const gpuctl::v1::HelloReply hello,
                     gpus_matter ? part.calls->HelloWithGpus(context_.clock) : part.calls->Hello());
    RETURN_IF_ERROR(CheckNodeSatisfies(plan_.spec, hello, part.row.target.name));
    part.gpus = hello.gpus_size();
    part.row.node_id = hello.node_id();
    part.start.set_expected_node_id(hello.node_id());
    return absl::OkStatus();
  }

  absl::Status MakeParts() {
    const std::string gang_id = absl::StrCat("g-", RandomHex(kGangIdBytes));
    const std::string key = absl::HexStringToBytes(RandomHex(kKeyBytes));
    gpuctl::v1::Gang gang;
    gang.set_id(gang_id);
    gang.set_size(static_cast<int>(machines_.size()));
    gang.set_epoch(1);
    for (const NodeTarget& machine : machines_) gang.add_names(machine.name);
    for (int rank = 0; rank < gang.size(); ++rank) {
      Part part;
      part.row = plan_.row;
      part.row.target = machines_[static_cast<size_t>(rank)];
      if (rank > 0) {
        part.row.run_id = plan_.member_ids[static_cast<size_t>(rank) - 1];
        part.row.job_id = NewJobId();
        part.row.leader = plan_.row.run_id;
        part.row.rank = rank;
        part.row.tags.clear();
        part.row.source_diff.clear();
      }
      if (!plan_.starts.empty()) {
        part.own_plan = std::make_unique<LaunchPlan>(PlanOfPart(plan_, rank));
      }
      gpuctl::v1::JobSpec& job = *part.start.mutable_spec();
      job = PlanOf(part).job;
      job.set_job_id(part.row.job_id);
      gang.set_rank(rank);
      *job.mutable_gang() = gang;
      for (const auto& [name, value] : plan_.secrets) (*part.start.mutable_secrets())[name] = value;
      part.start.mutable_gang()->set_key(GangKeyOfRank(key, rank));
      ASSIGN_OR_RETURN(part.links, MakeLinks(context_, part.row.target));
      parts_.push_back(std::move(part));
    }
    return absl::OkStatus();
  }

  // Each machine may need another one: its processor and its torch decide.
  absl::Status ChooseTrainers() {
    if (!plan_.trainer.has_value()) return absl::OkStatus();
    for (Part& part : parts_) {
      TrainerNode node{part.row.target.name, /*local=*/false, part.gpus, part.links->platform()};
      ASSIGN_OR_RETURN(part.trainer,
                       ChooseTrainer(context_, *part.links, plan_.spec, *plan_.trainer, node));
    }
    return absl::OkStatus();
  }

  // Completes the machine's job, which does not change from here on.
  void Seal(Part& part) const {
    gpuctl::v1::JobSpec& job = *part.start.mutable_spec();
    CompleteJob(PlanOf(part), part.row.target, TrainerOf(part), job);
    const StoredSpec stored{SpecDigest(job), job};
    part.row.spec_json = FormatStoredSpec(stored);
    part.start.set_spec_digest(stored.spec_digest);
  }

  // All content is there before a job is: rank 0 waits a minute for the others.
  absl::Status Push() {
    if (!plan_.workdir.has_value() && plan_.data.empty() && !plan_.trainer.has_value()) {
      return absl::OkStatus();
    }
    SharedBar bar(context_, parts_.size());
    const absl::Duration begin = context_.clock.SinceBoot();
    const absl::Status pushed = PushWith(bar);
    const absl::Duration took = context_.clock.SinceBoot() - begin;
    const int64_t bytes = bar.Finish();
    RETURN_IF_ERROR(pushed);
    if (bytes > 0 && took >= kWorthTelling) {
      context_.Say(absl::StrCat("sent ", FormatBytes(bytes), " to ", parts_.size(), " machines in ",
                                HumanDuration(took)));
    }
    return absl::OkStatus();
  }

  // Small content goes to all machines at once. Else the first one gets it alone: the nodes of an
  // allocation share what it leaves on their file system, and others take it from the first one
  // where that saves more than a few seconds of the line from here.
  absl::Status PushWith(SharedBar& bar) {
    const auto push = [&](Part& part) { return PushShowing(part, bar); };
    if (ContentOf(PlanOf(parts_.front()), TrainerOf(parts_.front())).bytes < kLargeBytes)
      return AtAll(push);
    const absl::Duration begin = context_.clock.SinceBoot();
    RETURN_IF_ERROR(push(parts_.front()));
    const absl::Duration took = context_.clock.SinceBoot() - begin;
    const bool was_there = bar.SentBytes() == 0;
    const absl::Duration saves = took * static_cast<int64_t>(parts_.size() - 1);
    const bool allocation = parts_.front().row.target.provider == kClusterProvider;
    if (!allocation && (was_there || saves > kWorthSharing)) Share();
    const absl::Status pushed = AtAll(push);
    // It stays on the cluster's file system no longer than it is needed.
    const absl::Status taken =
        allocation ? PushTo(
                         parts_.front(), [](const std::string&, const TransferCount&) {},
                         /*others_follow=*/false)
                   : absl::OkStatus();
    RETURN_IF_ERROR(pushed);
    return taken;
  }

  absl::Status PushShowing(Part& part, SharedBar& bar) {
    const auto rank = static_cast<size_t>(part.row.rank);
    const auto observe = [&bar, rank](const std::string& what, const TransferCount& count) {
      bar.Update(rank, what, count);
    };
    return Annotate(PushTo(part, observe, /*others_follow=*/true),
                    absl::StrCat("to ", part.row.target.name));
  }

  // Lets the others take the content from the first machine. What one does not get that way, it
  // gets from here.
  void Share() {
    std::vector<Taker> takers;
    for (size_t rank = 1; rank < parts_.size(); ++rank) {
      Part& part = parts_[rank];
      takers.push_back(
          {part.links.get(), part.row.target.name, TreesOfFirst(part), absl::OkStatus()});
    }
    const std::string& first = parts_.front().row.target.name;
    const absl::Status shared = ShareContent(*parts_.front().links, takers);
    if (!shared.ok()) {
      context_.Say(absl::StrCat(first,
                                " cannot give the content to the others, so all of it goes "
                                "from here: ",
                                shared.message()));
      return;
    }
    for (const Taker& taker : takers) {
      if (taker.result.ok()) continue;
      context_.Say(absl::StrCat(taker.name, " does not get the content from ", first,
                                ", but from here: ", taker.result.message()));
    }
  }

  absl::Status PushTo(Part& part, const PushObserver& observe, bool others_follow) {
    return PushPlan(context_, *part.links, part.row.target, PlanOf(part), flags_, TrainerOf(part),
                    observe, others_follow);
  }

  const LaunchPlan& PlanOf(const Part& part) const {
    return part.own_plan == nullptr ? plan_ : *part.own_plan;
  }

  // Returns the trees of the part that the first machine has, too.
  std::vector<std::string> TreesOfFirst(const Part& part) const {
    const std::vector<std::string> there =
        ContentOf(PlanOf(parts_.front()), TrainerOf(parts_.front())).trees;
    std::vector<std::string> trees = ContentOf(PlanOf(part), TrainerOf(part)).trees;
    trees.erase(std::remove_if(trees.begin(), trees.end(),
                               [&there](const std::string& tree) {
                                 return std::find(there.begin(), there.end(), tree) == there.end();
                               }),
                trees.end());
    return trees;
  }

  static const ChosenTrainer* TrainerOf(const Part& part) {
    return part.trainer.has_value() ? &*part.trainer : nullptr;
  }

  absl::Status Start() {
    std::vector<RunRow*> members;
    for (Part& part : parts_) {
      if (part.row.rank > 0) members.push_back(&part.row);
    }
    // From here on the run exists, even if this process ends.
    RETURN_IF_ERROR(store_.InsertAll(parts_.front().row, members));
    for (const Part& part : parts_) hooks_.on_listed(part.row);
    context_.Say(Announcement());
    const InterruptWord word(
        absl::StrCat("interrupted; the machines of ", parts_.front().row.name,
                     " end by themselves within a minute what has not begun; gpuctl attach ",
                     parts_.front().row.name, " shows how it ended"));
    gpuctl::v1::GangPlace place;
    RETURN_IF_ERROR(StartOne(parts_.front(), place));
    if (place.port() == 0) {
      return absl::UnavailableError(absl::StrCat("the node of ", parts_.front().row.target.name,
                                                 " does not bring the others together"));
    }
    const absl::Status started = AtAll([&](Part& part) {
      gpuctl::v1::GangPlace met = place;
      return part.row.rank == 0 ? absl::OkStatus() : StartOne(part, met);
    });
    // Also of those that were started beside one that failed.
    for (const Part& part : parts_) {
      if (!part.accepted) continue;
      RETURN_IF_ERROR(store_.SetAccepted(part.row.run_id, part.row.node_id, context_.NowMs()));
    }
    return started;
  }

  // Gives the machine its part, which its node holds; sets `place` to where the others go.
  absl::Status StartOne(Part& part, gpuctl::v1::GangPlace& place) {
    *part.start.mutable_gang()->mutable_place() = place;
    part.asked = true;
    absl::StatusOr<gpuctl::v1::Job> job = part.calls->StartJob(part.start);
    if (DetailOf(job.status()).kind() == gpuctl::v1::ErrorDetail::KIND_CONTENT_MISSING) {
      RETURN_IF_ERROR(PushTo(
          part, [](const std::string&, const TransferCount&) {},
          /*others_follow=*/false));
      job = part.calls->StartJob(part.start);
    }
    RETURN_IF_ERROR(job.status());
    part.accepted = true;
    place = job->gang();
    return absl::OkStatus();
  }

  std::string Announcement() const {
    std::string text = absl::StrCat("launching ", parts_.front().row.name, " on ");
    for (const Part& part : parts_) {
      absl::StrAppend(&text, &part == &parts_.front() ? "" : ", ", part.row.target.name);
    }
    return text;
  }

  // Ends what was begun. Where all of it is known to be gone, the run is as if it had never been.
  absl::Status TakeBack(const absl::Status& why, const ClientPaths& paths) {
    context_.Say(absl::StrCat("ending what was begun, because ", why.message()));
    std::atomic<bool> all_gone{true};
    ForEachAtOnce(parts_.size(), kAtOnce, [&](size_t rank) {
      Part& part = parts_[rank];
      if (!part.asked) return;
      const absl::Status stopped =
          part.calls->StopJob(part.row.job_id, "user", part.row.node_id).status();
      const bool gone = stopped.ok() || absl::IsNotFound(stopped);
      if (!gone) all_gone = false;
      // A machine that does not answer is not asked a second time.
      if (gone) (void)part.calls->RemoveJob(part.row.job_id, /*dry_run=*/false);
    });
    if (!all_gone) {
      return WithHint(Annotate(why, absl::StrCat("launch ", parts_.front().row.name)),
                      absl::StrCat("its machines end by themselves within a minute what has not "
                                   "begun; gpuctl attach ",
                                   parts_.front().row.name, " shows how it ended"));
    }
    for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
      RETURN_IF_ERROR(store_.Delete(part->row.run_id));
      (void)RemoveTree(paths.MirrorDir(part->row.run_id));
    }
    return Annotate(why, "nothing was started");
  }

  absl::StatusOr<int> Show() {
    Part& first = parts_.front();
    ASSIGN_OR_RETURN(const RunRow row, store_.Get(first.row.run_id));
    ShowRunOptions options;
    options.from_beginning = true;
    options.show_output = !context_.quiet;  // the run's name is printed
    options.until_running = flags_.detach;
    if (!flags_.detach) {
      ASSIGN_OR_RETURN(options.pull, ParsePullFlag(flags_.pull, row.name));
    }
    for (Part& part : parts_) part.calls.reset();
    const std::string place = options.pull.has_value() ? options.pull->to : "";
    options.all_came = all_came_;
    ASSIGN_OR_RETURN(const int code,
                     ShowRun(context_, store_, row, first.links.get(), std::move(options)));
    const absl::StatusOr<RunRow> shown = store_.Get(row.run_id);
    if (!shown.ok()) return code;
    BringMembers(context_, store_, *shown);
    // With --down all results come home, and not only those that it names.
    if (!shown->end.has_value() || place.empty() || flags_.down) return code;
    const absl::Status others =
        BringMemberResults(context_, store_, *shown, place, MemberResults::kCheckpoint);
    if (absl::IsCancelled(others)) return others;
    if (others.ok()) return code;
    *all_came_ = false;
    if (code == kExitOk) return others;
    context_.Warn(others.message());
    return code;
  }

  CommandContext& context_;
  RunStore& store_;
  const LaunchFlags& flags_;
  const LaunchPlan& plan_;
  const std::vector<NodeTarget>& machines_;
  const GangHooks& hooks_;
  bool* const all_came_;
  std::vector<Part> parts_;  // by rank
};

}  // namespace

absl::StatusOr<int> LaunchGang(CommandContext& context, RunStore& store, const LaunchFlags& flags,
                               const LaunchPlan& plan, const std::vector<NodeTarget>& machines,
                               const GangHooks& hooks, bool* all_came) {
  return GangLauncher(context, store, flags, plan, machines, hooks, all_came).Run();
}

}  // namespace gpuctl
