#include "client/warm/holder.h"

#include <fcntl.h>
#include <libssh/callbacks.h>
#include <libssh/libssh.h>
#include <libssh/server.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/base/host_keys.h"
#include "client/base/paths.h"
#include "client/link/link.h"
#include "client/link/ssh_session.h"
#include "client/warm/held_channel.h"
#include "client/warm/warm_socket.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/process/signal_pipe.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kLookEvery = absl::Seconds(1);
constexpr absl::Duration kPulseEvery = absl::Milliseconds(500);
// A node that is silent for so long is asked for a sign of life; sooner while a command runs.
constexpr absl::Duration kAskAfter = absl::Seconds(15);
constexpr absl::Duration kAskSoonAfter = absl::Seconds(2);
// Without an answer for so long, commands are told to connect by themselves, and at last it is
// over.
constexpr absl::Duration kDoubtAfter = absl::Seconds(1);
constexpr absl::Duration kDeadAfter = absl::Seconds(10);
constexpr absl::Duration kQueueFor = absl::Seconds(3);
// The longest time from a command's connection to its request.
constexpr absl::Duration kAskWithin = absl::Seconds(5);
constexpr size_t kMostPeers = 128;

struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  int64_t modified_ms = 0;
  bool operator==(const FileIdentity& other) const {
    return device == other.device && inode == other.inode && modified_ms == other.modified_ms;
  }
};

FileIdentity IdentityOf(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return {};
  return {info.st_dev, info.st_ino, ModifiedMs(info)};
}

// A command that waits for a channel.
struct WaitingPeer {
  std::unique_ptr<HolderPeer> peer;
  std::unique_ptr<SocketSide> side;  // once it asked
  WarmAsk ask;
  absl::Duration since = absl::ZeroDuration();
  bool queued = false;
};

class Holder {
 public:
  Holder(const HolderRequest& request, WarmPlace place, std::unique_ptr<SshSession> session,
         UniqueFd listener, FileIdentity program)
      : request_(request),
        place_(std::move(place)),
        session_(std::move(session)),
        listener_(std::move(listener)),
        counter_(std::make_unique<ssh_counter_struct>()),
        program_path_(ExecutablePath()),
        program_(program),
        socket_(IdentityOf(place_.socket)),
        bridge_(request.bridge),
        now_(Clock::Real().SinceBoot()),
        used_at_(now_),
        heard_at_(now_) {
    ssh_set_counters(session_->handle(), counter_.get(), nullptr);
    // Any call for a channel handles the packets of all. This one is never opened.
    packets_ = ssh_channel_new(session_->handle());
  }

  // Serves until there is a reason to end.
  void Run(SignalPipe& signals);

 private:
  void Listen();
  void ReadPeers();
  bool TakeMessages(WaitingPeer& waiting, UniqueFd data);
  void ServeWaiting();
  void StepChannels(bool& moved);
  void KeepSpare();
  void Hear();
  void LookAround();
  bool InDoubt() const { return asked_at_.has_value() && now_ - *asked_at_ >= kDoubtAfter; }
  void AskForLife();
  void Sleep(SignalPipe& signals);
  size_t Attached() const;
  std::string Describe() const;

  const HolderRequest& request_;
  const WarmPlace place_;
  std::unique_ptr<SshSession> session_;
  UniqueFd listener_;
  const std::unique_ptr<ssh_counter_struct> counter_;
  ssh_channel_struct* packets_ = nullptr;
  const std::string program_path_;
  const FileIdentity program_, socket_;
  std::string bridge_;  // the newest line that repeats

  std::vector<WaitingPeer> waiting_;
  std::vector<std::unique_ptr<HeldChannel>> channels_;
  absl::Duration now_, used_at_, heard_at_;
  absl::Duration looked_at_ = absl::ZeroDuration(), pulsed_at_ = absl::ZeroDuration();
  std::optional<absl::Duration> asked_at_;  // an answer is due since then
  absl::Duration asked_again_at_ = absl::ZeroDuration();
  absl::Duration round_trip_ = absl::ZeroDuration();  // the newest channel's
  uint64_t heard_bytes_ = 0;
  bool spares_ = true;  // the newest bridge that was started in advance did not end by itself
  size_t most_channels_ = 1000;  // what the node allows, once that is known
  int64_t served_ = 0;
  bool ssh_ready_ = true, moved_ = false;
  bool leaves_ = false;  // takes no more commands
  bool ends_ = false;
};

