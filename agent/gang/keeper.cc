#include "agent/gang/keeper.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <future>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "agent/base/gang_note.h"
#include "agent/base/platform.h"
#include "agent/gang/addresses.h"
#include "agent/gang/gang_hub.h"
#include "agent/gang/gang_seat.h"
#include "common/base/bounded_json.h"
#include "common/base/ids.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr size_t kKeyBytes = 32;
constexpr int kMostMembers = 1024;
constexpr size_t kMostAddresses = 256;
constexpr size_t kMostTicketBytes = 64 << 10;
constexpr int kTickMs = 200;
constexpr absl::Duration kLookEvery = absl::Milliseconds(400);
// In which a job must begin that may. Its node's server starts it within a second.
constexpr absl::Duration kBeginWithin = absl::Seconds(60);
// In which a job is over after the grace of its stop.
constexpr absl::Duration kEndWithin = absl::Seconds(60);
// In which the last words must leave.
constexpr absl::Duration kLastWordsWithin = absl::Seconds(5);

// What hub and seat have in common: one attempt of the own job.
class Attempt {
 public:
  Attempt(MemberJob& job, int number, Clock& clock) : job_(job), number_(number), clock_(clock) {
    // The checkpoints are read beside the signs of life.
    if (number_ > 1) {
      steps_ = std::async(std::launch::async, &MemberJob::WholeSteps, job_.paths());
    }
  }

  // Waits for something to happen on `polled`, at most a tick. Returns false when the job's
  // directory is gone.
  bool Wait(std::vector<pollfd> polled) {
    poll(polled.data(), polled.size(), kTickMs);
    if (clock_.SinceBoot() >= look_at_) {
      look_at_ = clock_.SinceBoot() + kLookEvery;
      view_ = job_.Look(number_);
      if (!PathExists(job_.paths().spec)) return false;
      if (!view_.end.has_value() && !why_.empty()) job_.End(number_, why_);
    }
    return true;
  }
  const MemberView& view() const { return view_; }

