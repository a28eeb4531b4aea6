// One channel of a holder's ssh session: a command on the node, and the gpuctl here that asked for
// it, if one did yet. Everything runs on the holder's only thread, and nothing waits.
#ifndef GPUCTL_CLIENT_WARM_HELD_CHANNEL_H_
#define GPUCTL_CLIENT_WARM_HELD_CHANNEL_H_

#include <poll.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/link/local_side.h"
#include "client/link/ssh_session.h"
#include "client/warm/warm_socket.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

// The socket to a command, with what it does not take yet.
class HolderPeer {
 public:
  explicit HolderPeer(UniqueFd fd) : fd_(std::move(fd)) {}
  void Say(WarmWord word, absl::string_view bytes);
  // Sends what waits. True when it moved any.
  bool Flush();
  // Reads what came; `fd` is a descriptor that came with it. False when the other side is gone.
  bool Read(UniqueFd& fd);
  bool gone() const { return gone_; }
  bool waits() const { return !output_.empty(); }
  size_t waiting() const { return output_.size(); }
  std::string& input() { return input_; }
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
  std::string input_, output_;
  bool gone_ = false;
};

class HeldChannel {
 public:
  enum class State {
    kOpening,   // the node was asked for a channel
    kStarting,  // it was asked to run the line
    kRunning,
    kRefused,  // it gave no channel
    kOver
  };

  // Asks for a channel; the line runs when it opened and, with `waits_for_peer`, somebody took it.
  HeldChannel(SshSession& session, WarmAsk ask);
  ~HeldChannel();
  HeldChannel(const HeldChannel&) = delete;
  HeldChannel& operator=(const HeldChannel&) = delete;

  // Gives the channel to a command. The line runs only when `peer` was told kOpen.
  void Attach(std::unique_ptr<HolderPeer> peer, std::unique_ptr<SocketSide> side);
  // Tells the peer that the node lives, and lets its bytes pass.
  void Prove();
  // Ends the command as soon as that is possible; Step then returns kOver.
  void Abandon() { abandoned_ = true; }

  // Does what can be done now. `moved` becomes true when it did something.
  State Step(bool& moved);
  // What to poll for, besides the session: the peer's socket and the bytes.
  void BeforeSleep(pollfd& peer, pollfd& side);
  void AfterSleep(const pollfd& peer);
  void Pulse(absl::Duration silence);

  // True when it is over and nothing waits for the peer.
  bool done() {
    if (state_ != State::kOver) return false;
    if (peer_ != nullptr) peer_->Flush();
    return peer_ == nullptr || peer_->gone() || !peer_->waits();
  }
  bool attached() const { return peer_ != nullptr; }
  bool proven() const { return proven_; }
  State state() const { return state_; }
  absl::Duration asked_at() const { return asked_at_; }
  const WarmAsk& ask() const { return ask_; }
  // Returns the peer and its side of a channel that was refused.
  std::pair<std::unique_ptr<HolderPeer>, std::unique_ptr<SocketSide>> TakeBack();

 private:
  static int OnData(ssh_session_struct*, ssh_channel_struct*, void* data, uint32_t size,
                    int is_stderr, void* self);
  static void OnExit(ssh_session_struct*, ssh_channel_struct*, int code, void* self);
  static void OnSignal(ssh_session_struct*, ssh_channel_struct*, const char* signal, int,
                       const char*, const char*, void* self);
  size_t Deliver(absl::string_view bytes);
  size_t SkipPreamble(absl::string_view bytes);
  size_t DeliverStderr(absl::string_view bytes);
  bool TakeHeldBack();
  bool SendFromSide();
  bool HasRoomForStderr() const;
  bool RemoteEnded() const;
  void Finish(absl::string_view why);

  SshSession& session_;
  const WarmAsk ask_;
  const absl::Duration asked_at_;
  ssh_channel_struct* channel_ = nullptr;
  std::unique_ptr<ssh_channel_callbacks_struct> callbacks_;
  std::unique_ptr<HolderPeer> peer_;
  std::unique_ptr<SocketSide> side_;
  State state_ = State::kOpening;
  bool proven_ = false;
  bool abandoned_ = false;
  bool called_back_ = false;
  bool held_back_ = false, held_stderr_ = false;
  bool eof_sent_ = false, input_ended_ = false;
  bool magic_done_;
  int exit_code_ = -1;
  int64_t since_top_up_ = 0;
  std::string preamble_, magic_line_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_WARM_HELD_CHANNEL_H_
