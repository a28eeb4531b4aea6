// The side of a pump that faces this process: a socket for users that need a descriptor (gRPC, a
// user's command), or buffers in memory for transfers, which a socket would copy twice more.
#ifndef GPUCTL_CLIENT_LINK_LOCAL_SIDE_H_
#define GPUCTL_CLIENT_LINK_LOCAL_SIDE_H_

#include <poll.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/byte_buffer.h"
#include "common/base/mutex.h"
#include "common/base/unique_fd.h"
#include "common/files/byte_stream.h"

namespace gpuctl {

// The functions that the pump calls, always on its own thread. They never wait.
class LocalSide {
 public:
  virtual ~LocalSide() = default;

  // Takes bytes from the server and returns how many: fewer when there is no room now, all when
  // nobody reads any more.
  virtual size_t Give(absl::string_view bytes) = 0;
  // True when there is room for the bytes of a whole window. GiveAll then takes them all.
  virtual bool HasRoom() = 0;
  virtual void GiveAll(absl::string_view bytes) = 0;
  // Passes on bytes that were taken and still wait. Returns true when it moved any.
  virtual bool Flush() = 0;
  // True when all taken bytes have been passed on.
  virtual bool Flushed() = 0;
  // Ends the input: nothing more comes from the server.
  virtual void EndInput() = 0;

  // Returns the next bytes for the server; Sent removes them. Empty when there are none now.
  virtual absl::string_view ToSend() = 0;
  virtual void Sent(size_t count) = 0;
  // True when the user will send no further bytes.
  virtual bool Finished() = 0;

  // Sets what else the pump has to poll for before it sleeps. Returns false when there is work at
  // once: bytes to send, if it `can_send`, or room, if it `wants_room`.
  virtual bool BeforeSleep(bool can_send, bool wants_room, pollfd& waited) = 0;
  virtual void AfterSleep(const pollfd& waited) = 0;
  // Tells that the pump has ended.
  virtual void Close() = 0;
};

class SocketSide : public LocalSide {
 public:
  static absl::StatusOr<std::unique_ptr<SocketSide>> Make();
  // Takes over one end of a socket pair whose other end a user has.
  static std::unique_ptr<SocketSide> Over(UniqueFd ours);
  // Returns the user's end; call it once.
  UniqueFd TakeFd() { return std::move(theirs_); }

  size_t Give(absl::string_view bytes) override;
  bool HasRoom() override { return queue_.empty(); }
  void GiveAll(absl::string_view bytes) override;
  bool Flush() override;
  bool Flushed() override { return queue_.empty(); }
  void EndInput() override;
  absl::string_view ToSend() override;
  void Sent(size_t count) override { pending_begin_ += count; }
  bool Finished() override { return ended_ && pending_begin_ == pending_end_; }
  bool BeforeSleep(bool can_send, bool wants_room, pollfd& waited) override;
  void AfterSleep(const pollfd&) override {}
  void Close() override { ours_.reset(); }

 private:
  SocketSide(UniqueFd theirs, UniqueFd ours) : theirs_(std::move(theirs)), ours_(std::move(ours)) {}
  UniqueFd theirs_;
  UniqueFd ours_;
  std::string queue_;  // bytes for the user, from queue_begin_ on
  size_t queue_begin_ = 0;
  std::string pending_;  // bytes for the server: from pending_begin_ to pending_end_
  size_t pending_begin_ = 0;
  size_t pending_end_ = 0;
  bool ended_ = false;  // the user sends no more
  bool shut_ = false;   // the user gets no more
};

// Buffers in memory as a local side. The user's calls (of ByteStream) may come from two threads
// besides the pump's: one that receives, one that sends.
class StreamSide : public LocalSide, public ByteStream {
 public:
  static absl::StatusOr<std::unique_ptr<StreamSide>> Make();

  absl::Status Receive(ByteBuffer& into) override;
  absl::Status Send(ByteBuffer& from) override;

  size_t Give(absl::string_view bytes) override;
  bool HasRoom() override;
  void GiveAll(absl::string_view bytes) override;
  bool Flush() override { return false; }
  bool Flushed() override { return true; }
  void EndInput() override;
  absl::string_view ToSend() override;
  void Sent(size_t count) override { sending_.RemovePrefix(count); }
  bool Finished() override { return false; }
  bool BeforeSleep(bool can_send, bool wants_room, pollfd& waited) override;
  void AfterSleep(const pollfd& waited) override;
  void Close() override;

 private:
  StreamSide(UniqueFd wake_read, UniqueFd wake_write)
      : wake_read_(std::move(wake_read)), wake_write_(std::move(wake_write)) {}
  void Append(absl::string_view bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasRoomLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Wake() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const UniqueFd wake_read_;
  const UniqueFd wake_write_;
  ByteBuffer sending_;  // the pump thread's own

  Mutex mutex_;
  CondVar changed_;
  ByteBuffer received_ ABSL_GUARDED_BY(mutex_);
  std::deque<ByteBuffer> to_send_ ABSL_GUARDED_BY(mutex_);
  ByteBuffer spare_ ABSL_GUARDED_BY(mutex_);  // memory for the next one to send
  bool input_ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // The reasons for which the sleeping pump waits.
  bool sleeps_for_room_ ABSL_GUARDED_BY(mutex_) = false;
  bool sleeps_for_bytes_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LINK_LOCAL_SIDE_H_
