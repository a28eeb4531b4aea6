#include "client/launch/gang_launch.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/follow/members.h"
#include "client/launch/push_plan.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/results/pull_files.h"
#include "client/show/show_run.h"
#include "client/spec/job_spec.h"
#include "client/streams/mirror.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/job/job_layout.h"
#include "common/transfer/error_detail.h"

namespace gpuctl {
namespace {

constexpr int kKeyBytes = 32;
constexpr int kGangIdBytes = 6;

// A machine with its part of the run.
struct Part {
  RunRow row;
  gpuctl::v1::StartJobRequest start;
  std::unique_ptr<LinkFactory> links;
  std::unique_ptr<NodeCalls> calls;
  bool asked = false;  // its node may have the job
};

class GangLauncher {
 public:
  GangLauncher(CommandContext& context, RunStore& store, const LaunchFlags& flags,
               const LaunchPlan& plan)
      : context_(context), store_(store), flags_(flags), plan_(plan) {}

  absl::StatusOr<int> Run() {
    RETURN_IF_ERROR(Connect());
    RETURN_IF_ERROR(Push());
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
  NodeTarget TargetOf(size_t rank) const {
    return rank == 0 ? plan_.own_machine : plan_.other_machines[rank - 1];
  }

  absl::Status Connect() {
    const std::string gang_id = absl::StrCat("g-", RandomHex(kGangIdBytes));
    const std::string key = absl::HexStringToBytes(RandomHex(kKeyBytes));
    gpuctl::v1::Gang gang;
    gang.set_id(gang_id);
    gang.set_size(static_cast<int>(plan_.other_machines.size()) + 1);
    gang.set_epoch(1);
    for (int rank = 0; rank < gang.size(); ++rank) {
      gang.add_names(TargetOf(static_cast<size_t>(rank)).name);
    }
    for (int rank = 0; rank < gang.size(); ++rank) {
      Part part;
      part.row = plan_.row;
      part.row.target = TargetOf(static_cast<size_t>(rank));
      if (rank > 0) {
        part.row.run_id = NewRunId();
        part.row.job_id = NewJobId();
        part.row.leader = plan_.row.run_id;
        part.row.rank = rank;
        part.row.tags.clear();
        part.row.source_diff.clear();
      }
      gpuctl::v1::JobSpec job = plan_.job;
      job.set_job_id(part.row.job_id);
      gang.set_rank(rank);
      *job.mutable_gang() = gang;
      const StoredSpec stored{SpecDigest(job), job};
      part.row.spec_json = FormatStoredSpec(stored);
      *part.start.mutable_spec() = stored.spec;
      part.start.set_spec_digest(stored.spec_digest);
      for (const auto& [name, value] : plan_.secrets) (*part.start.mutable_secrets())[name] = value;
      part.start.mutable_gang()->set_key(key);
      ASSIGN_OR_RETURN(part.links, MakeLinks(context_, part.row.target));
      ASSIGN_OR_RETURN(NodeCalls calls, NodeCalls::Connect(context_, *part.links, part.row.target));
      part.calls = std::make_unique<NodeCalls>(std::move(calls));
      ASSIGN_OR_RETURN(const gpuctl::v1::HelloReply hello, part.calls->Hello());
      RETURN_IF_ERROR(CheckNodeSatisfies(plan_.spec, hello, part.row.target.name));
      part.row.node_id = hello.node_id();
      part.start.set_expected_node_id(hello.node_id());
      parts_.push_back(std::move(part));
    }
    return absl::OkStatus();
  }

  // All content is there before a job is: rank 0 waits a minute for the others.
  absl::Status Push() {
    if (!plan_.workdir.has_value() && plan_.data.empty()) return absl::OkStatus();
    for (const Part& part : parts_) {
      RETURN_IF_ERROR(
          Annotate(PushPlan(context_, *part.links, part.row.target, plan_, flags_, nullptr),
                   absl::StrCat("to ", part.row.target.name)));
    }
    return absl::OkStatus();
  }

  absl::Status Start() {
    for (Part& part : parts_) {
      if (part.row.rank > 0) {
        part.row.name = absl::StrCat(parts_.front().row.name, ".node", part.row.rank);
      }
      // From here on the run exists, even if this process ends.
      RETURN_IF_ERROR(store_.Insert(part.row));
      if (part.row.rank == 0) context_.Say(Announcement());
    }
    gpuctl::v1::GangPlace place;
    for (Part& part : parts_) {
      *part.start.mutable_gang()->mutable_place() = place;
      part.asked = true;
      absl::StatusOr<gpuctl::v1::Job> job = part.calls->StartJob(part.start);
      if (DetailOf(job.status()).kind() == gpuctl::v1::ErrorDetail::KIND_CONTENT_MISSING) {
        RETURN_IF_ERROR(PushPlan(context_, *part.links, part.row.target, plan_, flags_, nullptr));
        job = part.calls->StartJob(part.start);
      }
      RETURN_IF_ERROR(job.status());
      RETURN_IF_ERROR(store_.SetAccepted(part.row.run_id, part.row.node_id, context_.NowMs()));
      if (part.row.rank > 0) continue;
      place = job->gang();
      if (place.port() == 0) {
        return absl::UnavailableError(absl::StrCat("the node of ", part.row.target.name,
                                                   " does not bring the others together"));
      }
    }
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
    bool all_gone = true;
    for (Part& part : parts_) {
      if (!part.asked) continue;
      const absl::Status stopped =
          part.calls->StopJob(part.row.job_id, "user", part.row.node_id).status();
      all_gone = all_gone && (stopped.ok() || absl::IsNotFound(stopped));
      (void)part.calls->RemoveJob(part.row.job_id, /*dry_run=*/false);
    }
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
    options.until_running = flags_.detach;
    if (!flags_.detach) {
      ASSIGN_OR_RETURN(options.pull, ParsePullFlag(flags_.pull, row.name));
    }
    for (Part& part : parts_) part.calls.reset();
    ASSIGN_OR_RETURN(const int code,
                     ShowRun(context_, store_, row, first.links.get(), std::move(options)));
    if (const absl::StatusOr<RunRow> shown = store_.Get(row.run_id); shown.ok()) {
      BringMembers(context_, store_, *shown);
    }
    return code;
  }

  CommandContext& context_;
  RunStore& store_;
  const LaunchFlags& flags_;
  const LaunchPlan& plan_;
  std::vector<Part> parts_;  // by rank
};

}  // namespace

absl::StatusOr<int> LaunchGang(CommandContext& context, RunStore& store, const LaunchFlags& flags,
                               const LaunchPlan& plan) {
  return GangLauncher(context, store, flags, plan).Run();
}

}  // namespace gpuctl
