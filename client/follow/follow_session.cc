#include "client/follow/follow_session.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "common/base/status_macros.h"
#include "common/process/pipe.h"

namespace gpuctl {
namespace {

// Each write is an fsync; this often is enough for `ps`.
constexpr absl::Duration kStoreHeardEvery = absl::Seconds(10);
// Links in a row that may break before anything is heard over them.
constexpr int kTrials = 4;

}  // namespace

FollowSession::FollowSession(CommandContext& context, RunStore& store, const RunRow& row,
                             FollowOptions options, LinkFactory& links, bool fail_fast)
    : context_(context),
      store_(store),
      run_id_(row.run_id),
      fail_fast_(fail_fast),
      market_check_(context, row),
      heard_ms_(row.heard_ms),
      heard_stored_ms_(row.heard_ms),
      follower_(std::move(options), links, *this, context.clock) {
  news_.accepted = row.accepted_ms > 0;
}

FollowSession::~FollowSession() {
  follower_.Stop();
  if (thread_.joinable()) thread_.join();
}

absl::Status FollowSession::Start(std::function<bool()> until) {
  ASSIGN_OR_RETURN(FdPair ends, MakePipe("make a pipe"));
  for (const int end : {ends.first.get(), ends.second.get()}) fcntl(end, F_SETFL, O_NONBLOCK);
  wake_read_ = std::move(ends.first);
  wake_write_ = std::move(ends.second);
  thread_ = std::thread([this, until = std::move(until)] {
    absl::Status result = follower_.Follow(until);
    {
      MutexLock lock(mutex_);
      // We stopped it ourselves over something worse than "stopped".
      if (!fatal_.ok()) result = fatal_;
      news_.done = true;
      news_.result = result;
      ended_.NotifyAll();
    }
    Wake();
  });
  return absl::OkStatus();
}

bool FollowSession::Finish(absl::Duration patience) {
  follower_.Stop();
  const absl::Duration end = context_.clock.SinceBoot() + patience;
  MutexLock lock(mutex_);
  while (!news_.done) {
    const absl::Duration left = end - context_.clock.SinceBoot();
    if (left <= absl::ZeroDuration()) return false;
    ended_.WaitFor(mutex_, left);
  }
  return true;
}

FollowNews FollowSession::Take() {
  char bytes[256];
  while (read(wake_read_.get(), bytes, sizeof(bytes)) > 0) {
  }
  MutexLock lock(mutex_);
  FollowNews news = news_;
  news_.notices.clear();
  news_.tail.clear();
  if (heard_at_.has_value()) news.silence = context_.clock.SinceBoot() - *heard_at_;
  return news;
}

void FollowSession::Wake() {
  // A full pipe is awake already.
  [[maybe_unused]] const ssize_t written = write(wake_write_.get(), "", 1);
}

void FollowSession::Heard() {
  const absl::Duration now = context_.clock.SinceBoot();
  heard_ms_ = context_.NowMs();
  {
    MutexLock lock(mutex_);
    heard_at_ = now;
  }
  if (now - heard_stored_at_ >= kStoreHeardEvery) {
    heard_stored_at_ = now;
    // Only `ps` would miss it.
    (void)store_.SetHeard(run_id_, context_.NowMs());
  }
  Wake();
}

void FollowSession::OnStored() { Heard(); }

// The other one keeps the row's "last heard".
void FollowSession::OnOther(bool grew) {
  {
    MutexLock lock(mutex_);
    if (news_.by_other && !grew) return;
    news_.by_other = true;
    heard_at_ = context_.clock.SinceBoot();
  }
  if (grew) heard_ms_ = context_.NowMs();
  Wake();
}

void FollowSession::OnTail(int64_t offset, absl::string_view data) {
  {
    MutexLock lock(mutex_);
    news_.tail.emplace_back(offset, std::string(data));
  }
  Heard();
}

void FollowSession::OnHeartbeat(const gpuctl::v1::Heartbeat& heartbeat) {
  bool first_acceptance = false;
  {
    MutexLock lock(mutex_);
    news_.heartbeat = true;
    news_.node_output_size = heartbeat.output_size();
    first_acceptance = !news_.accepted;
    news_.accepted = true;
  }
  // The client that started it died before it could record the answer.
  if (first_acceptance) {
    (void)store_.SetAccepted(run_id_, heartbeat.node_id(), context_.NowMs());
  }
  Heard();
}

void FollowSession::OnLinkUp() {
  {
    MutexLock lock(mutex_);
    news_.linked = true;
    news_.by_other = false;
    news_.ever_linked = true;
    news_.link_error = absl::OkStatus();
  }
  Heard();
}

void FollowSession::OnConnected() { connected_ = true; }

void FollowSession::OnLinkDown(const absl::Status& status, absl::Duration) {
  // For how long a job was heard is what is known of one whose machine is gone.
  if (heard_ms_ > heard_stored_ms_ && store_.SetHeard(run_id_, heard_ms_).ok()) {
    heard_stored_ms_ = heard_ms_;
  }
  broken_links_ = connected_ ? broken_links_ + 1 : kTrials;
  connected_ = false;
  bool give_up = false;
  {
    MutexLock lock(mutex_);
    news_.linked = false;
    news_.by_other = false;
    news_.link_error = status;
    give_up = fail_fast_ && !news_.ever_linked && !news_.accepted && broken_links_ >= kTrials;
    if (give_up) fatal_ = status;
  }
  if (give_up) follower_.Stop();
  Wake();
  if (!give_up && MachineIsLost()) follower_.Stop();
}

bool FollowSession::MachineIsLost() {
  const absl::Status status =
      market_check_.Ask(heard_ms_, [this](absl::string_view line) { OnNotice(line); });
  if (status.ok()) return false;
  MutexLock lock(mutex_);
  fatal_ = status;
  return true;
}

absl::Status FollowSession::OnNode(const std::string& node_id) {
  return store_.SetNode(run_id_, node_id);
}

absl::Status FollowSession::OnAccepted(const gpuctl::v1::Job&, const std::string& node_id) {
  RETURN_IF_ERROR(store_.SetAccepted(run_id_, node_id, context_.NowMs()));
  {
    MutexLock lock(mutex_);
    news_.accepted = true;
  }
  Heard();
  return absl::OkStatus();
}

void FollowSession::OnNotice(absl::string_view text) {
  {
    MutexLock lock(mutex_);
    news_.notices.emplace_back(text);
  }
  Wake();
}

}  // namespace gpuctl
