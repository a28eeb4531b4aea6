#include "client/streams/follower.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/link/agent_calls.h"
#include "client/link/api_check.h"
#include "client/streams/watchdog.h"
#include "common/base/backoff.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/transfer/error_detail.h"

namespace gpuctl {

using gpuctl::v1::ErrorDetail;
using gpuctl::v1::Job;
using gpuctl::v1::WatchReply;

namespace {

constexpr int64_t kWaitForJobMs = 10'000;
// Interval at which a follower reads the mirror that another process writes.
constexpr absl::Duration kLookEvery = absl::Milliseconds(100);

bool IsLinkFailure(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status) ||
         absl::IsDeadlineExceeded(status);
}

}  // namespace

struct Follower::Live {
  Mutex mutex;
  CondVar changed;
  bool stop ABSL_GUARDED_BY(mutex) = false;
  Link* link ABSL_GUARDED_BY(mutex) = nullptr;

  bool stopped() {
    MutexLock lock(mutex);
    return stop;
  }
  // Sets the link that Stop breaks; null for none.
  void SetLink(Link* current) {
    MutexLock lock(mutex);
    link = current;
    if (stop && link != nullptr) link->Break();
  }
};

// A StartJob call on a thread: it may take long (it copies the work tree), and Watch waits for its
// job on the same link meanwhile. When it fails it cancels `watch`, which has nothing to wait for.
class Follower::Start {
 public:
  Start(Link& link, const gpuctl::v1::StartJobRequest& request, grpc::ClientContext& watch)
      : thread_([this, &link, &request, &watch] {
          const grpc::Status status = link.agent().stub->StartJob(&context_, request, &job_);
          {
            MutexLock lock(mutex_);
            status_ = status;
            done_ = true;
          }
          if (!status.ok()) watch.TryCancel();
        }) {}
  ~Start() {
    context_.TryCancel();
    Join();
  }
  bool done() {
    MutexLock lock(mutex_);
    return done_;
  }
  void Join() {
    if (thread_.joinable()) thread_.join();
  }
  grpc::Status status() {
    MutexLock lock(mutex_);
    return status_;
  }
  // Returns the job; for use after success.
  const Job& job() const { return job_; }
  bool handled = false;