  // True while the checkpoints are being read: it may take longer than others are waited for.
  bool Reads() {
    if (!steps_.valid()) return false;
    if (steps_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return true;
    whole_ = steps_.get();
    return false;
  }
  // Returns the steps of the whole checkpoints, once they are known and the attempt has its GPUs.
  std::optional<std::vector<int64_t>> Ready() {
    if (Reads() || !job_.HasGpus(number_)) return std::nullopt;
    return whole_;
  }

  // Lets the own job begin.
  absl::Status Begin(const GangGo& go, const std::string& interface) {
    const absl::StatusOr<GangNote> before = ReadGangNote(job_.paths());
    GangNote note = before.ok() ? *before : GangNote();
    note.attempt = number_;
    note.address = go.address;
    note.port = go.port;
    note.interface = interface;
    note.resume_step = go.resume_step;
    RETURN_IF_ERROR(WriteGangNote(job_.paths(), note));
    begin_by_ = clock_.SinceBoot() + kBeginWithin;
    return absl::OkStatus();
  }

  // Ends the own job, now and until it has ended.
  void End(const std::string& reason) {
    if (!why_.empty()) return;
    why_ = reason;
    job_.End(number_, why_);
  }
  bool ends() const { return !why_.empty(); }
  // True when the job may begin and does not.
  bool IsLate() const { return !view_.begun && clock_.SinceBoot() >= begin_by_; }
  void MayBeginLater(int64_t delay_ms) { begin_by_ += absl::Milliseconds(delay_ms); }

 private:
  MemberJob& job_;
  const int number_;
  Clock& clock_;
  MemberView view_;
  std::future<std::vector<int64_t>> steps_;
  std::vector<int64_t> whole_;
  std::string why_;
  absl::Duration look_at_ = -absl::InfiniteDuration();
  absl::Duration begin_by_ = absl::InfiniteDuration();
};

// True when the attempt failed because somebody took `port` between its choice and the job's start.
// Rank 0's job listens there. Another member may be the first to fail: it met whoever has the port.
bool LostItsPort(const MemberJob& job, const GangOutcome& outcome, const GangEnd& own, int port) {
  const bool failed = own.code != 0 && !own.lost &&
                      (own.reason.empty() || absl::StartsWith(own.reason, kGangPrefix));
  const bool by_itself = outcome.rank == 0 || absl::StartsWith(outcome.reason, kGangPrefix);
  return failed && by_itself && outcome.rank >= 0 && port > 0 && job.SaysPortWasTaken(port);
}

constexpr char kLate[] = "the job did not begin";

// Does what the gang's outcome means for the own job. Returns true when another attempt follows.
bool Apply(MemberJob& job, int attempt, const GangOutcome& outcome) {
  const absl::Status done =
      outcome.retry ? job.Announce(attempt, outcome.delay_ms) : job.Conclude(attempt, outcome);
  if (!done.ok()) Log(LogLevel::kWarning, absl::StrCat("gang: ", done.message()));
  return outcome.retry && done.ok();
}

// Takes the lock that tells that the job has a keeper. Whoever looks holds it for an instant.
absl::StatusOr<UniqueFd> WaitForKeeperLock(const JobPaths& job) {
  for (int left = 100;; --left) {
    absl::StatusOr<UniqueFd> lock = TryLock(job.gang_lock);
    if (!absl::IsUnavailable(lock.status()) || left == 0) return lock;
    Clock::Real().SleepFor(absl::Milliseconds(10));
  }
}

// Rank 0's part in one attempt. Returns true when another follows.
// `port_tried`: all began anew once already because their port was taken.
bool RunHub(GangHub& hub, MemberJob& job, int number, int64_t delay_ms, const GangTimes& times,
            Clock& clock, bool& port_tried) {
  const gpuctl::v1::Gang& gang = job.gang();
  Attempt attempt(job, number, clock);
  hub.BeginEpoch(gang.epoch() + number - 1);
  absl::Duration join_by = clock.SinceBoot() + times.join;
  absl::Duration wait_until = absl::InfiniteDuration();  // for the ends of the others
  bool begun = false, told_stopping = false;
  int port = 0;
  while (!hub.AllOver()) {
    std::vector<pollfd> polled;
    hub.AddTo(polled);
    if (!attempt.Wait(std::move(polled))) return false;
    hub.Step();
    if (!attempt.view().stopping.empty() && !std::exchange(told_stopping, true)) {
      hub.OwnIsStopping(attempt.view().stopping);
    }
    if (attempt.view().end.has_value()) hub.OwnEnded(*attempt.view().end);
    if (!begun && !hub.cause().has_value()) {
      if (attempt.Reads()) join_by = clock.SinceBoot() + times.join;
      if (auto steps = attempt.Ready()) hub.SetReady(*std::move(steps));
      if (const std::optional<GangGo> go = hub.TryGo()) {
        begun = true;
        port = go->port;
        const absl::Status status = attempt.Begin(*go, InterfaceOf(go->address));
        attempt.MayBeginLater(delay_ms);
        if (!status.ok()) hub.Fail(absl::StrCat(kGangPrefix, status.message()));
      } else if (clock.SinceBoot() >= join_by) {
        hub.Fail(absl::StrCat(kGangPrefix, hub.WhyNot()));
      }
    }
    if (begun && attempt.IsLate()) {
      hub.Fail(absl::StrCat(kGangPrefix, GangNodeName(gang, 0), ": ", kLate));
    }
    if (hub.cause().has_value() && !attempt.view().end.has_value()) {
      attempt.End(hub.cause()->reason);
    }
    if (hub.cause().has_value()) {
      wait_until = std::min(wait_until, clock.SinceBoot() + job.grace() + kEndWithin);
      if (clock.SinceBoot() >= wait_until) hub.GiveUpOthers();
    }
    // Nothing has begun anywhere, so nobody has to be waited for.
    if (!begun && hub.cause().has_value() && attempt.view().end.has_value()) break;
  }
  GangOutcome outcome = hub.cause().value_or(GangOutcome());
  // A member that is lost has no end of its own.
  if (begun && outcome.rank > 0 && !outcome.retry && outcome.code == 1 &&
      hub.IsLost(outcome.rank)) {
    outcome.retry = job.RetriesLost(number);
  }
  if (!begun || !job.MayRetry(number, port_tried ? 1 : 0)) outcome.retry = false;
  if (begun && !outcome.retry && !port_tried && attempt.view().end.has_value() &&
      LostItsPort(job, outcome, *attempt.view().end, port)) {
    port_tried = outcome.retry = true;
    outcome.delay_ms = 0;
    Log(LogLevel::kWarning, absl::StrCat("gang: port ", port, " was taken; all begin once more"));
  }
  hub.Conclude(outcome);
  const bool again = Apply(job, number, outcome);
  const absl::Duration send_by = clock.SinceBoot() + kLastWordsWithin;
  while (!hub.IsSent() && clock.SinceBoot() < send_by) {
    std::vector<pollfd> polled;
    hub.AddTo(polled);
    poll(polled.data(), polled.size(), kTickMs);
    hub.Step();
  }
  return again;
}

// The part of another member in one attempt.
bool RunSeat(GangSeat& seat, MemberJob& job, int number, int64_t delay_ms, const GangTimes& times,
             Clock& clock) {
  Attempt attempt(job, number, clock);
  seat.BeginEpoch(job.gang().epoch() + number - 1);
  absl::Duration join_by = clock.SinceBoot() + times.join;
  bool begun = false, told_stopping = false, told_end = false;
  absl::Duration leave_at = absl::InfiniteDuration();
  for (;;) {
    std::vector<pollfd> polled;
    seat.AddTo(polled);
    if (!attempt.Wait(std::move(polled))) return false;
    seat.Step();
    const MemberView& view = attempt.view();
    if (!view.stopping.empty() && !attempt.ends() && !std::exchange(told_stopping, true)) {
      seat.Stopping(view.stopping);
    }
    if (view.end.has_value() && !std::exchange(told_end, true)) seat.Ended(*view.end);
    if (!begun && seat.go().has_value() && !attempt.ends()) {
      begun = true;
      const absl::Status status = attempt.Begin(*seat.go(), seat.interface());
      attempt.MayBeginLater(delay_ms);
      if (!status.ok()) attempt.End(absl::StrCat(kGangPrefix, status.message()));
    }
    if (!begun) {
      // Rank 0 may read large checkpoints, too, and lives as long as it lets itself be heard.
      if (number > 1 && (attempt.Reads() || seat.IsHeard())) {
        join_by = clock.SinceBoot() + times.join;
      }
      if (auto steps = attempt.Ready()) seat.SetReady(*std::move(steps));
      if (clock.SinceBoot() >= join_by) {
        attempt.End(absl::StrCat(kGangPrefix, seat.WhyNot()));
      }
    }
    if (begun && attempt.IsLate()) attempt.End(absl::StrCat(kGangPrefix, kLate));
    if (seat.stop().has_value()) attempt.End(*seat.stop());
    if (seat.outcome().has_value() && !view.end.has_value()) attempt.End(seat.outcome()->reason);
    if (!seat.lost().empty()) attempt.End(seat.lost());
    if (!view.end.has_value()) continue;
    if (seat.outcome().has_value()) {
      GangOutcome outcome = *seat.outcome();
      // All begin once more without a retry of their own where their port was taken.
      outcome.retry = outcome.retry && job.MayRetry(number, 1);
      return Apply(job, number, outcome);
    }
    if (!seat.lost().empty()) {
      GangOutcome outcome;
      outcome.rank = 0;
      outcome.code = 1;
      outcome.reason = seat.lost();
      outcome.retry = job.RetriesLost(number);
      return Apply(job, number, outcome);
    }
    if (begun) continue;
    // It ended before all could begin; rank 0 hears of it if it can be reached.
    leave_at = std::min(leave_at, clock.SinceBoot() + kLastWordsWithin);
    if (seat.IsSent() || clock.SinceBoot() >= leave_at) return false;
  }
}

}  // namespace

