#include "client/streams/follower.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/link/agent_calls.h"
#include "client/link/api_check.h"
#include "client/streams/follower_live.h"
#include "client/streams/watchdog.h"
#include "common/base/backoff.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/files/regular_file.h"
#include "common/transfer/error_detail.h"

namespace gpuctl {

using gpuctl::v1::ErrorDetail;
using gpuctl::v1::Job;
using gpuctl::v1::WatchReply;

namespace {

constexpr int64_t kWaitForJobMs = 10'000;
constexpr absl::Duration kLookForRoomEvery = absl::Seconds(1);

bool IsLinkFailure(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status) ||
         absl::IsDeadlineExceeded(status);
}

}  // namespace

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
      live_(std::make_unique<FollowerLive>()),
      accepted_(!options_.start.has_value()) {
  if (options_.start.has_value()) mirror_ = std::move(options_.start->mirror);
}

Follower::~Follower() = default;

absl::Status Follower::Follow(const std::function<bool()>& until) {
  absl::Status result = FollowMirror(until);
  MutexLock lock(live_->mutex);
  live_->released = true;  // nobody writes it any more
  live_->changed.NotifyAll();
  return result;
}

absl::Status Follower::FollowMirror(const std::function<bool()>& until) {
  Backoff backoff(absl::Milliseconds(200), absl::Seconds(15));
  absl::Duration last_heard = clock_.SinceBoot();
  while (!live_->stopped()) {
    RestWhileSuspended();
    ASSIGN_OR_RETURN(const bool mine, TakeMirror());
    if (!mine) {
      ASSIGN_OR_RETURN(const bool done, FollowOther(until));
      if (done) return absl::OkStatus();
      continue;
    }
    heard_ = false;
    absl::StatusOr<std::unique_ptr<Link>> link = Connect();
    // Suspend took the mirror.
    if (live_->resting() || mirror_ == nullptr) continue;
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
    if (live_->resting()) {
      last_heard = clock_.SinceBoot();
      continue;
    }
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
      if (options_.start->turn.wait) {
        options_.start->turn.wait([this] { return live_->stopped(); });
        options_.start->turn.wait = nullptr;
      }
    }
    ASSIGN_OR_RETURN(const Next next, WatchOnce(link, until));
    if (next == Next::kAgain) continue;
    if (next != Next::kPush) return next;
    RETURN_IF_ERROR(options_.start->push_content());
  }
}

absl::StatusOr<Follower::Next> Follower::HandleStart(Start& start, Link& link) {
  start.handled = true;
  start.Join();
  const grpc::Status status = start.status();
  if (status.ok()) {
    accepted_ = true;
    asked_ = false;
    start_answer_ = StartAnswer::kAccepted;
    if (options_.start->turn.done) options_.start->turn.done();
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
    asked_ = asked_ || !link.NeverReached(node_id_);
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

absl::StatusOr<Follower::Next> Follower::AfterWatch(const absl::Status& ended,
                                                    bool was_accepted) const {
  if (absl::IsNotFound(ended) && was_accepted) return ended;
  // Watch waited in vain while StartJob copied; now the job is there.
  if (absl::IsNotFound(ended) && accepted_) return Next::kAgain;
  if (absl::IsAborted(ended)) return Next::kRelink;  // replaced by a newer Watch of this client
  if (ended.ok() || IsLinkFailure(ended) || absl::IsNotFound(ended)) return Next::kRelink;
  return ended;
}

absl::StatusOr<Follower::Next> Follower::WatchOnce(Link& link, const std::function<bool()>& until) {
  const bool was_accepted = accepted_;
  mirror_->StoreOnlyLifecycle(false);
  look_for_room_at_ = absl::ZeroDuration();
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
    ASSIGN_OR_RETURN(start_result, HandleStart(*start, link));
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
    if (RoomIsBack()) {
      start_result = Next::kAgain;
      break;
    }
    local = Handle(reply);
    complete = reply.complete();
    if (complete && mirror_->stores_only_lifecycle()) {
      look_for_room_at_ = clock_.SinceBoot();
      if (RoomIsBack()) start_result = Next::kAgain;
      complete = start_result == Next::kDone;
    }
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
  // What was seen of a job that the node takes back at last is nothing.
  if (start_result != Next::kDone) return start_result;
  if (satisfied) return Next::kDone;
  return AfterWatch(FromGrpc(ended), was_accepted);
}

// Looks at the room on the disk, at most every second. Without room only the lifecycle is stored,
// so that the job's end is known and nobody waits for it. Returns true when what was left out can
// be fetched now.
bool Follower::RoomIsBack() {
  const absl::Duration now = clock_.SinceBoot();
  if (now < look_for_room_at_) return false;
  look_for_room_at_ = now + kLookForRoomEvery;
  const int64_t free = options_.free_bytes ? options_.free_bytes(options_.mirror_dir)
                                           : FreeBytes(options_.mirror_dir);
  const bool room = free < 0 || free >= kLeastFreeBytes;
  const bool was_full = mirror_->stores_only_lifecycle();
  if (room == was_full) observer_.OnRoom(room);
  if (room && was_full) {
    observer_.OnNotice("there is room on this disk again; copying output goes on");
  }
  if (!room && !was_full) {
    observer_.OnNotice(absl::StrCat("only ", free >> 20, " MiB are free on this disk; output is ",
                                    "not copied here until there are ", kLeastFreeBytes >> 20,
                                    " MiB. The job is unaffected"));
  }
  if (!room) mirror_->StoreOnlyLifecycle(true);
  return room && was_full;
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
  if (const std::optional<std::string> notice = mirror_->TakeNotice(); notice.has_value()) {
    observer_.OnNotice(*notice);
  }
  // Messages before the headers only show that the node lives.
  tail_shown_ = tail_shown_ || reply.headers_size() > 0 || reply.chunks_size() > 0;
  if (reply.has_heartbeat()) observer_.OnHeartbeat(reply.heartbeat());
  if (stored || reply.complete()) observer_.OnStored();
  return absl::OkStatus();
}

}  // namespace gpuctl
