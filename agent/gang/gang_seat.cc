#include "agent/gang/gang_seat.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agent/gang/addresses.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kTryAgainAfter = absl::Milliseconds(500);
// A firewall that drops what it does not let pass answers nothing.
constexpr absl::Duration kConnectWithin = absl::Seconds(10);

}  // namespace

GangSeat::GangSeat(gpuctl::v1::Gang gang, std::string key, gpuctl::v1::GangPlace place,
                   GangTimes times, Clock& clock)
    : gang_(std::move(gang)),
      key_(std::move(key)),
      place_(std::move(place)),
      times_(times),
      clock_(clock) {}

void GangSeat::BeginEpoch(int64_t epoch) {
  epoch_ = epoch;
  tries_.clear();
  steps_.reset();
  go_.reset();
  stop_.reset();
  outcome_.reset();
  lost_.clear();
  first_welcome_ = absl::InfiniteDuration();
  for (const std::string& address : place_.addresses()) {
    tries_.emplace_back();
    tries_.back().address = address;
  }
}

void GangSeat::SetReady(std::vector<int64_t> steps) { steps_ = std::move(steps); }

void GangSeat::AddTo(std::vector<pollfd>& polled) const {
  for (const Try& attempt : tries_) {
    if (attempt.line == nullptr || !attempt.line->open()) continue;
    // While it connects, it becomes writable.
    const bool writes = attempt.line->has_unsent() || !attempt.answered;
    polled.push_back(
        {attempt.line->fd(),
         static_cast<short>(writes && attempt.line->has_unsent() ? POLLIN | POLLOUT : POLLIN), 0});
  }
}

void GangSeat::Step() {
  for (Try& attempt : tries_) StepTry(attempt);
  if (go_.has_value()) {
    // Only the line that said so is left.
    std::erase_if(tries_, [](const Try& attempt) { return attempt.line == nullptr; });
  } else {
    JoinIfSettled();
  }
  if (clock_.SinceBoot() < next_beat_) return;
  next_beat_ = clock_.SinceBoot() + times_.beat;
  Tell({{"t", "beat"}});
}

void GangSeat::Connect(Try& attempt) {
  attempt.line.reset();
  attempt.answered = attempt.welcome = attempt.joined = false;
  attempt.begun_at = clock_.SinceBoot();
  attempt.again_at = clock_.SinceBoot() + kTryAgainAfter;
  const std::optional<SocketAddress> to = ParseSocketAddress(attempt.address, place_.port());
  if (!to.has_value()) return;
  UniqueFd fd(socket(to->storage.ss_family, SOCK_STREAM, 0));
  if (!fd.valid() || fcntl(fd.get(), F_SETFD, FD_CLOEXEC) != 0 ||
      fcntl(fd.get(), F_SETFL, O_NONBLOCK) != 0) {
    return;
  }
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&to->storage), to->size) != 0 &&
      errno != EINPROGRESS) {
    attempt.failed = true;
    return;
  }
  attempt.line = std::make_unique<GangLine>(std::move(fd), GangSide::kMember, clock_);
}

void GangSeat::StepTry(Try& attempt) {
  const absl::Duration now = clock_.SinceBoot();
  const bool open = attempt.line != nullptr && attempt.line->open();
  if (!open && !go_.has_value() && now >= attempt.again_at) Connect(attempt);
  if (attempt.line == nullptr) return;
  GangLine& line = *attempt.line;
  line.Pump();
  if (!attempt.answered) {
    if (const std::optional<std::string> nonce = line.TakeChallenge()) {
      attempt.answered = true;
      line.AnswerChallenge(key_, *nonce,
                           {{"id", gang_.id()},
                            {"rank", gang_.rank()},
                            {"epoch", epoch_},
                            {"address", attempt.address},
                            {"local", LocalAddress(line.fd())}});
      line.Pump();
    }
  }
  while (attempt.line != nullptr) {
    const std::optional<nlohmann::json> message = line.Take();
    if (!message.has_value()) break;
    Obey(attempt, *message);
  }
  if (attempt.line == nullptr) return;
  const absl::Duration patience = attempt.welcome ? times_.silence : kConnectWithin;
  const absl::Duration since = attempt.welcome ? line.heard_at() : attempt.begun_at;
  const bool silent = line.open() && now - since >= patience;
  if (silent) line.Close();
  if (line.open()) return;
  attempt.failed = true;
  attempt.line.reset();
  if (!go_.has_value() || outcome_.has_value() || !lost_.empty()) return;
  lost_ = absl::StrCat(
      kGangPrefix, GangNodeName(gang_, 0),
      silent ? absl::StrCat(" was silent for ", absl::ToInt64Seconds(times_.silence), " s")
             : " was lost: its connection ended");
}

