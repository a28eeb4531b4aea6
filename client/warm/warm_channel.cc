#include "client/warm/warm_channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/process/pipe.h"

namespace gpuctl {
namespace {

constexpr size_t kMostText = 64 << 10;
// A holder that lives answers at once, and a node that lives within a round trip.
constexpr absl::Duration kHereWithin = absl::Seconds(1);
constexpr absl::Duration kQueueWithin = absl::Seconds(4);
// The holder sends a pulse every half a second.
constexpr int kPulseMs = 500;
// A call is made again elsewhere when pulses are missing. A command is lost then, because it may
// have run: so it waits longer for a computer that is only busy, and wakes a holder that was
// stopped.
constexpr int kMissedByCall = 3;
constexpr int kMissedByCommand = 10;
constexpr int kMissedUntilWoken = 3;

int64_t BootNs() { return absl::ToInt64Nanoseconds(Clock::Real().SinceBoot()); }

absl::Status Broke(absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("the connection to the node broke: ", why));
}

}  // namespace

WarmChannel::WarmChannel(const WarmPlace& place, UniqueFd control, UniqueFd data,
                         std::function<void(absl::string_view)> on_stderr, bool is_call)
    : place_(place),
      control_(std::move(control)),
      data_(std::move(data)),
      on_stderr_(std::move(on_stderr)),
      missed_pulses_(is_call ? kMissedByCall : kMissedByCommand),
      heard_ns_(BootNs()) {}

absl::StatusOr<std::unique_ptr<WarmChannel>> WarmChannel::Open(
    const WarmPlace& place, const WarmAsk& ask, UniqueFd& data,
    std::function<void(absl::string_view)> on_stderr) {
  ASSIGN_OR_RETURN(UniqueFd control, ConnectToHolder(place.socket));
  ASSIGN_OR_RETURN(FdPair ends, MakeSocketPair("use a warm link"));
  UniqueFd copy(fcntl(ends.first.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return ErrnoStatus(errno, "use a warm link");
  if (!SendWithFd(control.get(), WarmMessage(WarmWord::kAsk, AskBytes(ask)), ends.second.get())) {
    return absl::UnavailableError("the warm link takes nothing");
  }
  ends.second.reset();
  std::unique_ptr<WarmChannel> channel(new WarmChannel(place, std::move(control), std::move(copy),
                                                       std::move(on_stderr), ask.repeats));
  const absl::Status opened = channel->WaitForOpen();
  if (absl::IsDeadlineExceeded(opened)) {
    // It hangs. Without its socket no later command waits for it, and it ends when it goes on.
    unlink(place.socket.c_str());
  }
  RETURN_IF_ERROR(opened);
  data = std::move(ends.first);
  WarmChannel* const self = channel.get();
  channel->thread_ = std::thread([self] { self->Run(); });
  return channel;
}

absl::Status WarmChannel::WaitForOpen() {
  absl::Duration patience = kHereWithin;
  bool here = false;
  std::pair<WarmWord, std::string> message;
  for (absl::Status next; (next = Next(patience, message)).ok();) {
    int64_t round_trip_ms = 0;
    switch (message.first) {
      case WarmWord::kHere:
        here = true;
        (void)absl::SimpleAtoi(message.second, &round_trip_ms);
        patience = std::max(kHereWithin, absl::Milliseconds(500 + 3 * round_trip_ms));
        break;
      case WarmWord::kQueued:
        patience = kQueueWithin;
        break;
      case WarmWord::kRefused:
        return absl::UnavailableError(message.second);
      case WarmWord::kOpen:
        return absl::OkStatus();
      default:
        break;
    }
  }
  // From here on the holder can tell nothing, and so runs nothing: it says kOpen first. What it
  // said before that counts.
  shutdown(control_.get(), SHUT_RD);
  while (Next(absl::ZeroDuration(), message).ok()) {
    if (message.first == WarmWord::kOpen) return absl::OkStatus();
  }
  return here ? absl::UnavailableError("the node does not answer over the warm link")
              : absl::DeadlineExceededError("the warm link does not answer");
}

absl::Status WarmChannel::Next(absl::Duration patience, std::pair<WarmWord, std::string>& message) {
  // Counts waits, not time: both ends may have been stopped meanwhile, with this computer.
  const int ms = static_cast<int>(absl::ToInt64Milliseconds(patience));
  const int waits = std::max(1, (ms + kPulseMs - 1) / kPulseMs);
  for (int left = waits;;) {
    const absl::StatusOr<bool> taken = TakeMessage(input_, message);
    RETURN_IF_ERROR(taken.status());
    if (*taken) return absl::OkStatus();
    pollfd waited{control_.get(), POLLIN, 0};
    const int ready = poll(&waited, 1, std::min(ms, kPulseMs));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0 && --left <= 0)
      return Broke("its holder here does not answer; what was begun there may go on");
    if (ready == 0 && waits == kMissedByCommand && left == waits - kMissedUntilWoken) {
      WakeHolder(place_);
    }
    if (ready == 0) continue;
    UniqueFd none;
    const ssize_t got = ReceiveWithFd(control_.get(), input_, none);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
      return Broke("its holder here has ended");
    }
  }
}