size_t Holder::Attached() const {
  return static_cast<size_t>(std::count_if(channels_.begin(), channels_.end(),
                                           [](const auto& each) { return each->attached(); }));
}

std::string Holder::Describe() const {
  const absl::Duration left = request_.idle - (now_ - used_at_);
  return nlohmann::json({{"node", request_.target.name},
                         {"pid", getpid()},
                         {"commands", Attached()},
                         {"served", served_},
                         {"ends_in_s", absl::ToInt64Seconds(left)}})
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void Holder::Listen() {
  for (;;) {
    UniqueFd fd(accept(listener_.get(), nullptr, nullptr));
    if (!fd.valid()) return;
    fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
    fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
    if (!IsPeerOurs(fd.get())) continue;
    WaitingPeer waiting;
    waiting.peer = std::make_unique<HolderPeer>(std::move(fd));
    waiting.since = now_;
    if (waiting_.size() + channels_.size() >= kMostPeers) {
      waiting.peer->Say(WarmWord::kRefused, "the warm link is full");
      continue;
    }
    waiting_.push_back(std::move(waiting));
  }
}

// Returns false when the peer is done with.
bool Holder::TakeMessages(WaitingPeer& waiting, UniqueFd data) {
  std::pair<WarmWord, std::string> message;
  for (;;) {
    const absl::StatusOr<bool> taken = TakeMessage(waiting.peer->input(), message);
    if (!taken.ok()) return false;
    if (!*taken) {
      // The descriptor comes with the first bytes of a message that may be longer.
      if (data.valid()) waiting.side = SocketSide::Over(std::move(data));
      return true;
    }
    if (message.first == WarmWord::kState) waiting.peer->Say(WarmWord::kState, Describe());
    if (message.first == WarmWord::kLeave) {
      waiting.peer->Say(WarmWord::kLeave, "");
      ends_ = true;
    }
    if (message.first != WarmWord::kAsk) continue;
    if (data.valid()) waiting.side = SocketSide::Over(std::move(data));
    const std::optional<WarmAsk> ask = ParseAsk(message.second);
    if (!ask.has_value() || waiting.side == nullptr || leaves_ || InDoubt()) {
      waiting.peer->Say(WarmWord::kRefused, "the warm link takes no command now");
      return false;
    }
    waiting.ask = *ask;
    if (ask->repeats) {
      bridge_ = ask->line;
      spares_ = true;
    }
    waiting.since = now_;
    waiting.peer->Say(WarmWord::kHere, absl::StrCat(absl::ToInt64Milliseconds(round_trip_)));
    if (waiting.peer->gone()) return false;
    used_at_ = now_;
  }
}

void Holder::ReadPeers() {
  for (WaitingPeer& waiting : waiting_) {
    UniqueFd data;
    if (!waiting.peer->Read(data) || !TakeMessages(waiting, std::move(data))) {
      waiting.peer.reset();
    }
  }
}

// Gives channels to those that asked: the one that was started in advance, or a new one.
void Holder::ServeWaiting() {
  for (WaitingPeer& waiting : waiting_) {
    if (waiting.peer == nullptr) continue;
    if (waiting.ask.line.empty()) {
      if (now_ - waiting.since >= kAskWithin) waiting.peer.reset();
      continue;
    }
    const auto spare = std::find_if(channels_.begin(), channels_.end(), [&](const auto& each) {
      return !each->attached() && each->ask().line == waiting.ask.line &&
             each->state() != HeldChannel::State::kOver &&
             each->state() != HeldChannel::State::kRefused;
    });
    if (spare != channels_.end()) {
      (*spare)->Attach(std::move(waiting.peer), std::move(waiting.side));
      ++served_;
      // A node that is there answers before the first byte of the command's could.
      if ((*spare)->state() != HeldChannel::State::kOpening) AskForLife();
      continue;
    }
    if (channels_.size() >= most_channels_) {
      const auto unused = std::find_if(channels_.begin(), channels_.end(),
                                       [](const auto& each) { return !each->attached(); });
      if (unused != channels_.end()) {
        (*unused)->Abandon();
      }
      if (now_ - waiting.since >= kQueueFor) {
        waiting.peer->Say(WarmWord::kRefused, "the node allows no more channels");
        waiting.peer.reset();
      } else if (!std::exchange(waiting.queued, true)) {
        waiting.peer->Say(WarmWord::kQueued, "");
      }
      continue;
    }
    ++served_;
    auto channel = std::make_unique<HeldChannel>(*session_, waiting.ask);
    channel->Attach(std::move(waiting.peer), std::move(waiting.side));
    channels_.push_back(std::move(channel));
  }
  waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(),
                                [](const WaitingPeer& each) { return each.peer == nullptr; }),
                 waiting_.end());
}

