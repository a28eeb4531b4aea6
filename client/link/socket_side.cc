#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "client/link/local_side.h"
#include "common/base/status_macros.h"
#include "common/process/pipe.h"

namespace gpuctl {
namespace {

constexpr size_t kMaxQueue = 1 << 20;
constexpr size_t kReadBytes = 256 << 10;

ssize_t SendTo(int fd, absl::string_view bytes) {
#if defined(MSG_NOSIGNAL)
  return send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
#else
  return send(fd, bytes.data(), bytes.size(), 0);
#endif
}

bool IsForNow(int error_number) {
  return error_number == EAGAIN || error_number == EWOULDBLOCK || error_number == EINTR;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SocketSide>> SocketSide::Make() {
  ASSIGN_OR_RETURN(FdPair ends, MakeSocketPair("start pump"));
  std::unique_ptr<SocketSide> side = Over(std::move(ends.second));
  side->theirs_ = std::move(ends.first);
  return side;
}

std::unique_ptr<SocketSide> SocketSide::Over(UniqueFd fd) {
  const int ours = fd.get();
  fcntl(ours, F_SETFL, fcntl(ours, F_GETFL) | O_NONBLOCK);
#if defined(SO_NOSIGPIPE)
  const int on = 1;
  setsockopt(ours, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof(on));
#endif
  return std::unique_ptr<SocketSide>(new SocketSide(UniqueFd(), std::move(fd)));
}

size_t SocketSide::Give(absl::string_view bytes) {
  if (shut_) return bytes.size();
  size_t taken = 0;
  if (queue_.empty()) {
    const ssize_t sent = SendTo(ours_.get(), bytes);
    if (sent > 0) taken = static_cast<size_t>(sent);
  }
  const size_t room = kMaxQueue - std::min(kMaxQueue, queue_.size() - queue_begin_);
  const size_t queued = std::min(room, bytes.size() - taken);
  queue_.append(bytes.data() + taken, queued);
  return taken + queued;
}

void SocketSide::GiveAll(absl::string_view bytes) {
  bytes.remove_prefix(Give(bytes));
  if (!shut_) queue_.append(bytes.data(), bytes.size());
}

bool SocketSide::Flush() {
  bool moved = false;
  while (queue_begin_ < queue_.size()) {
    const ssize_t sent = SendTo(ours_.get(), absl::string_view(queue_).substr(queue_begin_));
    if (sent <= 0) {
      if (sent < 0 && !IsForNow(errno)) {
        shut_ = true;
        queue_.clear();
        queue_begin_ = 0;
      }
      return moved;
    }
    moved = true;
    queue_begin_ += static_cast<size_t>(sent);
  }
  queue_.clear();
  queue_begin_ = 0;
  return moved;
}

void SocketSide::EndInput() {
  if (shut_) return;
  shut_ = true;
  shutdown(ours_.get(), SHUT_WR);
}

absl::string_view SocketSide::ToSend() {
  if (pending_begin_ == pending_end_ && !ended_) {
    // Sized once: this runs for every packet, and clearing 256 KiB each time cost measurable time.
    pending_.resize(kReadBytes);
    const ssize_t got = recv(ours_.get(), pending_.data(), pending_.size(), 0);
    pending_begin_ = 0;
    pending_end_ = got > 0 ? static_cast<size_t>(got) : 0;
    ended_ = got == 0 || (got < 0 && !IsForNow(errno));
  }
  return absl::string_view(pending_).substr(pending_begin_, pending_end_ - pending_begin_);
}

bool SocketSide::BeforeSleep(bool can_send, bool, pollfd& waited) {
  const bool reads = can_send && pending_begin_ == pending_end_ && !ended_;
  const int events = (reads ? POLLIN : 0) | (queue_.empty() ? 0 : POLLOUT);
  waited = {events != 0 ? ours_.get() : -1, static_cast<short>(events), 0};
  return true;
}

}  // namespace gpuctl