std::string FormatGangTicket(const gpuctl::v1::GangTicket& ticket) {
  const std::vector<std::string> addresses(ticket.place().addresses().begin(),
                                           ticket.place().addresses().end());
  const nlohmann::json json = {{"key", absl::BytesToHexString(ticket.key())},
                               {"addresses", addresses},
                               {"port", ticket.place().port()}};
  return json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<gpuctl::v1::GangTicket> ParseGangTicket(const std::string& text) {
  const nlohmann::json json = ParseBoundedJson(text, {.bytes = kMostTicketBytes, .depth = 4});
  gpuctl::v1::GangTicket ticket;
  try {
    ticket.set_key(absl::HexStringToBytes(json.at("key").get<std::string>()));
    for (const auto& address : json.at("addresses")) {
      ticket.mutable_place()->add_addresses(address.get<std::string>());
    }
    ticket.mutable_place()->set_port(json.at("port").get<int>());
  } catch (const nlohmann::json::exception&) {
    return absl::InvalidArgumentError("read the ticket of a gang: it is none");
  }
  return ticket;
}

absl::Status CheckGang(const gpuctl::v1::Gang& gang, const gpuctl::v1::GangTicket& ticket) {
  const gpuctl::v1::GangPlace& place = ticket.place();
  const char* wrong = nullptr;
  if (!IsValidId(gang.id())) wrong = "bad id";
  if (gang.size() < 2 || gang.size() > kMostMembers) wrong = "bad size";
  if (gang.rank() < 0 || gang.rank() >= gang.size()) wrong = "bad rank";
  if (gang.epoch() < 1) wrong = "bad epoch";
  if (ticket.key().size() != kKeyBytes) wrong = "the key has not 32 bytes";
  if (gang.rank() > 0 && wrong == nullptr) {
    const bool fits =
        place.addresses_size() > 0 && static_cast<size_t>(place.addresses_size()) <= kMostAddresses;
    if (!fits) wrong = "no address of rank 0";
    for (const std::string& address : place.addresses()) {
      if (!ParseSocketAddress(address, place.port()).has_value()) wrong = "bad address of rank 0";
    }
  }
  if (wrong == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("its gang: ", wrong));
}

void KeepMember(MemberJob& job, const gpuctl::v1::GangTicket& ticket, const GangTimes& times,
                Clock& clock) {
  const gpuctl::v1::Gang& gang = job.gang();
  GangHub hub(gang, ticket.key(), times, clock);
  GangSeat seat(gang, ticket.key(), ticket.place(), times, clock);
  if (gang.rank() == 0) {
    GangNote note;
    absl::Status open = hub.Open();
    if (open.ok()) {
      note.meeting_addresses.assign(hub.place().addresses().begin(), hub.place().addresses().end());
      note.meeting_port = hub.place().port();
      open = WriteGangNote(job.paths(), note);
    }
    if (!open.ok()) return job.End(1, absl::StrCat(kGangPrefix, open.message()));
  }
  int64_t delay_ms = 0;
  bool port_tried = false;
  for (int attempt = 1;; ++attempt) {
    const bool again = gang.rank() == 0
                           ? RunHub(hub, job, attempt, delay_ms, times, clock, port_tried)
                           : RunSeat(seat, job, attempt, delay_ms, times, clock);
    if (!again) return;
    if (const MemberView view = job.Look(attempt); view.end.has_value()) {
      delay_ms = view.end->delay_ms;
    }
  }
}

int RunKeeper(const std::string& root, const std::string& job_id) {
  ForbidDumps();
  // Some clusters send SIGTERM to every process of an allocation that ends: the job's end is the
  // holder's, and the others are to hear of it.
  for (const int number : {SIGPIPE, SIGHUP, SIGINT, SIGTERM}) signal(number, SIG_IGN);
  const RootPaths paths(root);
  if (!IsValidId(job_id)) return 2;
  LogToFile(paths.log);
  std::string text;
  char buffer[4096];
  ssize_t got = 0;
  while ((got = read(STDIN_FILENO, buffer, sizeof(buffer))) > 0 && text.size() < kMostTicketBytes) {
    text.append(buffer, static_cast<size_t>(got));
  }
  const absl::StatusOr<gpuctl::v1::GangTicket> ticket = ParseGangTicket(text);
  const JobPaths job_paths = paths.Job(job_id);
  const absl::StatusOr<UniqueFd> lock = WaitForKeeperLock(job_paths);
  if (absl::IsUnavailable(lock.status())) return 0;
  absl::StatusOr<StoredSpec> stored = ReadStoredSpec(job_paths);
  absl::Status status = ticket.status();
  status.Update(lock.status());
  status.Update(stored.status());
  if (status.ok()) status = CheckGang(stored->spec.gang(), *ticket);
  if (!status.ok()) {
    Log(LogLevel::kError, absl::StrCat("gang: keep ", job_id, ": ", status.message()));
    return 1;
  }
  GangTimes times;
  int64_t seconds = 0;
  if (const char* join = getenv("GPUCTL_GANG_JOIN_S");
      join != nullptr && absl::SimpleAtoi(join, &seconds) && seconds > 0) {
    times.join = absl::Seconds(seconds);
  }
  MemberJob job(job_paths, *std::move(stored), Clock::Real());
  KeepMember(job, *ticket, times, Clock::Real());
  return 0;
}

}  // namespace gpuctl
