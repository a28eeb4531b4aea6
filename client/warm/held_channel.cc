#include "client/warm/held_channel.h"

#include <libssh/callbacks.h>
#include <libssh/libssh.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"

namespace gpuctl {
namespace {

constexpr size_t kMostPreamble = 64 << 10;
constexpr uint32_t kWindow = 4 << 20;
constexpr size_t kMostWrite = 256 << 10;
// A peer that reads no stderr holds the node's up, and nothing else.
constexpr size_t kMostStderrWaiting = 256 << 10;

// For reading what a channel holds back; there is one thread.
char* Buffer() {
  static char* const buffer = new char[kWindow];
  return buffer;
}

}  // namespace

void HolderPeer::Say(WarmWord word, absl::string_view bytes) {
  if (gone_) return;
  absl::StrAppend(&output_, WarmMessage(word, bytes));
  Flush();
}

bool HolderPeer::Flush() {
  bool moved = false;
  while (!output_.empty() && !gone_) {
#if defined(MSG_NOSIGNAL)
    const ssize_t sent = send(fd_.get(), output_.data(), output_.size(), MSG_NOSIGNAL);
#else
    const ssize_t sent = send(fd_.get(), output_.data(), output_.size(), 0);
#endif
    if (sent <= 0) {
      gone_ = sent == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
      break;
    }
    output_.erase(0, static_cast<size_t>(sent));
    moved = true;
  }
  return moved;
}

bool HolderPeer::Read(UniqueFd& fd) {
  const ssize_t got = ReceiveWithFd(fd_.get(), input_, fd);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
    gone_ = true;
  }
  return !gone_;
}

HeldChannel::HeldChannel(SshSession& session, WarmAsk ask)
    : session_(session),
      ask_(std::move(ask)),
      asked_at_(Clock::Real().SinceBoot()),
      magic_done_(ask_.magic.empty()) {
  channel_ = ssh_channel_new(session_.handle());
  callbacks_ = std::make_unique<ssh_channel_callbacks_struct>();
  callbacks_->userdata = this;
  callbacks_->channel_data_function = OnData;
  callbacks_->channel_exit_status_function = OnExit;
  callbacks_->channel_exit_signal_function = OnSignal;
  ssh_callbacks_init(callbacks_.get());
  if (channel_ == nullptr) {
    state_ = State::kRefused;
  } else {
    ssh_set_channel_callbacks(channel_, callbacks_.get());
  }
}

HeldChannel::~HeldChannel() {
  if (channel_ == nullptr) return;
  // libssh may still handle packets for it until the server has closed it, too.
  ssh_remove_channel_callbacks(channel_, callbacks_.get());
  ssh_channel_free(channel_);
}

void HeldChannel::Attach(std::unique_ptr<HolderPeer> peer, std::unique_ptr<SocketSide> side) {
  peer_ = std::move(peer);
  side_ = std::move(side);
}

std::pair<std::unique_ptr<HolderPeer>, std::unique_ptr<SocketSide>> HeldChannel::TakeBack() {
  return {std::move(peer_), std::move(side_)};
}

void HeldChannel::Prove() {
  if (proven_ || peer_ == nullptr) return;
  proven_ = true;
  peer_->Say(WarmWord::kOpen, "");
  if (peer_->gone()) {
    Abandon();
  } else if (magic_done_ && !magic_line_.empty()) {
    peer_->Say(WarmWord::kMagic, magic_line_);
  }
}

int HeldChannel::OnData(ssh_session_struct*, ssh_channel_struct*, void* data, uint32_t size,
                        int is_stderr, void* self) {
  HeldChannel& channel = *static_cast<HeldChannel*>(self);
  channel.called_back_ = true;
  const absl::string_view bytes(static_cast<const char*>(data), size);
  if (is_stderr != 0) {
    const size_t taken = channel.DeliverStderr(bytes);
    channel.held_stderr_ |= taken < size;
    return static_cast<int>(taken);
  }
  const size_t taken = channel.Deliver(bytes);
  channel.held_back_ |= taken < size;
  return static_cast<int>(taken);
}

