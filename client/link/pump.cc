#include "client/link/pump.h"

#include <fcntl.h>
#include <libssh/callbacks.h>
#include <libssh/libssh.h>
#include <libssh/server.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/process/pipe.h"

namespace gpuctl {
namespace {

constexpr size_t kMaxPreamble = 64 << 10;
constexpr size_t kMaxStderr = 64 << 10;
// Size of one write to libssh, in bytes: between two writes the pump reads.
constexpr size_t kMaxWrite = 256 << 10;
// Number of questions to a silent server before it counts as gone.
constexpr int kAsk = 3;

int64_t NowNs() { return absl::ToInt64Nanoseconds(Clock::Real().SinceBoot()); }

void MakeNonBlocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

}  // namespace

Pump::Pump(std::unique_ptr<SshSession> session, ssh_channel_struct* channel,
           std::unique_ptr<LocalSide> local, PumpOptions options)
    : session_(std::move(session)),
      channel_(channel),
      local_(std::move(local)),
      options_(std::move(options)),
      callbacks_(std::make_unique<ssh_channel_callbacks_struct>()),
      buffer_size_(static_cast<uint32_t>(options_.window_bytes)),
      // Not cleared: clearing would make every session use all of this memory.
      buffer_(new char[buffer_size_]),
      magic_done_(options_.magic.empty()),
      counter_(std::make_unique<ssh_counter_struct>()),
      last_byte_ns_(NowNs()) {
  absl::StatusOr<FdPair> wake = MakePipe("start pump");
  if (!wake.ok()) {
    status_ = wake.status();
    ended_ = true;
    local_->Close();
    return;
  }
  wake_read_ = std::move(wake->first);
  wake_write_ = std::move(wake->second);
  for (const int fd : {wake_read_.get(), wake_write_.get()}) MakeNonBlocking(fd);
  *callbacks_ = ssh_channel_callbacks_struct{};
  callbacks_->userdata = this;
  callbacks_->channel_data_function = OnData;
  ssh_callbacks_init(callbacks_.get());
  ssh_set_channel_callbacks(channel_, callbacks_.get());
  ssh_set_counters(session_->handle(), counter_.get(), nullptr);
  thread_ = std::thread([this] { Run(); });
}

Pump::~Pump() {
  Stop();
  if (thread_.joinable()) thread_.join();
}

void Pump::Stop() {
  stop_ = true;
  const char byte = 0;
  if (wake_write_.valid()) (void)!write(wake_write_.get(), &byte, 1);
  // Frees a thread that is inside send() on a dead network.
  {
    MutexLock lock(mutex_);
    if (!ended_ && session_ != nullptr) shutdown(session_->socket(), SHUT_RDWR);
  }
}

absl::Status Pump::status() {
  MutexLock lock(mutex_);
  return ended_ ? status_ : absl::OkStatus();
}

absl::StatusOr<int> Pump::WaitForExit() {
  MutexLock lock(mutex_);
  while (!ended_) changed_.Wait(mutex_);
  if (exit_code_.has_value()) return *exit_code_;
  return status_;
}

std::optional<std::string> Pump::magic_line() {
  MutexLock lock(mutex_);
  return magic_line_;
}

absl::StatusOr<std::string> Pump::WaitForMagic(absl::Duration timeout) {
  const absl::Duration deadline = Clock::Real().SinceBoot() + timeout;
  MutexLock lock(mutex_);
  while (!magic_line_.has_value()) {
    if (ended_) return status_;
    const absl::Duration left = deadline - Clock::Real().SinceBoot();
    if (left <= absl::ZeroDuration()) {
      return absl::UnavailableError("wait for the node's first line: none came");
    }
    changed_.WaitFor(mutex_, left);
  }
  return *magic_line_;
}

std::string Pump::preamble() {
  MutexLock lock(mutex_);
  return preamble_;
}

std::string Pump::stderr_text() {
  MutexLock lock(mutex_);
  return stderr_;
}

std::optional<int> Pump::exit_code() {
  MutexLock lock(mutex_);
  return exit_code_;
}

absl::Duration Pump::Silence() { return absl::Nanoseconds(NowNs() - last_byte_ns_.load()); }

// libssh calls this while it handles packets. Bytes that are not consumed stay in the channel's
// buffer and keep the window from growing: that is the back-pressure.
int Pump::OnData(ssh_session_struct*, ssh_channel_struct*, void* data, uint32_t size, int is_stderr,
                 void* self) {
  Pump& pump = *static_cast<Pump*>(self);
  pump.called_back_ = true;
  if (is_stderr != 0) {
    if (pump.options_.on_stderr) {
      pump.options_.on_stderr(absl::string_view(static_cast<const char*>(data), size));
    }
    MutexLock lock(pump.mutex_);
    const size_t room = kMaxStderr - std::min(kMaxStderr, pump.stderr_.size());
    pump.stderr_.append(static_cast<const char*>(data), std::min<size_t>(room, size));
    return static_cast<int>(size);
  }
  const size_t taken = pump.Deliver(static_cast<const char*>(data), size);
  if (taken < size) pump.held_back_ = true;
  return static_cast<int>(taken);
}

size_t Pump::SkipPreamble(const char* data, size_t size) {
  MutexLock lock(mutex_);
  const size_t before = preamble_.size();
  preamble_.append(data, size);
  const std::string mark = absl::StrCat("\n", options_.magic);
  const size_t at = preamble_.find(mark);
  const size_t end = at == std::string::npos ? at : preamble_.find('\n', at + 1);
  if (end == std::string::npos) {
    if (preamble_.size() > kMaxPreamble + mark.size() + 256) stop_ = true;
    return size;
  }
  magic_line_ = preamble_.substr(at + mark.size(), end - at - mark.size());
  magic_done_ = true;
  const size_t used = end + 1 - before;
  preamble_.resize(at);
  changed_.NotifyAll();
  return used;
}

size_t Pump::Deliver(const char* data, size_t size) {
  size_t taken = 0;
  if (!magic_done_) taken = SkipPreamble(data, size);
  if (taken < size) taken += local_->Give(absl::string_view(data, size).substr(taken));
  since_top_up_ += static_cast<int64_t>(taken);
  return taken;
}

bool Pump::RemoteEnded() {
  return ssh_channel_is_eof(channel_) != 0 || ssh_channel_is_closed(channel_) != 0 ||
         ssh_is_connected(session_->handle()) == 0;
}

bool Pump::ReceivePackets(bool ready) {
  if (ready) last_byte_ns_ = NowNs();
  if (!RemoteEnded()) {
    // This handles packets. It reports no stderr bytes, because the callback takes all of them.
    ssh_channel_poll(channel_, 1);
  } else {
    // After EOF ssh_channel_poll handles no more packets, but the exit status comes then. This call
    // handles packets until it has the status. It does not read a close that comes in a later
    // segment.
    exit_status_known_ = ExitStatusOf(channel_).known;
  }
  return called_back_;
}

// Takes the bytes that libssh holds back, all in one call. A smaller read would grant the server a
// new window while bytes are left, and libssh drops bytes beyond 256 MB. The same call asks for a
// window of the buffer's size.
bool Pump::TakeHeldBack() {
  if (!WantsHeldBack() || !local_->HasRoom()) return false;
  since_top_up_ = 0;
  held_back_ = false;
  const int got = ssh_channel_read(channel_, buffer_.get(), buffer_size_, 0);
  if (got <= 0) return false;
  const absl::string_view bytes(buffer_.get(), static_cast<size_t>(got));
  // The window limits the held-back bytes to the buffer's size, so the local side must have room
  // for that many.
  const size_t taken = Deliver(bytes.data(), bytes.size());
  if (taken < bytes.size()) local_->GiveAll(bytes.substr(taken));
  return true;
}

bool Pump::WantsHeldBack() const {
  return held_back_ || since_top_up_ >= options_.window_bytes / 4;
}

size_t Pump::RoomToSend() {
  const int64_t window = ssh_channel_window_size(channel_);
  full_window_ = std::max(full_window_, window);
  const int64_t ahead = full_window_ - window;
  return static_cast<size_t>(
      std::max<int64_t>(0, std::min(window, options_.max_ahead_bytes - ahead)));
}

absl::StatusOr<bool> Pump::SendFromLocal() {
  const size_t room = std::min(RoomToSend(), kMaxWrite);
  if (room > 0) {
    const absl::string_view bytes = local_->ToSend().substr(0, room);
    if (!bytes.empty()) {
      // libssh may take fewer bytes, or none during a key exchange.
      const int written =
          ssh_channel_write(channel_, bytes.data(), static_cast<uint32_t>(bytes.size()));
      if (written == SSH_ERROR) {
        return absl::UnavailableError(absl::StrCat("send: ", ssh_get_error(session_->handle())));
      }
      local_->Sent(static_cast<size_t>(written));
      return written > 0;
    }
  }
  if (local_->Finished() && !eof_sent_) {
    eof_sent_ = true;
    ssh_channel_send_eof(channel_);
    return true;
  }
  return false;
}

// True when the command has ended and later packets need no reading: they would only keep poll from
// sleeping.
bool Pump::NeedsNoMorePackets() {
  return RemoteEnded() && (exit_status_known_ || ssh_channel_is_closed(channel_) != 0);
}

// Asks a silent server for an answer. Counts the questions, not only the time, because this process
// may have been stopped.
absl::Status Pump::TakePulse() {
  const int64_t now_ns = NowNs();
  if (counter_->in_bytes != seen_bytes_) {
    seen_bytes_ = counter_->in_bytes;
    last_byte_ns_ = now_ns;
    unanswered_ = 0;
  }
  const absl::Duration quiet =
      absl::Nanoseconds(now_ns - std::max(last_byte_ns_.load(), asked_ns_));
  if (quiet < options_.dead_after / (kAsk + 1)) return absl::OkStatus();
  if (unanswered_ == kAsk) {
    return absl::UnavailableError(
        absl::StrCat("nothing came from the node for ", absl::FormatDuration(options_.dead_after)));
  }
  ++unanswered_;
  asked_ns_ = now_ns;
  // The server answers even when it refuses. The first call may only take the last answer.
  for (int i = 0; i < 2; ++i) ssh_send_keepalive(session_->handle());
  called_back_ = true;
  return absl::OkStatus();
}

absl::Status Pump::WaitForWork(bool& ssh_ready) {
  const bool has_pulse = options_.dead_after < absl::InfiniteDuration() && !NeedsNoMorePackets();
  if (has_pulse) {
    RETURN_IF_ERROR(TakePulse());
    // TakePulse may have read packets.
    if (called_back_) return absl::OkStatus();
  }
  const bool can_send = !RemoteEnded() && RoomToSend() > 0;
  short ssh_events = POLLIN;
  if ((ssh_get_poll_flags(session_->handle()) & SSH_WRITE_PENDING) != 0) ssh_events |= POLLOUT;
  // libssh closes the socket when the connection breaks.
  const int socket =
      ssh_is_connected(session_->handle()) != 0 && !NeedsNoMorePackets() ? session_->socket() : -1;
  pollfd waited[3] = {{socket, ssh_events, 0}, {-1, 0, 0}, {wake_read_.get(), POLLIN, 0}};
  if (!local_->BeforeSleep(can_send, WantsHeldBack(), waited[1])) {
    return absl::OkStatus();
  }
  const absl::Duration nap = options_.dead_after / (kAsk + 1);
  poll(waited, 3, has_pulse ? static_cast<int>(absl::ToInt64Milliseconds(nap)) + 1 : -1);
  local_->AfterSleep(waited[1]);
  ssh_ready = (waited[0].revents & (POLLIN | POLLERR | POLLHUP)) != 0;
  return absl::OkStatus();
}

// Takes bytes that came with the answer to a quick command's request, before the callbacks were
// set. They are in libssh's buffers, where no packet announces them, and would keep the channel
// from its end.
void Pump::TakeEarlyBytes() {
  held_back_ = true;
  for (;;) {
    const int got = ssh_channel_read_nonblocking(channel_, buffer_.get(), buffer_size_, 1);
    if (got <= 0) return;
    OnData(nullptr, channel_, buffer_.get(), static_cast<uint32_t>(got), 1, this);
  }
}

absl::Status Pump::Loop() {
  TakeEarlyBytes();
  bool ssh_ready = true;
  for (;;) {
    if (stop_) return absl::CancelledError("link closed");
    called_back_ = false;
    bool moved = ReceivePackets(ssh_ready);
    ssh_ready = false;
    // The signal's callback is the session's; the channel's end may already be inside libssh.
    moved |= !std::exchange(signalled_, session_->exit_signal() != 0) && signalled_;
    moved |= local_->Flush();
    moved |= TakeHeldBack();
    if (RemoteEnded() && local_->Flushed() && !held_back_) {
      if (!input_ended_) {
        input_ended_ = true;
        local_->EndInput();
      }
      if (ssh_is_connected(session_->handle()) == 0) {
        return absl::UnavailableError("the connection to the node broke");
      }
      if (exit_status_known_ || ssh_channel_is_closed(channel_) != 0) {
        return absl::UnavailableError("the channel closed");
      }
    }
    if (!RemoteEnded()) {
      ASSIGN_OR_RETURN(const bool sent, SendFromLocal());
      moved |= sent;
    }
    // Any libssh call may have read packets and run a callback. Only a round in which nothing
    // happened may sleep; else bytes inside libssh would wait for ever.
    if (moved || called_back_) continue;
    RETURN_IF_ERROR(WaitForWork(ssh_ready));
  }
}

void Pump::Run() {
  const absl::Status status = Loop();
  const int exit_code = ExitStatusOf(channel_).code;
  MutexLock lock(mutex_);
  ended_ = true;
  status_ = status;
  if (session_->exit_signal() != 0) {
    exit_code_ = 128 + session_->exit_signal();
  } else if (exit_code >= 0) {
    // A process has no larger one. As gpuctl's own, 256 would be 0.
    exit_code_ = std::min(exit_code, 255);
  }
  session_.reset();  // before the local side: its user may ask for the status right after EOF
  local_->Close();
  changed_.NotifyAll();
}

}  // namespace gpuctl