void Holder::StepChannels(bool& moved) {
  for (std::unique_ptr<HeldChannel>& channel : channels_) {
    const HeldChannel::State before = channel->state();
    const HeldChannel::State state = channel->Step(moved);
    if (before == HeldChannel::State::kOpening && state == HeldChannel::State::kStarting) {
      round_trip_ = Clock::Real().SinceBoot() - channel->asked_at();
    }
    if (state == HeldChannel::State::kRefused) {
      moved = true;
      most_channels_ = std::max<size_t>(1, channels_.size() - 1);
      auto [peer, side] = channel->TakeBack();
      if (peer != nullptr) {
        WaitingPeer again;
        again.peer = std::move(peer);
        again.side = std::move(side);
        again.ask = channel->ask();
        again.since = now_;
        waiting_.push_back(std::move(again));
      }
      channel.reset();
    } else if (channel->done()) {
      if (channel->attached()) {
        used_at_ = now_;
      } else {
        // A line that the node does not run must not be started again and again.
        spares_ = false;
      }
      moved = true;
      channel.reset();
    }
  }
  channels_.erase(std::remove(channels_.begin(), channels_.end(), nullptr), channels_.end());
}

// Starts the next bridge before somebody asks for it.
void Holder::KeepSpare() {
  const bool has_one = std::any_of(channels_.begin(), channels_.end(),
                                   [](const auto& each) { return !each->attached(); });
  if (has_one || !spares_ || leaves_ || InDoubt() || bridge_.empty() || !waiting_.empty() ||
      channels_.size() + 1 >= most_channels_) {
    return;
  }
  channels_.push_back(
      std::make_unique<HeldChannel>(*session_, WarmAsk{kBridgeMagic, /*repeats=*/true, bridge_}));
}

void Holder::AskForLife() {
  if (!asked_at_.has_value()) asked_at_ = now_;
  // The server answers even when it refuses. The first call may only take the last answer.
  for (int i = 0; i < 2; ++i) ssh_send_keepalive(session_->handle());
}

void Holder::Hear() {
  if (counter_->in_bytes != heard_bytes_) {
    heard_bytes_ = counter_->in_bytes;
    heard_at_ = now_;
    asked_at_.reset();
    for (const auto& channel : channels_) {
      if (channel->state() == HeldChannel::State::kRunning) channel->Prove();
    }
  }
  const bool busy = Attached() > 0;
  const absl::Duration last = std::max(heard_at_, asked_again_at_);
  if (now_ - last >= (busy ? kAskSoonAfter : kAskAfter)) {
    asked_again_at_ = now_;
    AskForLife();
  }
  if (asked_at_.has_value() && now_ - *asked_at_ >= kDeadAfter) ends_ = true;
}

void Holder::LookAround() {
  if (now_ - looked_at_ < kLookEvery) return;
  // This computer slept: the connection may be gone without a word.
  if (looked_at_ > absl::ZeroDuration() && now_ - looked_at_ > 5 * kLookEvery) AskForLife();
  looked_at_ = now_;
  if (!(IdentityOf(place_.socket) == socket_) || !(IdentityOf(program_path_) == program_)) {
    leaves_ = true;
  }
  const bool used =
      Attached() > 0 || std::any_of(waiting_.begin(), waiting_.end(),
                                    [](const WaitingPeer& each) { return !each.ask.line.empty(); });
  if (used) used_at_ = now_;
  if (now_ - used_at_ >= request_.idle || (leaves_ && !used)) ends_ = true;
}

