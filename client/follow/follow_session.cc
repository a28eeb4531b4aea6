#include "client/follow/follow_session.h"

#include <signal.h>

#include <utility>

#include "common/base/link_fault.h"
#include "common/base/status_macros.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

// Interval of writes, each an fsync; often enough for `ps`.
constexpr absl::Duration kStoreHeardEvery = absl::Seconds(10);
// Number of links in a row that may break before any message.
constexpr int kTrials = 4;
// The same for one to what was kept of an allocation, in about two minutes.
constexpr int kTrialsOfKept = 12;
// Time for the release of the mirror when the process is stopped.
constexpr absl::Duration kSuspendPatience = absl::Seconds(2);

FollowNews FirstNews(const RunRow& row) {
  FollowNews news;
  news.accepted = row.accepted_ms > 0;
  return news;
}

}  // namespace

FollowSession::FollowSession(CommandContext& context, RunStore& store, const RunRow& row,
                             FollowOptions options, LinkFactory& links, bool fail_fast)
    : context_(context),
      store_(store),
      run_id_(row.run_id),
      mirror_dir_(options.mirror_dir),
      fail_fast_(fail_fast),
      of_cluster_(row.target.provider == kClusterProvider),
      market_check_(context, store, row, options.brings_home),
      heard_ms_(row.heard_ms),
      heard_stored_ms_(row.heard_ms),
      follower_(std::move(options), links, *this, context.clock),
      worker_(context.clock, FirstNews(row)) {}

FollowSession::~FollowSession() { follower_.Stop(); }

absl::Status FollowSession::Start(std::function<bool()> until) {
  return worker_.Start([this, until = std::move(until)] {
    absl::Status result = follower_.Follow(until);
    // This session stopped itself for a reason that "stopped" would hide.
    if (!fatal_.ok()) result = fatal_;
    worker_.Update([&](FollowNews& news) { news.result = std::move(result); });
  });
}

bool FollowSession::Finish(absl::Duration patience) {
  follower_.Stop();
  return worker_.Finish(patience);
}

void FollowSession::StopProcess() {
  follower_.Suspend(kSuspendPatience);
  raise(SIGSTOP);
  follower_.Resume();
}

FollowNews FollowSession::Take() {
  FollowNews news = worker_.Take();
  if (news.heard_at.has_value()) news.silence = context_.clock.SinceBoot() - *news.heard_at;
  return news;
}

void FollowSession::Heard() {
  const absl::Duration now = context_.clock.SinceBoot();
  heard_ms_ = context_.NowMs();
  worker_.Update([&](FollowNews& news) { news.heard_at = now; });
  if (now - heard_stored_at_ >= kStoreHeardEvery) {
    heard_stored_at_ = now;
    // Only `ps` needs it, so ignore errors.
    (void)store_.SetHeard(run_id_, context_.NowMs());
  }
  worker_.Wake();
}

void FollowSession::OnStored() { Heard(); }

// Leaves the row's "last heard" to the other process.
void FollowSession::OnOther(bool grew) {
  const bool changed = worker_.Update([&](FollowNews& news) {
    if (news.by_other && !grew) return false;
    news.by_other = true;
    news.heard_at = context_.clock.SinceBoot();
    return true;
  });
  if (!changed) return;
  if (grew) heard_ms_ = context_.NowMs();
  worker_.Wake();
}

void FollowSession::OnAnswer(const absl::StatusOr<JobAnswer>& answer) {
  worker_.Update([&](FollowNews& news) {
    news.answer = answer.status();
    if (answer.ok()) news.node_output_size = answer->heartbeat.output_size();
  });
  if (answer.ok()) TakeQueue(answer->heartbeat.job());
  worker_.Wake();
}

void FollowSession::OnMirrorTaken() {
  worker_.Update([](FollowNews& news) {
    news.by_other = false;
    news.answer.reset();
  });
  worker_.Wake();
}

void FollowSession::OnTail(int64_t offset, absl::string_view data) {
  worker_.Update([&](FollowNews& news) { news.tail.emplace_back(offset, std::string(data)); });
  Heard();
}