 private:
  grpc::ClientContext context_;
  Job job_;
  Mutex mutex_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

Follower::Follower(FollowOptions options, LinkFactory& links, FollowObserver& observer,
                   Clock& clock)
    : options_(std::move(options)),
      fresh_(options_.node_id.empty()),
      node_id_(fresh_ && options_.start.has_value() ? options_.start->node_id : options_.node_id),
      links_(links),
      observer_(observer),
      clock_(clock),
      live_(std::make_unique<Live>()),
      accepted_(!options_.start.has_value()) {}

Follower::~Follower() = default;

void Follower::Stop() {
  MutexLock lock(live_->mutex);
  live_->stop = true;
  if (live_->link != nullptr) live_->link->Break();
  live_->changed.NotifyAll();
}

bool Follower::Pause(absl::Duration duration) {
  const absl::Duration end = clock_.SinceBoot() + duration;
  MutexLock lock(live_->mutex);
  while (!live_->stop) {
    const absl::Duration left = end - clock_.SinceBoot();
    if (left <= absl::ZeroDuration()) return true;
    live_->changed.WaitFor(live_->mutex, left);
  }
  return false;
}

absl::Status Follower::Follow(const std::function<bool()>& until) {
  Backoff backoff(absl::Milliseconds(200), absl::Seconds(15));
  absl::Duration last_heard = clock_.SinceBoot();
  while (!live_->stopped()) {
    if (mirror_ == nullptr) {
      absl::StatusOr<std::unique_ptr<Mirror>> mirror =
          Mirror::Open(options_.mirror_dir, options_.output_segment_bytes);
      if (absl::IsUnavailable(mirror.status())) {
        RETURN_IF_ERROR(FollowOther(until));
        if (live_->stopped()) break;
        ASSIGN_OR_RETURN(const bool complete,
                         MirrorIsComplete(options_.mirror_dir, options_.output_segment_bytes));
        if (complete || (until && until())) return absl::OkStatus();
        continue;
      }
      if (!mirror.ok()) return Annotate(mirror.status(), "open mirror");
      mirror_ = *std::move(mirror);
    }
    heard_ = false;
    absl::StatusOr<std::unique_ptr<Link>> link = links_.Connect();
    absl::Status ended = link.status();
    if (link.ok()) {
      live_->SetLink(link->get());
      observer_.OnConnected();
      Watchdog watchdog(**link, options_.dead_after, clock_);
      absl::StatusOr<Next> next = FollowLink(**link, until);
      live_->SetLink(nullptr);
      if (!next.ok()) {
        return live_->stopped() ? absl::CancelledError("follow: stopped") : next.status();
      }
      if (*next == Next::kDone) return absl::OkStatus();
      ended = (*link)->status();
      if (ended.ok()) ended = absl::UnavailableError("the stream ended");
    }
    if (live_->stopped()) break;
    ever_heard_ |= heard_;
    if (!IsLinkFailure(ended) && !ever_heard_) return ended;
    if (heard_) {
      last_heard = clock_.SinceBoot();
      backoff.Reset();
    } else if (clock_.SinceBoot() - last_heard >= options_.give_up_after) {
      return Annotate(ended, absl::StrCat("follow job ", options_.job_id));
    }
    const absl::Duration wait = heard_ ? absl::ZeroDuration() : backoff.Next();
    observer_.OnLinkDown(ended, wait);
    if (!Pause(wait)) break;
  }
  return absl::CancelledError("follow: stopped");
}

// Follows the mirror that another gpuctl of this laptop writes, until that one releases it.
absl::Status Follower::FollowOther(const std::function<bool()>& until) {
  std::optional<int64_t> stored;
  while (Pause(kLookEvery)) {
    ASSIGN_OR_RETURN(const int64_t now_stored,
                     MirroredBytes(options_.mirror_dir, options_.output_segment_bytes));
    observer_.OnOther(stored.has_value() && now_stored > *stored);
    stored = now_stored;
    if (until && until()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const bool complete,
                     MirrorIsComplete(options_.mirror_dir, options_.output_segment_bytes));
    if (complete) return absl::OkStatus();
    absl::StatusOr<std::unique_ptr<Mirror>> mirror =
        Mirror::Open(options_.mirror_dir, options_.output_segment_bytes);
    if (mirror.ok()) {
      mirror_ = *std::move(mirror);
      return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

// Asks which node answers, before the first StartJob, unless the caller knows. Costs a round trip,
// once per node.
absl::Status Follower::ChooseNode(Link& link) {
  if (node_id_.empty()) {
    grpc::ClientContext context;
    gpuctl::v1::HelloRequest request;
    gpuctl::v1::HelloReply reply;
    const grpc::Status status = link.agent().stub->Hello(&context, request, &reply);
    if (!status.ok()) return FromGrpc(status);
    RETURN_IF_ERROR(CheckApiLevel(reply));
    node_id_ = reply.node_id();
  }
  RETURN_IF_ERROR(observer_.OnNode(node_id_));
  options_.start->start.set_expected_node_id(node_id_);
  return absl::OkStatus();
}

absl::StatusOr<Follower::Next> Follower::FollowLink(Link& link,
                                                    const std::function<bool()>& until) {
  for (;;) {
    if (!accepted_) {
      const absl::Status chosen = ChooseNode(link);
      if (IsLinkFailure(chosen)) return Next::kRelink;
      if (!chosen.ok()) return chosen;
    }
    ASSIGN_OR_RETURN(const Next next, WatchOnce(link, until));
    if (next != Next::kPush) return next;
    RETURN_IF_ERROR(options_.start->push_content());
  }
}

absl::StatusOr<Follower::Next> Follower::HandleStart(Start& start) {
  start.handled = true;
  start.Join();
  const grpc::Status status = start.status();
  if (status.ok()) {
    accepted_ = true;
    asked_ = false;
    start_answer_ = StartAnswer::kAccepted;
    RETURN_IF_ERROR(observer_.OnAccepted(start.job(), node_id_));
    return Next::kDone;
  }
  const absl::Status failure = FromGrpc(status);
  const ErrorDetail::Kind kind = DetailOf(failure).kind();
  // Another node that answers says nothing about the one that was asked before.
  const bool about_another = kind == ErrorDetail::KIND_NODE_CHANGED && asked_;
  if (!IsLinkFailure(failure) && !absl::IsCancelled(failure) && !about_another) {
    start_answer_ = StartAnswer::kRefused;
  }
  switch (kind) {
    case ErrorDetail::KIND_CONTENT_MISSING:
      if (options_.start->push_content) return Next::kPush;
      return failure;
    case ErrorDetail::KIND_NODE_CHANGED:
      if (fresh_ && !asked_) {
        node_id_.clear();
        return Next::kRelink;
      }
      return absl::NotFoundError(absl::StrCat("the job is lost: ", failure.message()));
    case ErrorDetail::KIND_SWEPT:
      return absl::NotFoundError(failure.message());
    default:
      break;
  }
  if (IsLinkFailure(failure)) {
    asked_ = true;
    return Next::kRelink;
  }
  return failure;
}

absl::StatusOr<gpuctl::v1::WatchRequest> Follower::RequestFromHere() {
  ASSIGN_OR_RETURN(const std::vector<gpuctl::v1::Cursor> cursors, mirror_->Cursors());
  gpuctl::v1::WatchRequest request;
  request.set_job_id(options_.job_id);
  request.set_client_id(options_.client_id);
  for (const gpuctl::v1::Cursor& cursor : cursors) *request.add_cursors() = cursor;
  if (!tail_shown_) request.set_display_tail_bytes(options_.display_tail_bytes);
  request.set_wait_for_job_ms(accepted_ ? 0 : kWaitForJobMs);
  return request;
}

absl::StatusOr<Follower::Next> Follower::WatchOnce(Link& link, const std::function<bool()>& until) {
  ASSIGN_OR_RETURN(const gpuctl::v1::WatchRequest request, RequestFromHere());
  grpc::ClientContext context;
  std::unique_ptr<Start> start;
  if (!accepted_) {
    start_answer_ = StartAnswer::kUnknown;
    start = std::make_unique<Start>(link, options_.start->start, context);
  }
  std::unique_ptr<grpc::ClientReaderInterface<WatchReply>> reader =
      link.agent().stub->Watch(&context, request);
  bool complete = false;
  absl::Status local;
  Next start_result = Next::kDone;
  auto check_start = [&]() -> absl::Status {
    if (start == nullptr || start->handled || !start->done()) return absl::OkStatus();
    ASSIGN_OR_RETURN(start_result, HandleStart(*start));
    return absl::OkStatus();
  };
  WatchReply reply;
  bool ended_by_node = false;
  while (local.ok() && !complete && start_result == Next::kDone) {
    if (!reader->Read(&reply)) {
      ended_by_node = true;
      break;
    }
    if (!heard_) observer_.OnLinkUp();
    heard_ = true;
    local = Handle(reply);
    complete = reply.complete();
    local.Update(check_start());
    if (local.ok() && !complete && until && until()) break;
  }
  const bool satisfied = local.ok() && (complete || (until && until()));
  if (!ended_by_node) {
    context.TryCancel();
    while (reader->Read(&reply)) {
    }
  }
  const grpc::Status ended = reader->Finish();
  if (start != nullptr && !start->handled && local.ok()) {
    // The job's first bytes can be here before StartJob's own answer.
    start->Join();
    local = check_start();
  }
  if (complete) local.Update(mirror_->Sync());
  RETURN_IF_ERROR(local);
  if (satisfied) return Next::kDone;
  if (start_result != Next::kDone) return start_result;
  const absl::Status failure = FromGrpc(ended);
  if (absl::IsNotFound(failure) && accepted_) return failure;
  if (absl::IsAborted(failure)) return Next::kRelink;  // replaced by a newer Watch of this client
  if (failure.ok() || IsLinkFailure(failure) || absl::IsNotFound(failure)) return Next::kRelink;
  return failure;
}

absl::Status Follower::Handle(const WatchReply& reply) {
  if (reply.has_heartbeat()) {
    const gpuctl::v1::Heartbeat& heartbeat = reply.heartbeat();
    if (!node_id_.empty() && heartbeat.node_id() != node_id_) {
      return absl::NotFoundError(absl::StrCat("the job is lost: node ", heartbeat.node_id(),
                                              " answers in place of ", node_id_));
    }
  }
  for (const gpuctl::v1::StreamHeader& header : reply.headers()) {
    ASSIGN_OR_RETURN(const std::optional<std::string> notice, mirror_->Apply(header));
    if (notice.has_value()) observer_.OnNotice(*notice);
  }
  bool stored = false;
  for (const gpuctl::v1::Chunk& chunk : reply.chunks()) {
    if (chunk.display_only()) {
      if (!tail_shown_) observer_.OnTail(chunk.offset(), chunk.data());
      continue;
    }
    RETURN_IF_ERROR(mirror_->Apply(chunk));
    stored = true;
  }
  tail_shown_ = true;
  if (reply.has_heartbeat()) observer_.OnHeartbeat(reply.heartbeat());
  if (stored || reply.complete()) observer_.OnStored();
  return absl::OkStatus();
}

}  // namespace gpuctl