void WarmChannel::Take(WarmWord word, const std::string& bytes) {
  int64_t number = 0;
  if (word == WarmWord::kPulse) {
    if (absl::SimpleAtoi(bytes, &number)) heard_ns_ = BootNs() - number * 1'000'000;
    return;
  }
  if (word == WarmWord::kStderr && on_stderr_) on_stderr_(bytes);
  MutexLock lock(mutex_);
  const auto add = [&bytes](std::string& text) {
    text.append(bytes, 0, kMostText - std::min(kMostText, text.size()));
  };
  if (word == WarmWord::kStderr) add(stderr_);
  if (word == WarmWord::kPreamble) add(preamble_);
  if (word == WarmWord::kMagic) magic_line_ = bytes;
  changed_.NotifyAll();
}

void WarmChannel::End(const absl::Status& status) {
  {
    MutexLock lock(mutex_);
    ended_ = true;
    status_ = status;
    changed_.NotifyAll();
  }
  // After an orderly end the bytes are all there, and the holder has closed its side.
  if (!exit_code().has_value()) shutdown(data_.get(), SHUT_RDWR);
}

void WarmChannel::Run() {
  std::pair<WarmWord, std::string> message;
  for (;;) {
    const absl::Status next = Next(absl::Milliseconds(kPulseMs) * missed_pulses_, message);
    if (!next.ok()) return End(stopped_ ? absl::CancelledError("link closed") : next);
    if (message.first == WarmWord::kEnd) break;
    Take(message.first, message.second);
  }
  int code = -1;
  if (absl::SimpleAtoi(message.second, &code) && code >= 0) {
    {
      MutexLock lock(mutex_);
      exit_code_ = code;
    }
    return End(absl::UnavailableError("the channel closed"));
  }
  const size_t blank = message.second.find(' ');
  End(Broke(blank == std::string::npos ? "" : message.second.substr(blank + 1)));
}

WarmChannel::~WarmChannel() {
  Stop();
  if (thread_.joinable()) thread_.join();
}

void WarmChannel::Stop() {
  stopped_ = true;
  shutdown(control_.get(), SHUT_RDWR);
  bool ended = false;
  {
    MutexLock lock(mutex_);
    ended = ended_;
  }
  if (!ended) shutdown(data_.get(), SHUT_RDWR);
}

absl::Status WarmChannel::status() {
  MutexLock lock(mutex_);
  return ended_ ? status_ : absl::OkStatus();
}

absl::StatusOr<int> WarmChannel::WaitForExit() {
  MutexLock lock(mutex_);
  while (!ended_) changed_.Wait(mutex_);
  if (exit_code_.has_value()) return *exit_code_;
  return status_;
}

std::optional<int> WarmChannel::exit_code() {
  MutexLock lock(mutex_);
  return exit_code_;
}

std::optional<std::string> WarmChannel::magic_line() {
  MutexLock lock(mutex_);
  return magic_line_;
}

std::string WarmChannel::preamble() {
  MutexLock lock(mutex_);
  return preamble_;
}

std::string WarmChannel::stderr_text() {
  MutexLock lock(mutex_);
  return stderr_;
}

absl::Duration WarmChannel::Silence() { return absl::Nanoseconds(BootNs() - heard_ns_.load()); }

}  // namespace gpuctl