void HeldChannel::OnExit(ssh_session_struct*, ssh_channel_struct*, int code, void* self) {
  HeldChannel& channel = *static_cast<HeldChannel*>(self);
  channel.called_back_ = true;
  channel.exit_code_ = std::min(code, 255);
}

void HeldChannel::OnSignal(ssh_session_struct*, ssh_channel_struct*, const char* signal, int,
                           const char*, const char*, void* self) {
  HeldChannel& channel = *static_cast<HeldChannel*>(self);
  channel.called_back_ = true;
  channel.exit_code_ = 128 + SignalNumber(signal);
}

size_t HeldChannel::SkipPreamble(absl::string_view bytes) {
  const size_t before = preamble_.size();
  preamble_.append(bytes.data(), bytes.size());
  const std::string mark = absl::StrCat("\n", ask_.magic);
  const size_t at = preamble_.find(mark);
  const size_t end = at == std::string::npos ? at : preamble_.find('\n', at + 1);
  if (end == std::string::npos) {
    if (preamble_.size() > kMostPreamble + mark.size() + 256) abandoned_ = true;
    return bytes.size();
  }
  magic_line_ = preamble_.substr(at + mark.size(), end - at - mark.size());
  magic_done_ = true;
  preamble_.resize(at);
  if (proven_) peer_->Say(WarmWord::kMagic, magic_line_);
  return end + 1 - before;
}

size_t HeldChannel::Deliver(absl::string_view bytes) {
  size_t taken = 0;
  if (!magic_done_) taken = SkipPreamble(bytes);
  if (taken < bytes.size() && side_ != nullptr) taken += side_->Give(bytes.substr(taken));
  since_top_up_ += static_cast<int64_t>(taken);
  return taken;
}

bool HeldChannel::HasRoomForStderr() const {
  return peer_ != nullptr && peer_->waiting() < kMostStderrWaiting;
}

size_t HeldChannel::DeliverStderr(absl::string_view bytes) {
  if (peer_ != nullptr && peer_->gone()) return bytes.size();
  if (!HasRoomForStderr()) return 0;
  peer_->Say(WarmWord::kStderr, bytes);
  return bytes.size();
}

// The pump of client/link does the same for one channel, and explains it.
bool HeldChannel::TakeHeldBack() {
  bool moved = false;
  if (held_stderr_ && HasRoomForStderr()) {
    held_stderr_ = false;
    const int got = ssh_channel_read_nonblocking(channel_, Buffer(), kMostStderrWaiting, 1);
    if (got > 0)
      peer_->Say(WarmWord::kStderr, absl::string_view(Buffer(), static_cast<size_t>(got)));
    held_stderr_ = got == static_cast<int>(kMostStderrWaiting);
    moved = got > 0;
  }
  const bool wants = held_back_ || since_top_up_ >= kWindow / 4;
  if (!wants || (magic_done_ && (side_ == nullptr || !side_->HasRoom()))) return moved;
  since_top_up_ = 0;
  held_back_ = false;
  const int got = ssh_channel_read(channel_, Buffer(), kWindow, 0);
  if (got <= 0) return moved;
  const absl::string_view bytes(Buffer(), static_cast<size_t>(got));
  const size_t taken = Deliver(bytes);
  if (taken < bytes.size() && side_ != nullptr) side_->GiveAll(bytes.substr(taken));
  return true;
}

bool HeldChannel::SendFromSide() {
  if (side_ == nullptr || !proven_ || RemoteEnded()) return false;
  const size_t room = std::min<size_t>(ssh_channel_window_size(channel_), kMostWrite);
  if (room > 0) {
    const absl::string_view bytes = side_->ToSend().substr(0, room);
    if (!bytes.empty()) {
      const int written =
          ssh_channel_write(channel_, bytes.data(), static_cast<uint32_t>(bytes.size()));
      if (written == SSH_ERROR) {
        abandoned_ = true;
        return true;
      }
      side_->Sent(static_cast<size_t>(written));
      return written > 0;
    }
  }
  if (side_->Finished() && !eof_sent_) {
    eof_sent_ = true;
    ssh_channel_send_eof(channel_);
    return true;
  }
  return false;
}

