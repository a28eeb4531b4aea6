#include "client/top/top_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/quantity.h"
#include "client/follow/follow_session.h"
#include "client/runs/run_status.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kRetryAfter = absl::Seconds(10);
constexpr absl::Duration kSilent = absl::Seconds(12);  // heartbeats come every 5 s

}  // namespace

absl::StatusOr<std::unique_ptr<TopRunFollower>> TopRunFollower::Make(CommandContext& context,
                                                                     RunStore& store, RunRow row) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  const std::string mirror_dir = paths.MirrorDir(row.run_id);
  return std::unique_ptr<TopRunFollower>(
      new TopRunFollower(context, store, std::move(row), mirror_dir));
}

int TopRunFollower::wake_fd() const {
  return work_ == nullptr || work_->session() == nullptr ? -1 : work_->session()->wake_fd();
}

void TopRunFollower::SetRow(const RunRow& row) {
  // A link writes row_ by itself.
  if (work_ == nullptr) row_ = row;
  row_.heard_ms = std::max(row_.heard_ms, row.heard_ms);
}

void TopRunFollower::Begin() {
  work_ = std::make_unique<CatchUpWork>(context_, store_, row_);
  absl::StatusOr<std::optional<Caught>> caught = work_->Prepare(absl::InfiniteDuration());
  if (caught.ok() && !caught->has_value()) {
    if (const absl::Status started = work_->Start(); !started.ok()) caught = started;
  }
  Settle(caught);
}

// After kUp the link goes on: what comes next is stored, too.
void TopRunFollower::Settle(const absl::StatusOr<std::optional<Caught>>& caught) {
  for (std::string& notice : work_->TakeNotices()) notices_.push_back(std::move(notice));
  if (caught.ok() && (!caught->has_value() || **caught == Caught::kUp)) return;
  error_ = caught.ok() ? work_->error() : caught.status();
  retry_at_ = context_.clock.SinceBoot() + kRetryAfter;
  if (work_->session() == nullptr || work_->session()->Finish(absl::ZeroDuration())) {
    work_.reset();
  } else {
    ending_ = std::move(work_);
  }
}

void TopRunFollower::Step(bool may_link) {
  if (ending_ != nullptr && ending_->session()->Finish(absl::ZeroDuration())) ending_.reset();
  if (work_ != nullptr) {
    Settle(work_->Step());
  } else if (may_link && ending_ == nullptr && !ended() && !row_.node_id.empty() &&
             context_.clock.SinceBoot() >= retry_at_) {
    Begin();
  }
  // A mirror that cannot be read leaves what was read before.
  if (mirror_.RefreshSome().ok()) (void)mirror_.RefreshOutputMetrics();
}

bool TopRunFollower::Unlink(absl::Duration patience) {
  for (std::unique_ptr<CatchUpWork>* work : {&work_, &ending_}) {
    if (*work == nullptr) continue;
    if ((*work)->session() != nullptr && !(*work)->session()->Finish(patience)) return false;
    work->reset();
  }
  return true;
}

std::vector<std::string> TopRunFollower::TakeNotices() { return std::exchange(notices_, {}); }

std::string TopRunFollower::Remark() const {
  if (ended()) return "";
  if (work_ != nullptr && !work_->link_error().ok() && !work_->linked()) {
    return std::string(work_->link_error().message());
  }
  const std::optional<absl::Duration> silence = work_ == nullptr ? std::nullopt : work_->silence();
  if (silence.has_value() && *silence >= kSilent) {
    return absl::StrCat("last heard ", HumanDuration(*silence), " ago");
  }
  if (work_ == nullptr && !error_.ok()) return std::string(error_.message());
  if (work_ != nullptr && work_->no_room())
    return "this disk is nearly full: its output is not stored";
  return "";
}

RunStatus TopRunFollower::Status() const {
  RunStatus status = ended() ? StatusOfEnded(row_) : DeriveStatus(row_, mirror_.lifecycle());
  AddQueueState(mirror_dir_, status);
  return status;
}

TopRun TopRunFollower::View() {
  const RunStatus status = Status();
  TopRun view;
  view.name = row_.name;
  view.node = row_.target.name;
  view.phase = status.phase;
  view.progress = &mirror_.progress();
  for (const auto& number : mirror_.own().NewestMeasured(1)) {
    view.own = absl::StrCat(number.name, " ", FormatNumber(number.value));
  }
  if (!status.over) view.telemetry = mirror_.telemetry();
  if (status.started_ms > 0) {
    const int64_t end_ms = status.over ? status.end.ended_ms : context_.NowMs();
    view.running_for = absl::Milliseconds(std::max<int64_t>(0, end_ms - status.started_ms));
  }
  view.remark = Remark();
  if (view.remark.empty() && status.queue.has_value()) view.remark = DescribeQueue(*status.queue);
  return view;
}

}  // namespace gpuctl