void Holder::Sleep(SignalPipe& signals) {
  short ssh_events = POLLIN;
  if ((ssh_get_poll_flags(session_->handle()) & SSH_WRITE_PENDING) != 0) ssh_events |= POLLOUT;
  std::vector<pollfd> waited = {{session_->socket(), ssh_events, 0},
                                {signals.fd(), POLLIN, 0},
                                {leaves_ ? -1 : listener_.get(), POLLIN, 0}};
  const size_t first_channel = waited.size();
  for (const auto& channel : channels_) {
    waited.resize(waited.size() + 2);
    channel->BeforeSleep(waited[waited.size() - 2], waited[waited.size() - 1]);
  }
  for (const WaitingPeer& waiting : waiting_) waited.push_back({waiting.peer->fd(), POLLIN, 0});
  const bool busy = Attached() > 0 || !waiting_.empty() || asked_at_.has_value();
  poll(waited.data(), waited.size(),
       static_cast<int>(absl::ToInt64Milliseconds(busy ? absl::Milliseconds(100) : kLookEvery)));
  now_ = Clock::Real().SinceBoot();
  ssh_ready_ = (waited[0].revents & (POLLIN | POLLERR | POLLHUP)) != 0;
  if (waited[1].revents != 0) ends_ = true;
  for (size_t i = 0; i < channels_.size(); ++i) {
    channels_[i]->AfterSleep(waited[first_channel + 2 * i]);
  }
  if (waited[2].revents != 0) Listen();
}

void Holder::Run(SignalPipe& signals) {
  while (!ends_) {
    bool moved = false;
    ReadPeers();
    ServeWaiting();
    KeepSpare();
    if (std::exchange(ssh_ready_, false) || moved_) ssh_channel_poll(packets_, 0);
    StepChannels(moved);
    if (ssh_is_connected(session_->handle()) == 0) ends_ = true;
    Hear();
    LookAround();
    if (now_ - pulsed_at_ >= kPulseEvery) {
      pulsed_at_ = now_;
      for (const auto& channel : channels_) channel->Pulse(now_ - heard_at_);
    }
    moved_ = moved;
    // Any call may have handled packets of any channel.
    if (!moved && !ends_) Sleep(signals);
  }
  if (IdentityOf(place_.socket) == socket_) unlink(place_.socket.c_str());
  // Tells every command that waits, and none of the others that it ended in order.
  listener_.reset();
}

// Counts the holders that live beside this one.
int OtherHolders(const std::string& dir, const std::string& own_lock) {
  int count = 0;
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(dir);
  if (!names.ok()) return 0;
  for (const std::string& name : *names) {
    const std::string path = JoinPath(dir, name);
    if (!absl::EndsWith(name, ".lock") || path == own_lock) continue;
    if (IsLocked(path).value_or(false)) {
      ++count;
    } else {
      // Nobody's any more. A starter at this moment finds its file replaced, and gives up.
      unlink(path.c_str());
      unlink(absl::StrCat(path.substr(0, path.size() - 5), ".sock").c_str());
    }
  }
  return count;
}

}  // namespace

absl::Status RunHolder(const HolderRequest& request) {
  const FileIdentity program = IdentityOf(ExecutablePath());
  ASSIGN_OR_RETURN(const WarmPlace place, FindWarmPlace(request.state_dir, request.target));
  ASSIGN_OR_RETURN(SignalPipe signals, SignalPipe::Install({SIGTERM, SIGINT, SIGHUP}));
  // No copy of what passes here goes to a disk, and no folder is kept in use.
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  if (chdir("/") != 0) return ErrnoStatus(errno, "leave the directory");
  umask(077);
  ASSIGN_OR_RETURN(const UniqueFd lock, TryLock(place.lock));
  if (IsReplaced(lock, place.lock)) return absl::UnavailableError("the lock was replaced");
  if (OtherHolders(WarmDirectory(request.state_dir), place.lock) >= kMostHolders) {
    return absl::ResourceExhaustedError("enough connections are kept");
  }
  SshLinkOptions options;
  options.target = request.target;
  options.state_dir = request.state_dir;
  const std::unique_ptr<LinkFactory> links = MakeSshLinkFactory(std::move(options));
  ASSIGN_OR_RETURN(std::unique_ptr<SshSession> session, links->OpenSshSession());
  ASSIGN_OR_RETURN(UniqueFd listener, ListenAsHolder(place.socket));
  Holder holder(request, place, std::move(session), std::move(listener), program);
  holder.Run(signals);
  return absl::OkStatus();
}

}  // namespace gpuctl