void GangSeat::Obey(Try& attempt, const nlohmann::json& message) {
  try {
    const std::string type = message.at("t").get<std::string>();
    if (type == "welcome") {
      attempt.welcome = true;
      first_welcome_ = std::min(first_welcome_, clock_.SinceBoot());
    } else if (type == "go" && !go_.has_value()) {
      GangGo go;
      go.address = message.at("address").get<std::string>();
      go.port = message.at("port").get<int>();
      go.resume_step = message.at("resume_step").get<int64_t>();
      if (!message.at("port").is_number_integer() || go.port < 1 || go.port > 65535 ||
          !ParseSocketAddress(go.address, go.port).has_value()) {
        return attempt.line->Close();
      }
      interface_ = InterfaceOf(LocalAddress(attempt.line->fd()));
      go_ = std::move(go);
      for (Try& other : tries_) {
        if (&other != &attempt) other.line.reset();
      }
    } else if (type == "stop") {
      if (!stop_.has_value()) stop_ = message.at("reason").get<std::string>();
    } else if (type == "over") {
      if (!IsExitCode(message.at("code"))) return attempt.line->Close();
      GangOutcome outcome;
      outcome.rank = message.at("rank").get<int>();
      outcome.code = message.at("code").get<int>();
      outcome.reason = message.at("reason").get<std::string>();
      outcome.retry = message.at("retry").get<bool>();
      outcome.delay_ms = BoundedPauseMs(message.at("delay_ms").get<int64_t>());
      outcome_ = std::move(outcome);
    }
  } catch (const nlohmann::json::exception&) {
    attempt.line->Close();
  }
}

// Joins through every address that it has reached, once the others had their time.
void GangSeat::JoinIfSettled() {
  if (!steps_.has_value()) return;
  const bool settled = std::all_of(tries_.begin(), tries_.end(), [](const Try& attempt) {
    return attempt.welcome || attempt.failed;
  });
  if (!settled && clock_.SinceBoot() - first_welcome_ < times_.settle) return;
  for (Try& attempt : tries_) {
    if (!attempt.welcome || attempt.joined || attempt.line == nullptr) continue;
    attempt.joined = true;
    attempt.line->Send({{"t", "joined"}, {"steps", *steps_}});
    attempt.line->Pump();
  }
}

void GangSeat::Tell(const nlohmann::json& message) {
  for (Try& attempt : tries_) {
    if (attempt.line == nullptr || !attempt.welcome) continue;
    attempt.line->Send(message);
    attempt.line->Pump();
  }
}

void GangSeat::Stopping(const std::string& reason) {
  Tell({{"t", "stopping"}, {"reason", reason}});
}

void GangSeat::Ended(const GangEnd& end) {
  Tell({{"t", "end"},
        {"code", end.code},
        {"reason", end.reason},
        {"lost", end.lost},
        {"retry", end.retry},
        {"delay_ms", end.delay_ms}});
}

bool GangSeat::IsHeard() const {
  return std::any_of(tries_.begin(), tries_.end(), [](const Try& attempt) {
    return attempt.welcome && attempt.line != nullptr && attempt.line->open();
  });
}

bool GangSeat::IsSent() const {
  return std::all_of(tries_.begin(), tries_.end(), [](const Try& attempt) {
    return attempt.line == nullptr || !attempt.line->open() || !attempt.line->has_unsent();
  });
}

std::string GangSeat::WhyNot() const {
  const std::string hub = GangNodeName(gang_, 0);
  if (!steps_.has_value()) {
    return absl::StrCat("this machine had no free GPUs for ", absl::ToInt64Seconds(times_.join),
                        " s");
  }
  if (first_welcome_ < absl::InfiniteDuration()) {
    return absl::StrCat(hub, " did not let the run begin within ",
                        absl::ToInt64Seconds(times_.join), " s");
  }
  return absl::StrCat(hub, " was not reached at port ", place_.port(), " of ",
                      absl::StrJoin(place_.addresses(), ", "));
}

}  // namespace gpuctl