bool HeldChannel::RemoteEnded() const {
  return ssh_channel_is_eof(channel_) != 0 || ssh_channel_is_closed(channel_) != 0;
}

void HeldChannel::Finish(absl::string_view why) {
  state_ = State::kOver;
  if (peer_ == nullptr) return;
  if (!proven_) {
    peer_->Say(WarmWord::kRefused, why);
  } else {
    if (!magic_done_)
      peer_->Say(WarmWord::kPreamble, absl::string_view(preamble_).substr(0, kMostPreamble));
    peer_->Say(WarmWord::kEnd,
               exit_code_ >= 0 ? absl::StrCat(exit_code_) : absl::StrCat("-1 ", why));
  }
}

HeldChannel::State HeldChannel::Step(bool& moved) {
  if (state_ == State::kOver || state_ == State::kRefused) return state_;
  if (std::exchange(called_back_, false)) moved = true;
  if (ssh_is_connected(session_.handle()) == 0) {
    Finish("the connection to the node broke");
    return state_;
  }
  if (peer_ != nullptr) {
    moved |= peer_->Flush();
    if (peer_->gone()) abandoned_ = true;
  }
  if (state_ == State::kOpening) {
    const int opened = ssh_channel_open_session(channel_);
    if (opened == SSH_AGAIN) return state_;
    moved = true;
    if (ssh_channel_is_open(channel_) == 0) return state_ = State::kRefused;
    // The node lives: it has just answered.
    Prove();
    state_ = State::kStarting;
  }
  if (abandoned_) {
    Finish("the command was given up");
    moved = true;
    return state_;
  }
  if (state_ == State::kStarting) {
    const int started = ssh_channel_request_exec(channel_, ask_.line.c_str());
    if (started == SSH_AGAIN) return state_;
    moved = true;
    if (started != SSH_OK) {
      Finish("the node runs no command");
      return state_;
    }
    state_ = State::kRunning;
  }
  if (side_ != nullptr) moved |= side_->Flush();
  moved |= TakeHeldBack();
  moved |= SendFromSide();
  if (RemoteEnded() && (side_ == nullptr || (side_->Flushed() && !held_back_))) {
    if (side_ != nullptr && !input_ended_) {
      input_ended_ = true;
      side_->EndInput();
    }
    if (side_ == nullptr || ((exit_code_ >= 0 || ssh_channel_is_closed(channel_) != 0) &&
                             (!held_stderr_ || peer_ == nullptr))) {
      Finish("the channel closed");
      moved = true;
    }
  }
  return state_;
}

void HeldChannel::BeforeSleep(pollfd& peer, pollfd& side) {
  peer = {-1, 0, 0};
  side = {-1, 0, 0};
  if (peer_ != nullptr && !peer_->gone()) {
    peer = {peer_->fd(), static_cast<short>(POLLIN | (peer_->waits() ? POLLOUT : 0)), 0};
  }
  const bool can_send = state_ == State::kRunning && proven_ && !RemoteEnded() &&
                        ssh_channel_window_size(channel_) > 0;
  if (side_ != nullptr) side_->BeforeSleep(can_send, false, side);
}

void HeldChannel::AfterSleep(const pollfd& peer) {
  if (peer_ == nullptr || (peer.revents & (POLLIN | POLLHUP | POLLERR)) == 0) return;
  UniqueFd none;
  // A command says nothing more; it only goes.
  (void)peer_->Read(none);
  peer_->input().clear();
}

void HeldChannel::Pulse(absl::Duration silence) {
  // A peer that reads nothing has the older ones.
  if (peer_ == nullptr || !proven_ || peer_->waits()) return;
  peer_->Say(WarmWord::kPulse, absl::StrCat(absl::ToInt64Milliseconds(silence)));
}

}  // namespace gpuctl