void FollowSession::TakeQueue(const gpuctl::v1::Job& job) {
  std::optional<QueueState> queue;
  if (job.state() == gpuctl::v1::JOB_STATE_QUEUED) queue = QueueStateOf(job.queue());
  // What `ps` shows is no reason to end.
  if (queue.has_value()) (void)StoreQueueState(mirror_dir_, *queue);
  worker_.Update([&](FollowNews& news) { news.queue = queue; });
}

void FollowSession::OnHeartbeat(const gpuctl::v1::Heartbeat& heartbeat) {
  TakeQueue(heartbeat.job());
  const bool first_acceptance = worker_.Update([&](FollowNews& news) {
    news.heartbeat = true;
    news.node_output_size = heartbeat.output_size();
    return !std::exchange(news.accepted, true);
  });
  // The client that started it died before it could record the answer.
  if (first_acceptance) {
    (void)store_.SetAccepted(run_id_, heartbeat.node_id(), context_.NowMs());
  }
  Heard();
}

void FollowSession::OnLinkUp() {
  gone_ = absl::OkStatus();
  since_gone_ = 0;
  worker_.Update([](FollowNews& news) {
    news.linked = true;
    news.by_other = false;
    news.ever_linked = true;
    news.link_error = absl::OkStatus();
  });
  Heard();
}

void FollowSession::OnConnected() { connected_ = true; }

void FollowSession::OnLinkDown(const absl::Status& status, absl::Duration) {
  // Store it now: if the machine is gone, this is the last known time of the job.
  if (heard_ms_ > heard_stored_ms_ && store_.SetHeard(run_id_, heard_ms_).ok()) {
    heard_stored_ms_ = heard_ms_;
  }
  const LinkFault fault = FaultOf(status);
  const bool waits = fault == LinkFault::kNotHeld || fault == LinkFault::kSuspended;
  // A machine that waits for its start answers later.
  if (!waits) broken_links_ = connected_ ? broken_links_ + 1 : kTrials;
  connected_ = false;
  const bool give_up = worker_.Update([&](FollowNews& news) {
    news.linked = false;
    news.by_other = false;
    news.link_error = status;
    return fail_fast_ && !waits && !news.ever_linked && !news.accepted && broken_links_ >= kTrials;
  });
  if (give_up) {
    fatal_ = status;
    follower_.Stop();
  }
  worker_.Wake();
  // An allocation without its holder may be over a moment later. Then the next link reads what was
  // kept of it, and that has the run's own end.
  if (!give_up && !waits && MachineIsLost(fault)) follower_.Stop();
}

bool FollowSession::MachineIsLost(LinkFault fault) {
  absl::Status status = gone_;
  if (status.ok()) {
    status = market_check_.Ask(heard_ms_, [this](absl::string_view line) { OnNotice(line); });
  }
  if (status.ok()) return false;
  // The next link reads what was kept of an allocation, and that has the run's own end.
  const bool nothing = fault == LinkFault::kNothingKept || fault == LinkFault::kReleased;
  if (of_cluster_ && !nothing && since_gone_++ < kTrialsOfKept) {
    gone_ = std::move(status);
    return false;
  }
  fatal_ = std::move(status);
  return true;
}

absl::Status FollowSession::OnNode(const std::string& node_id) {
  return store_.SetNode(run_id_, node_id);
}

absl::Status FollowSession::OnAccepted(const gpuctl::v1::Job& job, const std::string& node_id) {
  RETURN_IF_ERROR(store_.SetAccepted(run_id_, node_id, context_.NowMs()));
  TakeQueue(job);
  worker_.Update([](FollowNews& news) { news.accepted = true; });
  Heard();
  return absl::OkStatus();
}

void FollowSession::OnRoom(bool is_there) {
  worker_.Update([&](FollowNews& news) { news.no_room = !is_there; });
  worker_.Wake();
}

void FollowSession::OnNotice(absl::string_view text) {
  worker_.Update([&](FollowNews& news) { news.notices.emplace_back(text); });
  worker_.Wake();
}

}  // namespace gpuctl
