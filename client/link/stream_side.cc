#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "client/link/local_side.h"
#include "common/base/status_macros.h"
#include "common/process/pipe.h"

namespace gpuctl {
namespace {

// Limit of received bytes that the user has not taken. Further bytes stay in libssh, and then on
// the server. The held-back bytes of libssh can add as many again.
constexpr size_t kMaxReceived = 1 << 20;
// Room for the rest of a frame, which is put before the bytes that complete it.
constexpr size_t kRoomBefore = 288 << 10;
// Number of buffers, of about 1 MiB each, that a sender may be ahead of the network.
constexpr size_t kMaxToSend = 2;

}  // namespace

absl::StatusOr<std::unique_ptr<StreamSide>> StreamSide::Make() {
  ASSIGN_OR_RETURN(FdPair wake, MakePipe("start pump"));
  for (const int fd : {wake.first.get(), wake.second.get()}) {
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  }
  return std::unique_ptr<StreamSide>(new StreamSide(std::move(wake.first), std::move(wake.second)));
}

absl::Status StreamSide::Receive(ByteBuffer& into) {
  MutexLock lock(mutex_);
  while (received_.size() == 0 && !input_ended_ && !closed_) changed_.Wait(mutex_);
  if (received_.size() == 0) {
    return absl::UnavailableError("transfer: the peer closed the stream");
  }
  // Prepend the rest of a frame to the received bytes: it is the shorter of the two.
  if (into.size() > 0) received_.Prepend(into.view());
  into.Clear();
  into.Swap(received_);
  if (sleeps_for_room_) Wake();
  return absl::OkStatus();
}

absl::Status StreamSide::Send(ByteBuffer& from) {
  MutexLock lock(mutex_);
  while (to_send_.size() >= kMaxToSend && !closed_) changed_.Wait(mutex_);
  if (closed_) {
    from.Clear();
    return absl::UnavailableError("transfer: the peer closed the stream");
  }
  if (from.size() == 0) return absl::OkStatus();
  to_send_.emplace_back();
  to_send_.back().Swap(from);
  from.Swap(spare_);
  if (sleeps_for_bytes_) Wake();
  return absl::OkStatus();
}

void StreamSide::Wake() {
  sleeps_for_room_ = sleeps_for_bytes_ = false;
  const char byte = 0;
  (void)!write(wake_write_.get(), &byte, 1);
}

void StreamSide::Append(absl::string_view bytes) {
  if (bytes.empty()) return;
  const bool was_empty = received_.size() == 0;
  if (was_empty) received_.ClearForPrepend(kRoomBefore);
  memcpy(received_.Prepare(bytes.size()), bytes.data(), bytes.size());
  received_.Commit(bytes.size());
  if (was_empty) changed_.NotifyAll();
}

bool StreamSide::HasRoomLocked() const { return received_.size() <= kMaxReceived / 2; }

bool StreamSide::HasRoom() {
  MutexLock lock(mutex_);
  return HasRoomLocked();
}

size_t StreamSide::Give(absl::string_view bytes) {
  MutexLock lock(mutex_);
  const size_t room = kMaxReceived - std::min(kMaxReceived, received_.size());
  bytes = bytes.substr(0, room);
  Append(bytes);
  return bytes.size();
}

void StreamSide::GiveAll(absl::string_view bytes) {
  MutexLock lock(mutex_);
  Append(bytes);
}

void StreamSide::EndInput() {
  MutexLock lock(mutex_);
  input_ended_ = true;
  changed_.NotifyAll();
}

absl::string_view StreamSide::ToSend() {
  if (sending_.size() == 0) {
    MutexLock lock(mutex_);
    if (to_send_.empty()) return {};
    sending_.Swap(to_send_.front());
    spare_.Swap(to_send_.front());
    to_send_.pop_front();
    changed_.NotifyAll();
  }
  return sending_.view();
}

bool StreamSide::BeforeSleep(bool can_send, bool wants_room, pollfd& waited) {
  MutexLock lock(mutex_);
  if (can_send && !to_send_.empty() && sending_.size() == 0) return false;
  if (wants_room && HasRoomLocked()) return false;
  sleeps_for_bytes_ = can_send;
  sleeps_for_room_ = wants_room;
  waited = {wake_read_.get(), POLLIN, 0};
  return true;
}

void StreamSide::AfterSleep(const pollfd& waited) {
  {
    MutexLock lock(mutex_);
    sleeps_for_room_ = sleeps_for_bytes_ = false;
  }
  if (waited.revents == 0) return;
  char bytes[16];
  while (read(wake_read_.get(), bytes, sizeof(bytes)) > 0) {
  }
}

void StreamSide::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
  changed_.NotifyAll();
}

}  // namespace gpuctl
